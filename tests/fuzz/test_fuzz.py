"""A short seeded part of the fuzzing, every find that was kept, and whether the oracles can fail."""

import random
from collections.abc import Sequence

import pytest

from processor.dialects.calls import CallSlot
from processor.dialects.numbering import Arrival, Numbering
from processor.dialects.registry import DIALECTS
from tests.fuzz.chunks import FRAMINGS, chunks_of, framed
from tests.fuzz.damage import (
    check_damage,
    every_damage,
    fixtures_of,
    untouched,
)
from tests.fuzz.mutations import mutated
from tests.fuzz.run import FINDS
from tests.fuzz.target import DAMAGE, check, check_text, damage_of, events_or_error
from tests.golden.test_streams import NAMES, data_of
from tests.unit.dialects.cohere_events import BEGIN, delta, message_end, start
from tests.unit.dialects.wires import Chunk, response, responses_call

SEED = 20_240_101
INPUTS_COUNT = 250

every = pytest.mark.parametrize("dialect", DIALECTS)


@every
def test_every_kept_find_stays_fixed(dialect: str) -> None:
    """What the fuzzer found once is part of the tests; no find at all is fine."""
    for path in sorted((FINDS / dialect).glob("*.bin")):
        check(dialect, path.read_bytes())


@every
def test_a_short_seeded_run_finds_nothing(dialect: str) -> None:
    """Streams changed at the level of JSON, each checked by all oracles."""
    rng = random.Random(SEED)
    seeds = [data_of(name) for name in fixtures_of(dialect)]
    others = [chunk for data in seeds for chunk in chunks_of(data)]
    for _ in range(INPUTS_COUNT):
        data = mutated(rng.choice(seeds), others, rng)
        assert data is not None
        check(dialect, data)


@every
def test_bytes_changed_at_random_are_read_or_refused(dialect: str) -> None:
    """Cut, overwritten and doubled captured streams."""
    rng = random.Random(SEED)
    for name in fixtures_of(dialect):
        data = bytearray(data_of(name))
        for _ in range(3):
            at = rng.randrange(len(data))
            data[at : at + rng.randint(0, 8)] = rng.randbytes(rng.randint(0, 4))
        check(dialect, bytes(data))


@pytest.mark.parametrize("name", [n for n in NAMES if chunks_of(data_of(n))])
def test_no_damage_to_one_chunk_completes_a_call_with_other_arguments(name: str) -> None:
    """Every chunk of every captured stream dropped, repeated, swapped and moved to any place."""
    for damage in every_damage(len(untouched(name).chunks)):
        check_damage(name, damage)


@every
def test_the_captured_streams_hold_by_themselves(dialect: str) -> None:
    """The seeds of the fuzzer pass its oracles, in every framing."""
    for name in fixtures_of(dialect):
        check(dialect, data_of(name))
        for framing in FRAMINGS:
            check(dialect, framed(untouched(name).chunks, framing))


@every
def test_damage_bytes_name_a_damage_of_the_dialect(dialect: str) -> None:
    """Whatever the four bytes are."""
    rng = random.Random(SEED)
    for _ in range(100):
        data = DAMAGE + rng.randbytes(4)
        name, damage = damage_of(dialect, data)
        assert name in fixtures_of(dialect)
        assert len(damage.order(len(untouched(name).chunks))) > 0 or damage.kind == "drop"
        check(dialect, data)


def test_the_same_seed_makes_the_same_streams() -> None:
    """A find can be had again from the seed that is printed."""
    data = data_of("openai-chat/single-call")
    others = chunks_of(data)
    made = [[mutated(data, others, random.Random(n)) for n in range(20)] for _ in range(2)]
    assert made[0] == made[1]
    assert len(set(made[0])) > 10


def test_what_is_no_stream_is_left_to_the_byte_mutator() -> None:
    """Nothing can be read from it."""
    assert mutated(b"\xff\x00", [], random.Random(SEED)) is None


# --- the oracles can fail ------------------------------------------------------------------------


def test_a_lost_number_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the vendor's numbers, a fixture completes with other arguments than were sent."""

    def judge(_: Numbering, __: int, ___: int) -> Arrival:
        return "next"

    monkeypatch.setattr(Numbering, "judge", judge)
    assert found_by_damage(fixtures_of("openai-responses")) > 0


def test_a_fragment_given_to_another_call_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that swallows a fragment completes without it."""
    append = CallSlot.append

    def lossy(self: CallSlot, text: str) -> None:
        if text != "_id":
            append(self, text)

    names = fixtures_of("openai-chat")[:20]
    monkeypatch.setattr(CallSlot, "append", lossy)
    assert found_by_damage(names) == 0, "what is lost in both runs alike is not what this is about"
    monkeypatch.setattr(CallSlot, "append", _by_turns(append))
    assert found_by_damage(names) > 0


def _by_turns(append: object) -> object:
    """Every seventh fragment of the process is lost."""
    turn = iter(range(10**9))

    def lossy(self: CallSlot, text: str) -> None:
        if next(turn) % 7:
            append(self, text)  # type: ignore[operator]

    return lossy


def found_by_damage(names: Sequence[str]) -> int:
    """How many damages the oracle finds fault with."""
    untouched.cache_clear()
    found = 0
    try:
        for name in names:
            for damage in every_damage(len(untouched(name).chunks)):
                try:
                    check_damage(name, damage)
                except AssertionError:
                    found += 1
    finally:
        untouched.cache_clear()
    return found


def test_an_error_that_quotes_its_input_would_be_found() -> None:
    """Words of our own are fine, also when the input has them."""
    check_text("line 3: no JSON object", b"JSON object")
    with pytest.raises(AssertionError, match="quotes"):
        check_text("line 3: no JSON object: ORDER-1001", b'{"order_id":"ORDER-1001"}')


def test_a_refusal_is_the_same_for_every_cutting() -> None:
    """The text names the line and the dialect, and no part of the input."""
    told = events_or_error("ollama", [b"\n\n", b'{"order_id"', b':"ORDER-1001"}\n'])
    assert told == events_or_error("ollama", [b'\n\n{"order_id":"ORDER-1001"}\n'])
    assert isinstance(told, str)
    assert told.startswith("line 3: not ollama")


# --- what was found ------------------------------------------------------------------------------


def test_a_call_refused_before_its_start_still_ends_when_the_start_has_a_taken_id() -> None:
    """It has appeared under a name of ours, so it is a call of its own, and gets an end."""
    unreadable: Chunk = {"type": "tool-call-delta", "index": 0, "delta": {"message": "x"}}
    chunks = [BEGIN, start(1, "call_A"), delta(0, "{"), unreadable, start(0, "call_A")]
    check("cohere-v2", framed([*chunks, message_end()], "sse"))


def test_much_white_space_in_front_reads_alike_however_it_is_cut() -> None:
    """Past the bound the first character decides nothing any more."""
    chunks = response(responses_call("call_A", 0, "{}"))
    for blank in (65_535, 65_536, 65_537, 65_540):
        data = b" " * blank + framed(chunks, "array")
        whole = events_or_error("openai-responses", [data])
        pieces = [data[:65_536], *(data[at : at + 1] for at in range(65_536, blank + 2))]
        assert events_or_error("openai-responses", [*pieces, data[blank + 2 :]]) == whole
