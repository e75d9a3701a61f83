"""Long and large responses: what is kept is bounded, and what passes a limit is refused by name.

Memory is the peak that Python's own allocator reports while the input streams by; the input itself
is made piece by piece and does not count.
"""

import json
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from typing import TYPE_CHECKING

import pytest

from processor.core.events import CallAborted
from processor.core.outcomes import CallCompleted, Outcome
from processor.dialects.calls import CALLS_MAX
from processor.dialects.registry import DIALECTS
from processor.dialects.stream import KeyedEvent, ResponseStream
from processor.dialects.wire import WireReader
from tests.builders import assembly
from tests.golden.replay import stream
from tests.unit.dialects.cohere_events import BEGIN, start
from tests.unit.dialects.long_streams import lines, long_response, one_piece, text_of
from tests.unit.dialects.messages import ANTHROPIC, BEDROCK, WIRES, MessageWire
from tests.unit.dialects.value_wires import gemini, head, leaf, leaves, ollama, ollama_call, whole
from tests.unit.dialects.wires import Chunk, chat, entry, item, item_event, lifecycle, numbered

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

MIB = 1024 * 1024
every = pytest.mark.parametrize("dialect", DIALECTS)


class Folded:
    """An adapter and a fold, one behind the other, and what came out of them."""

    def __init__(self, dialect: str) -> None:
        self.of = stream(dialect)
        self.fold = assembly()
        self.outcomes = list[Outcome]()
        self.events_count = 0

    def run(self, pieces: Iterable[bytes | Chunk]) -> Counter[str]:
        """Feed all, end the input; how often each verdict was given."""
        for piece in pieces:
            self._take(piece)
        self._apply(self.of.end())
        assert self.fold.open_count == 0
        return Counter(
            "completed" if isinstance(o, CallCompleted) else o.reason for o in self.outcomes
        )

    def _take(self, piece: bytes | Chunk) -> None:
        of = self.of
        self._apply(of.observe_bytes(piece) if isinstance(piece, bytes) else of.observe(piece))

    def _apply(self, events: Iterable[KeyedEvent]) -> None:
        for key, event in events:
            outcome = self.fold.apply(key.encode(), event, self.events_count, 1_000)
            self.events_count += 1
            if outcome is not None:
                self.outcomes.append(outcome)


def peak_bytes(run: Callable[[], object]) -> int:
    """How much more memory than before `run` took at most."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@every
def test_a_thousand_parallel_calls_complete_and_cost_a_few_kilobytes_each(dialect: str) -> None:
    """The most calls that a response may have, all open at once."""
    folded = Folded(dialect)
    found = Counter[str]()
    chunks = long_response(dialect, CALLS_MAX, ["ORDER-1001"])
    peak = peak_bytes(lambda: found.update(folded.run(lines(chunks))))
    assert found == {"completed": CALLS_MAX}
    assert peak <= CALLS_MAX * 8 * 1024


@every
def test_one_call_too_many_refuses_all_by_name(dialect: str) -> None:
    """No call of such a response completes, and what still comes is not looked at."""
    folded = Folded(dialect)
    found = folded.run(lines(long_response(dialect, CALLS_MAX + 1, ["ORDER-1001"])))
    assert found["completed"] == 0
    assert found["too_many_calls"] > 0
    assert len(folded.outcomes) <= CALLS_MAX
    assert folded.of.ignored_count > 0


@pytest.mark.parametrize("dialect", [name for name in DIALECTS if name != "ollama"])
def test_eight_megabytes_in_small_deltas_are_too_large_and_not_kept(dialect: str) -> None:
    """The fold stops at its own bound, and the adapter keeps only what has no event yet.

    Ollama's wire never cuts arguments.
    """
    pieces = ["x" * 8_192] * 1_024
    folded, found = Folded(dialect), Counter[str]()
    copies = 0 if dialect != "openai-responses" else len(text_of(pieces))
    chunks = long_response(dialect, 1, pieces)
    peak = peak_bytes(lambda: found.update(folded.run(lines(chunks))))
    assert found == {"too_large": 1}
    # Held leaves of a call in parts are bounded by 4 Mi characters; a copy comes in one line.
    assert peak <= 6 * MIB + 6 * copies


@every
def test_eight_megabytes_in_one_piece_are_too_large(dialect: str) -> None:
    """Decoding one line takes a few times its length, and nothing of it stays."""
    (size, chunks) = 8 * MIB, one_piece(dialect, "x" * (8 * MIB))
    folded, found = Folded(dialect), Counter[str]()
    wire = list(lines(chunks))
    peak = peak_bytes(lambda: found.update(folded.run(wire)))
    assert found == {"too_large": 1}
    assert peak <= 6 * size
    assert peak_bytes(folded.of.end) < MIB


def with_repeated_piece(dialect: str, times: int) -> Iterator[Chunk]:
    """A response with one call that has the same piece so many times."""
    chunks = list(long_response(dialect, 1, ["xyz"]))
    at = next(n for n, chunk in enumerate(chunks) if "xyz" in json.dumps(chunk))
    wire = chain(chunks[:at], repeat(chunks[at], times), chunks[at + 1 :])
    if dialect != "openai-responses":
        return wire
    return ({**chunk, "sequence_number": number} for number, chunk in enumerate(wire))


@every
def test_a_response_of_a_hundred_thousand_events_is_bounded(dialect: str) -> None:
    """A fragment too many is refused by name, and what still comes is swallowed."""
    folded, found = Folded(dialect), Counter[str]()
    chunks = with_repeated_piece(dialect, 100_000)
    peak = peak_bytes(lambda: found.update(folded.run(chunks)))
    # Gemini's parts are no events, but held until the call ends; Ollama's text is none of a call.
    special = {"gemini": "too_large", "ollama": "completed"}
    assert found == {special.get(dialect, "too_many_fragments"): 1}
    # A fragment that waits for its call's end is an object of some 36 bytes and a place in a list;
    # a held text has up to 60; a numbered event has eight bytes more.
    assert peak <= 100_000 * 72 + MIB


@every
def test_what_many_open_calls_keep_is_their_fragments(dialect: str) -> None:
    """Fifty calls that grow in turn, all within their bounds: all complete."""
    calls, pieces = 50, ["ab"] * 100
    folded, found = Folded(dialect), Counter[str]()
    chunks = long_response(dialect, calls, pieces)
    peak = peak_bytes(lambda: found.update(folded.run(chunks)))
    assert found == {"completed": calls}
    assert peak <= calls * len(pieces) * 72 + calls * 8 * 1024


@every
def test_an_endless_line_takes_no_more_than_its_bound(dialect: str) -> None:
    """Twenty megabytes without a line end, and then an end of input."""
    of = stream(dialect)

    def run() -> None:
        for _ in range(320):
            of.observe_bytes(b"data: " + b"x" * 65_530)

    # A buffer that grows is copied once in a while.
    assert peak_bytes(run) <= 34 * MIB
    assert of.end() == []
    assert not of.is_recognised


@pytest.mark.parametrize("before", [b"data: ", b"{", b"[{"])
def test_a_line_in_tiny_pieces_takes_as_much_as_in_one(before: bytes) -> None:
    """Two bytes at a time: what is kept is bytes, and not an object for each piece."""
    of = stream("openai-chat")
    of.observe_bytes(before)

    def run() -> None:
        for _ in range(20_000):
            of.observe_bytes(b"xy")

    assert peak_bytes(run) <= 2 * 40_000 + 16 * 1024


def test_an_event_of_tiny_lines_takes_as_much_as_one_of_long_lines() -> None:
    """Server-sent events may cut their data into lines at will."""
    of = stream("openai-chat")

    def run() -> None:
        for _ in range(20_000):
            of.observe_bytes(b"data: xy\n")

    assert peak_bytes(run) <= 2 * 60_000 + 16 * 1024


@pytest.mark.parametrize("line", [b"\n", b":\n", b"data\n"])
def test_a_whole_capture_of_tiny_lines_is_read_in_pieces(line: bytes) -> None:
    """A line that is an object takes many times its bytes, so they are never all there."""
    of, data = stream("openai-chat"), b":" + line * (MIB // 4 // len(line))
    assert peak_bytes(lambda: of.observe_bytes(data)) <= 9 * MIB


def test_white_space_in_front_is_looked_at_once() -> None:
    """Servers keep a connection alive by it; each piece is stripped by itself, and never again."""
    wire, looked = WireReader(), Looked(b"\n")
    for _ in range(5_000):
        assert wire.feed(looked) == []
    assert Looked.bytes_looked_at == 5_000


class Looked(bytes):
    """Bytes that count how many of them are looked at."""

    bytes_looked_at = 0

    def strip(self, chars: "ReadableBuffer | None" = None, /) -> bytes:
        """As of bytes."""
        Looked.bytes_looked_at += len(self)
        return super().strip(chars)


@every
@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_deep_nesting_is_an_event_that_cannot_be_read(dialect: str, opening: str) -> None:
    """A hundred thousand containers inside of each other end no process; open calls are refused."""
    *chunks, _ = long_response(dialect, 1, ["ORDER-1001"])
    deep = opening * 100_000
    folded = Folded(dialect)
    wire = [*lines(chunks), deep.encode() if dialect == "ollama" else f"data: {deep}\n\n".encode()]
    if dialect == "ollama":
        wire.append(b"\n")
    found = folded.run(wire)
    assert found["completed"] == 0
    assert len(folded.outcomes) == 1


@every
def test_a_hundred_thousand_empty_chunks_are_nothing_to_keep(dialect: str) -> None:
    """Empty pieces of bytes, and empty chunks in the midst of a call."""
    *chunks, _ = long_response(dialect, 1, ["ORDER-1001"])
    of = stream(dialect)
    for _ in range(1_000):
        assert of.observe_bytes(b"") == []
    told = [event for chunk in chunks for event in of.observe(chunk)]

    def run() -> None:
        for _ in range(100_000):
            told.extend(of.observe({}))

    assert peak_bytes(run) <= 64 * 1024
    assert len(told) <= 32


#: A trace of a call at a place, without a start where the wire allows that.
PLACED: dict[str, Callable[[int], Chunk]] = {
    "anthropic": lambda n: ANTHROPIC.fragment(n, "x"),
    "bedrock-converse": lambda n: BEDROCK.fragment(n, "x"),
    "cohere-v2": lambda n: {"type": "tool-call-end", "index": n},
    "gemini": lambda n: gemini(whole(None, "f"), candidate=n),
    "mistral": lambda n: chat(entry(n, arguments="x")),
    "ollama": lambda n: ollama(ollama_call(None, index=n)),
    "openai-chat": lambda n: chat(entry(n, arguments="x")),
    "openai-responses": lambda n: {
        **item_event("added", n, item(f"call_{n}", "", "in_progress")),
        "sequence_number": n + 1,
    },
}


#: What a response begins with, where there is such a thing.
BEGINNING: dict[str, list[Chunk]] = {
    "anthropic": [ANTHROPIC.start()],
    "bedrock-converse": [BEDROCK.start()],
    "cohere-v2": [BEGIN],
    "openai-responses": [{**lifecycle("created", "in_progress"), "sequence_number": 0}],
}


@every
def test_ten_thousand_places_are_too_many_calls(dialect: str) -> None:
    """What the wire names by a place alone is bounded as what it names by an id."""
    folded = Folded(dialect)
    chunks = [*BEGINNING.get(dialect, []), *(PLACED[dialect](n) for n in range(10_000))]
    found = Counter[str]()
    peak = peak_bytes(lambda: found.update(folded.run(chunks)))
    assert found["completed"] == 0
    assert len(folded.outcomes) == CALLS_MAX
    assert peak <= CALLS_MAX * 8 * 1024


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: str(wire.dialect))
def test_ten_thousand_blocks_that_are_no_calls_refuse_the_calls_beside_them(
    wire: MessageWire,
) -> None:
    """Blocks of text are remembered too, since a place may not be used twice."""
    folded = Folded(wire.dialect)
    blocks = (chunk for n in range(1, 10_001) for chunk in wire.text(n))
    peak = peak_bytes(lambda: folded.run([wire.start(), wire.head(0, "call_A"), *blocks]))
    assert [o.reason for o in folded.outcomes if not isinstance(o, CallCompleted)] == [
        "too_many_calls"
    ]
    assert peak <= 16 * MIB


def _item_named(n: int, call_id: str, tool: str) -> Chunk:
    of = {**item(call_id, "", "in_progress", tool), "id": f"item_{call_id}"}
    return {**item_event("added", n, of), "sequence_number": n + 1}


#: The head of a call with any id and any tool.
NAMED: dict[str, Callable[[int, str, str], Chunk]] = {
    "anthropic": ANTHROPIC.head,
    "bedrock-converse": BEDROCK.head,
    "cohere-v2": start,
    "gemini": lambda _, call_id, tool: gemini(whole(call_id, tool)),
    "mistral": lambda n, call_id, tool: chat(entry(n, call_id, tool, "")),
    "ollama": lambda _, call_id, tool: ollama(ollama_call(call_id, tool)),
    "openai-chat": lambda n, call_id, tool: chat(entry(n, call_id, tool, "")),
    "openai-responses": _item_named,
}


@every
@pytest.mark.parametrize("field", ["id", "tool"])
def test_ids_and_tools_of_a_megabyte_are_refused_and_not_kept(dialect: str, field: str) -> None:
    """Thirty-two of them: nothing longer than an id or a name may be stays in memory."""
    long = "x" * MIB

    def chunks() -> Iterator[Chunk]:
        yield from BEGINNING.get(dialect, [])
        for n in range(32):
            text = f"{n}{long}"
            pair = (text, "f") if field == "id" else (f"call_{n}", text)
            yield NAMED[dialect](n, *pair)

    folded, found = Folded(dialect), Counter[str]()
    peak = peak_bytes(lambda: found.update(folded.run(chunks())))
    assert found == {"malformed_event": 32}
    assert peak <= 12 * MIB


@every
def test_one_long_id_twice_is_one_call(dialect: str) -> None:
    """What stands for an id that is too long is the same for the same id, and no id."""
    long = "x" * 1_000
    chunks = [
        *BEGINNING.get(dialect, []),
        NAMED[dialect](0, long, "f"),
        NAMED[dialect](1, long, "f"),
    ]
    folded = Folded(dialect)
    folded.run(numbered(chunks))
    assert len({o.key.call_id for o in folded.outcomes}) == len(folded.outcomes)
    assert all(o.key.call_id.startswith("~") for o in folded.outcomes)
    assert 1 <= len(folded.outcomes) <= 2


#: A chunk in the midst of a response that has counters.
WITH_USAGE: dict[str, Callable[[Chunk], Chunk]] = {
    "anthropic": lambda usage: {"type": "message_delta", "delta": {}, "usage": usage},
    "bedrock-converse": lambda usage: {"metadata": {"usage": usage}},
    "gemini": lambda usage: {"candidates": [], "usageMetadata": usage},
    "openai-chat": lambda usage: {**chat(), "usage": usage},
}


@pytest.mark.parametrize("dialect", WITH_USAGE)
def test_counters_that_change_their_names_are_bounded_for_the_response(dialect: str) -> None:
    """The first 256 names are counted, in however many chunks they come."""
    of = stream(dialect)
    for chunk in BEGINNING.get(dialect, []):
        of.observe(chunk)
    for n in range(2_000):
        of.observe(WITH_USAGE[dialect]({f"counter_{n}": n, "kept": n}))
    usage = of.usage
    assert usage is not None
    assert len(usage.provider) == 256
    assert usage.provider["kept"] == 1_999


def test_the_places_of_a_call_in_parts_are_bounded() -> None:
    """A path makes a container for each of its steps, so steps count, and not leaves alone."""
    of = stream("gemini")
    told = of.observe(gemini(head()))

    def run() -> None:
        for n in range(1_000):
            told.extend(of.observe(gemini(leaves(leaf(f"$.a{n}{'.b' * 100}", "x")))))

    assert peak_bytes(run) <= 32 * MIB
    assert [e.body.reason for _, e in told if isinstance(e.body, CallAborted)] == ["too_large"]


def test_what_was_refused_for_its_size_takes_no_room_of_others() -> None:
    """A held text that is too long is not counted: a call beside it still waits for its name."""
    long = "x" * (4 * MIB + 1)
    chunks = [
        chat(entry(0, "call_A", arguments=long)),
        chat(entry(1, "call_B", arguments="{}")),
        chat(entry(1, name="lookup_order")),
        chat(finish="tool_calls"),
    ]
    assert Folded("openai-chat").run(chunks) == {"too_large": 1, "completed": 1}


#: A chunk that concerns no call.
PASSING: dict[str, Chunk] = {
    "anthropic": {"type": "ping"},
    "bedrock-converse": {"contentBlockDelta": {"contentBlockIndex": 99, "delta": {"text": "x"}}},
    "cohere-v2": {"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "x"}}},
    "gemini": gemini(),
    "mistral": chat(),
    "ollama": ollama(),
    "openai-chat": chat(),
    "openai-responses": {"type": "response.output_text.delta", "delta": "x", "sequence_number": 1},
}


@every
def test_a_stream_without_an_end_keeps_nothing_of_what_has_passed(dialect: str) -> None:
    """Text beside the calls goes by, and an abort still ends every call."""
    of: ResponseStream = stream(dialect)
    *chunks, _ = long_response(dialect, 4, ["ORDER-1001"])
    told = [event for chunk in chunks for event in of.observe(chunk)]
    passing = PASSING[dialect]

    def run() -> None:
        for _ in range(20_000):
            told.extend(of.observe(passing))

    assert peak_bytes(run) <= 64 * 1024
    told += of.abort("response_cancelled")
    assert of.ended
    assert len({key for key, _ in told}) <= 4


def test_the_texts_of_the_long_streams_are_objects() -> None:
    """Otherwise the calls above would be refused for another reason."""
    assert json.loads(text_of(["ORDER-1001"])) == {"a": "ORDER-1001"}
