"""Messages of content blocks: which fragment belongs to which call, and what is refused."""

import pytest

from tests.unit.dialects.messages import (
    ANTHROPIC,
    BEDROCK,
    WIRES,
    MessageWire,
    call_of,
    message,
    said,
)
from tests.unit.dialects.verdicts import events, verdicts
from tests.unit.dialects.wires import Chunk

A, B = '{"a":1}', '{"b":2}'
CONFLICT = "identity_conflict"

both = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: str(wire.dialect))


@both
def test_fragments_follow_their_index_however_calls_alternate(wire: MessageWire) -> None:
    """The index of a block leads its fragments to it; the first one need not be 0."""
    chunks = [wire.head(7, "call_B"), *wire.text(3), wire.head(1, "call_A")]
    for index, text in ((1, '{"a"'), (7, '{"b"'), (7, ":2}"), (1, ":1}")):
        chunks.append(wire.fragment(index, text))
    assert said(wire, *chunks, wire.stop(7), wire.stop(1)) == {"call_A": A, "call_B": B}


@both
def test_the_index_is_told_and_links_nothing_beyond_the_message(wire: MessageWire) -> None:
    """`output_index` is the block's own; the key has none."""
    started = events(wire.dialect, message(wire, *call_of(wire, "call_A", 4, A)))[0]
    assert getattr(started.event.body, "output_index", None) == 4
    assert started.key.call_id == "call_A"


def test_the_message_id_is_the_response_id_and_bedrock_has_none() -> None:
    """A response that the wire never names is keyed by a tilde; so is a message with no id."""
    for wire, response_id in ((ANTHROPIC, "msg_0001"), (BEDROCK, "~")):
        keys = {e.key for e in events(wire.dialect, message(wire, *call_of(wire, "call_A", 0, A)))}
        assert {key.response_id for key in keys} == {response_id}
    chunks = [ANTHROPIC.start(None), *message(ANTHROPIC, *call_of(ANTHROPIC, "call_A", 0, A))[1:]]
    assert {e.key.response_id for e in events("anthropic", chunks)} == {"~"}


@both
def test_two_starts_on_one_index_refuse_both_calls(wire: MessageWire) -> None:
    """Whose the fragments are, nothing says; a repeated start neither."""
    one, other = call_of(wire, "call_A", 0, A), call_of(wire, "call_B", 0, B)
    assert said(wire, *one, *other) == {"call_A": CONFLICT, "call_B": CONFLICT}
    assert said(wire, one[0], *one) == {"call_A": CONFLICT}
    assert said(wire, *wire.text(0), *one) == {"call_A": CONFLICT}
    assert said(wire, one[0], wire.providers(0, "call_S"), *one[1:]) == {"call_A": CONFLICT}


@both
def test_one_id_for_two_blocks_is_a_conflict(wire: MessageWire) -> None:
    """The id of one call must not lead to the arguments of another."""
    calls = [*call_of(wire, "call_A", 0, A), *call_of(wire, "call_A", 1, B)]
    assert said(wire, *calls) == {"call_A": CONFLICT}


@both
def test_a_call_whose_start_was_lost_is_refused_and_seen(wire: MessageWire) -> None:
    """Under an id of ours, the same at every replay; other calls are not concerned."""
    lost = call_of(wire, "call_A", 0, '{"a"', ":1}")[1:]
    found = said(wire, *lost, *call_of(wire, "call_B", 1, B))
    assert found == {"~block:0": "missing_start", "call_B": B}


@both
def test_a_start_behind_its_own_fragment_is_refused_by_name(wire: MessageWire) -> None:
    """One call, one verdict: what came before its start is not put in place."""
    head, piece, stop = call_of(wire, "call_A", 0, A)
    assert said(wire, piece, head, stop) == {"call_A": "missing_start"}


@both
def test_fragments_without_a_start_are_not_kept(wire: MessageWire) -> None:
    """However many, and whatever they are: the reason stays, no memory is spent."""
    pieces = [wire.fragment(0, text) for text in ("x" * 1_048_576,) * 5 + (7,)]
    assert said(wire, *pieces) == {"~block:0": "missing_start"}


def test_a_start_behind_its_own_stop_is_refused() -> None:
    """Blocks of text have no start, so that the stop alone says nothing."""
    assert said(BEDROCK, BEDROCK.stop(0), BEDROCK.head(0, "call_A")) == {"call_A": CONFLICT}


@both
def test_a_fragment_for_a_block_of_text_refuses_every_call(wire: MessageWire) -> None:
    """It is of some call, and its index is wrong."""
    chunks = [*call_of(wire, "call_A", 0, A), *wire.text(1)]
    assert said(wire, *chunks, wire.fragment(1, B)) == {"call_A": "ambiguous_identity"}


@both
def test_text_inside_of_a_call_refuses_it(wire: MessageWire) -> None:
    """A call has fragments of arguments only."""
    head, piece, stop = call_of(wire, "call_A", 0, A)
    assert said(wire, head, piece, wire.text(0)[-2], stop) == {"call_A": "malformed_event"}


@both
@pytest.mark.parametrize("index", [None, -1, "0", True, 2**31])
def test_a_fragment_without_a_readable_index_refuses_the_whole_response(
    wire: MessageWire, index: object
) -> None:
    """It may be of any call, of later ones too."""
    first, second = call_of(wire, "call_A", 0, A), call_of(wire, "call_B", 1, B)
    found = said(wire, *first, wire.fragment(index, "x"), *second)
    assert found == {"call_A": "malformed_event", "call_B": "malformed_event"}


@both
def test_what_the_provider_executes_is_no_call_of_ours(wire: MessageWire) -> None:
    """Its input is streamed like ours and appears nowhere."""
    providers = [wire.providers(0, "srv_A"), wire.fragment(0, B), wire.stop(0)]
    assert said(wire, *providers, *call_of(wire, "call_A", 1, A)) == {"call_A": A}


@both
@pytest.mark.parametrize("absent", [None, "", "null", "undefined"])
def test_a_call_without_an_id_or_a_name_is_refused(wire: MessageWire, absent: object) -> None:
    """Both are told once; nothing later could bring them."""
    found = said(wire, wire.head(0, absent), *call_of(wire, "call_A", 1, A))
    assert found == {"~block:0": "missing_call_id", "call_A": A}
    if absent in (None, ""):
        assert said(wire, wire.head(0, "call_A", absent)) == {"call_A": "tool_name_missing"}


@both
@pytest.mark.parametrize("bad", ["x" * 129, "a\0b", "\ud800"])
def test_an_id_that_can_be_none_refuses_its_call(wire: MessageWire, bad: str) -> None:
    """Too long, NUL, half a character: no key can hold it, and the refusal is seen."""
    assert said(wire, *call_of(wire, bad, 0, A)) == {"~block:0": "malformed_event"}


def head_with(wire: MessageWire, given: object, index: int = 0, call_id: str = "call_A") -> Chunk:
    """The start of a call that has its input already."""
    if wire is ANTHROPIC:
        return ANTHROPIC.block(index, "tool_use", id=call_id, name="x", input=given)
    return BEDROCK.block(index, toolUseId=call_id, name="x", input=given)


@both
def test_an_input_in_the_start_is_a_copy_that_the_fragments_must_equal(wire: MessageWire) -> None:
    """Not of either dialect, but seen: the call must neither run with `{}` nor with two inputs."""
    head, stop = head_with(wire, {"city": "Oslo", "n": [1.5, None]}), wire.stop(0)
    text = '{"city":"Oslo","n":[1.5,null]}'
    assert said(wire, head, stop) == {"call_A": text}
    assert said(wire, head, wire.fragment(0, text), stop) == {"call_A": text}
    other = wire.fragment(0, text.replace(",", ", "))
    assert said(wire, head, other, stop) == {"call_A": "final_copy_mismatch"}
    assert said(wire, head) == {"call_A": "stream_ended"}


@both
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ('{"city":"Oslo"}', "malformed_event"),
        ([], "malformed_event"),
        (0, "malformed_event"),
        (False, "malformed_event"),
        ({"a": float("nan")}, "non_finite_number"),
        ({"a": "x" * 1_000_000}, "too_large"),
    ],
)
def test_an_input_in_the_start_that_is_no_object_refuses_the_call(
    wire: MessageWire, given: object, reason: str
) -> None:
    """It says something, and not no arguments."""
    assert said(wire, head_with(wire, given), wire.stop(0)) == {"call_A": reason}


@both
def test_inputs_in_the_starts_are_bounded_together(wire: MessageWire) -> None:
    """They are kept until the calls are proven."""
    heads = list[Chunk]()
    for index in range(7):
        heads.append(head_with(wire, {"a": "x" * 700_000}, index, f"call_{index}"))
    found = said(wire, *heads)
    assert [found[f"call_{index}"] for index in (0, 4, 5)] == ["stream_ended"] * 2 + ["too_large"]


@both
@pytest.mark.parametrize("given", [{"a": 1}, None, 5, True])
def test_arguments_that_are_no_text_refuse_their_call(wire: MessageWire, given: object) -> None:
    """Nothing is serialised, and nothing is taken for nothing."""
    chunks = [wire.head(0, "call_A"), wire.fragment(0, given), wire.stop(0)]
    assert said(wire, *chunks, *call_of(wire, "call_B", 1, B)) == {
        "call_A": "arguments_not_text",
        "call_B": B,
    }


@both
def test_a_character_cut_between_its_halves_is_joined(wire: MessageWire) -> None:
    """Per call, also when another call's fragment comes in between."""
    first, second = [wire.head(0, "call_A"), wire.head(1, "call_B")], [wire.stop(0), wire.stop(1)]
    pieces = [
        wire.fragment(0, '{"a":"\ud83d'),
        wire.fragment(1, B),
        wire.fragment(0, '\ude00"}'),
    ]
    assert said(wire, *first, *pieces, *second) == {"call_A": '{"a":"\U0001f600"}', "call_B": B}
    half = [wire.head(0, "call_A"), wire.fragment(0, A + "\ud83d"), wire.stop(0)]
    assert said(wire, *half) == {"call_A": "invalid_utf8"}


@both
def test_more_calls_or_blocks_than_the_limit_end_the_response(wire: MessageWire) -> None:
    """All are refused and nothing more is kept."""
    found = said(wire, *(wire.head(n, f"call_{n}") for n in range(1_001)))
    assert (len(found), set(found.values())) == (1_000, {"too_many_calls"})
    texts = (wire.text(n)[0] for n in range(1, 10_001))
    assert said(wire, *call_of(wire, "call_A", 0, A), *texts) == {"call_A": "too_many_calls"}


def test_another_message_in_the_stream_refuses_all() -> None:
    """Another id, or the same message from its beginning once more."""
    call = call_of(ANTHROPIC, "call_A", 0, A)
    later = call_of(ANTHROPIC, "call_B", 1, B)
    for message_id, reason in (
        ("msg_0002", "response_id_changed"),
        ("msg_0001", "malformed_event"),
    ):
        found = said(ANTHROPIC, *call, ANTHROPIC.start(message_id), *later)
        assert found == {"call_A": reason, "call_B": reason}
    assert said(BEDROCK, *call_of(BEDROCK, "call_A", 0, A), BEDROCK.start()) == {
        "call_A": "malformed_event"
    }


@both
def test_a_repeated_start_before_any_block_says_nothing(wire: MessageWire) -> None:
    """Nothing could have been lost or doubled."""
    assert said(wire, wire.start(), *call_of(wire, "call_A", 0, A)) == {"call_A": A}


@both
def test_calls_of_a_message_that_never_started_are_refused(wire: MessageWire) -> None:
    """Its beginning was lost, and what was in it nobody knows."""
    chunks = message(wire, *call_of(wire, "call_A", 0, A))[1:]
    assert verdicts(wire.dialect, chunks) == {"call_A": "missing_start"}


def test_bedrock_reads_both_forms_of_an_event_and_refuses_two_at_once() -> None:
    """By the frame's header names, or as a member; never a choice between two."""
    members = message(BEDROCK, *BEDROCK.text(0), *call_of(BEDROCK, "call_A", 1, '{"a"', ":1}"))
    framed: list[Chunk] = [
        {"event": name, "payload": payload} for chunk in members for name, payload in chunk.items()
    ]
    assert events("bedrock-converse", framed) == events("bedrock-converse", members)
    two = {**BEDROCK.fragment(0, "x"), **BEDROCK.stop(0)}
    assert said(BEDROCK, *call_of(BEDROCK, "call_A", 0, A), two) == {"call_A": "malformed_event"}


def test_a_bedrock_tool_of_an_unknown_type_is_refused() -> None:
    """Who executes it is not known."""
    head = BEDROCK.block(0, toolUseId="call_A", name="x", type="remote_tool_use")
    found = said(BEDROCK, head, BEDROCK.fragment(0, A), BEDROCK.stop(0))
    assert found == {"call_A": "unsupported_call_type"}
