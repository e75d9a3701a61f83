"""Chat: which fragment belongs to which call, and what is refused when nothing says so."""

import pytest

from tests.unit.dialects.verdicts import verdicts
from tests.unit.dialects.wires import Chunk, chat, chat_call, entry

A, B = '{"a":1}', '{"b":2}'
DONE = chat(finish="tool_calls")
AMBIGUOUS, CONFLICT = "ambiguous_identity", "identity_conflict"


def of(*chunks: Chunk) -> dict[str, str]:
    """Verdicts of a response that ends by tool_calls."""
    return verdicts("openai-chat", [*chunks, DONE])


def test_fragments_follow_their_index_however_calls_alternate() -> None:
    """An index leads to the id that it was bound to, in its own choice."""
    heads = [chat(entry(0, "call_A", "x", "")), chat(entry(7, "call_B", "y", ""))]
    pieces = [
        chat(entry(i, arguments=t)) for i, t in ((7, '{"b"'), (0, '{"a"'), (0, ":1}"), (7, ":2}"))
    ]
    assert of(*heads, *pieces) == {"call_A": A, "call_B": B}


@pytest.mark.parametrize("absent", [None, "", "null", "undefined"])
def test_absent_ids_and_names_say_nothing(absent: str | None) -> None:
    """Null, empty and the words for nothing neither open nor rename a call."""
    later: Chunk = {"index": 0, "id": absent, "function": {"name": None, "arguments": A}}
    assert of(chat(entry(0, "call_A", "x")), chat(later)) == {"call_A": A}


def test_a_new_id_with_a_name_opens_a_call_on_a_used_index() -> None:
    """Servers that write index 0 on every call are read by their ids."""
    heads = (chat(entry(0, c, "x", t)) for c, t in (("call_A", A), ("call_B", B)))
    assert of(*heads) == {"call_A": A, "call_B": B}


def test_a_fragment_without_id_on_a_rebound_index_refuses_both() -> None:
    """Which of the two calls goes on cannot be known."""
    chunks = [chat(entry(0, "call_A", "x", A)), chat(entry(0, "call_B", "x", ""))]
    assert of(*chunks, chat(entry(0, arguments=B))) == {"call_A": AMBIGUOUS, "call_B": AMBIGUOUS}


def test_an_empty_entry_on_a_rebound_index_says_nothing() -> None:
    """An entry without id, name and text concerns no call."""
    chunks = [chat(entry(0, "call_A", "x", A)), chat(entry(0, "call_B", "x", B))]
    assert of(*chunks, chat(entry(0, arguments=""))) == {"call_A": A, "call_B": B}


def test_a_fragment_with_a_known_id_needs_no_index() -> None:
    """Ids decide, also on a rebound index."""
    chunks = [chat(entry(0, "call_A", "x", '{"a"')), chat(entry(0, "call_B", "x", B))]
    assert of(*chunks, chat(entry(0, "call_A", arguments=":1}"))) == {"call_A": A, "call_B": B}


def test_one_id_at_two_indexes_is_a_conflict() -> None:
    """The id of one call must not lead to the arguments of another."""
    chunk = chat(entry(0, "call_A", "x", A), entry(1, "call_A", "y", B))
    assert of(chunk) == {"call_A": CONFLICT}


def test_one_id_in_two_choices_is_a_conflict() -> None:
    """Alternatives of one response are calls of their own and need ids of their own."""
    chunks = [chat(entry(0, "call_A", "x", A), choice=c, finish="tool_calls") for c in (0, 1)]
    assert verdicts("openai-chat", chunks) == {"call_A": CONFLICT}


def test_a_late_id_and_a_late_name_bind() -> None:
    """Fragments wait until both are known."""
    chunks = [
        chat(entry(0, arguments='{"a"')),
        chat(entry(0, "call_A", arguments=":1")),
        chat(entry(0, name="x", arguments="}")),
    ]
    assert of(*chunks) == {"call_A": A}


def test_a_new_id_without_a_name_on_a_bound_index_refuses_both() -> None:
    """Renamed, or another call: nothing says which."""
    chunks = [chat(entry(0, "call_A", "x")), chat(entry(0, "call_Z", arguments=A))]
    assert of(*chunks) == {"call_A": CONFLICT, "call_Z": CONFLICT}


def test_a_call_without_any_id_is_refused_under_an_id_of_ours() -> None:
    """It is seen, it never runs, and its id is the same at every replay."""
    assert of(chat(entry(3, name="x", arguments=A))) == {"~call:0:0": "missing_call_id"}


def test_a_call_without_a_name_is_refused() -> None:
    """An id alone names no tool."""
    assert of(chat(entry(0, "call_A", arguments=A))) == {"call_A": "tool_name_missing"}


def test_a_second_name_under_the_same_id_is_a_conflict() -> None:
    """The tool of a call never changes."""
    chunks = [chat(entry(0, "call_A", "x", A)), chat(entry(0, "call_A", "y"))]
    assert of(*chunks) == {"call_A": "tool_name_conflict"}


def test_without_index_a_later_indexed_fragment_is_nobodys() -> None:
    """It may be of the call that had no index, or of one whose head was lost."""
    chunks = [chat(entry(None, "call_A", "x", '{"a"')), chat(entry(0, arguments=":1}"))]
    assert of(*chunks) == {"call_A": AMBIGUOUS}


def test_the_old_and_the_new_form_in_one_choice_refuse_each_other() -> None:
    """The same call told twice must not run twice."""
    legacy = {"index": 0, "delta": {"function_call": {"name": "x", "arguments": A}}}
    chunk: Chunk = {"id": "chatcmpl-0001", "choices": [legacy]}
    assert of(chat(entry(0, "call_A", "x", A)), chunk) == {
        "call_A": AMBIGUOUS,
        "~function_call:0": AMBIGUOUS,
    }


@pytest.mark.parametrize("bad", ["x" * 129, "a\0b", "\ud800"])
def test_an_id_that_can_be_none_refuses_its_call(bad: str) -> None:
    """Too long, NUL, half a character: no key can hold it, and the refusal is seen."""
    assert of(chat(entry(0, bad, "x", A))) == {"~call:0:0": "malformed_event"}


@pytest.mark.parametrize("bad", ["x" * 257, "a\nb", "\ud800"])
def test_a_tool_name_that_can_be_none_refuses_its_call(bad: str) -> None:
    """It would end up in logs and pages."""
    assert of(chat(entry(0, "call_A", bad, A))) == {"call_A": "malformed_event"}


def test_more_calls_than_the_limit_end_the_response() -> None:
    """All are refused and nothing more is kept."""
    heads = [chat(entry(n, f"call_{n}", "x", A)) for n in range(1_001)]
    found = of(*heads)
    assert len(found) == 1_000
    assert set(found.values()) == {"too_many_calls"}


def test_an_unknown_kind_of_entry_is_refused() -> None:
    """Only functions and custom tools are read."""
    assert of(chat(entry(0, "call_A", "x", A, type="retrieval"))) == {
        "call_A": "unsupported_call_type"
    }


def test_calls_of_a_whole_stream_are_as_sent() -> None:
    """The ordinary case, with the text cut anywhere."""
    assert of(*chat_call("call_A", 0, "{", '"a":', "1}")) == {"call_A": A}
