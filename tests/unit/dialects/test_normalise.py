"""The normaliser's fold: chunks of a response in order, or the response is refused by name."""

import json

import pytest

from processor.core.chunks import ChunkBody, JsonChunk, RawChunk, ResponseChunk, StreamClosed
from processor.core.events import CallAborted, ResponseEnded
from processor.dialects import normalise
from processor.dialects.normalise import IDLE_MS, LIFE_MS, LINGER_MS, Normalised, ResponseFold
from processor.dialects.stream import KeyedEvent, ResponseStream

KEY = b"acme/req_1/resp_1"


def said_chat(**delta: object) -> JsonChunk:
    """One chunk of a chat completion that carries `delta`."""
    return JsonChunk(
        json.dumps(
            {
                "id": "chatcmpl-1",
                "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": delta, "finish_reason": None}],
            }
        ).encode()
    )


FINISH = JsonChunk(
    b'{"id":"chatcmpl-1","object":"chat.completion.chunk","choices":'
    b'[{"index":0,"delta":{},"finish_reason":"tool_calls"}],'
    b'"usage":{"prompt_tokens":3,"completion_tokens":0}}'
)
BEGIN = said_chat(
    tool_calls=[{"index": 0, "id": "call_A", "function": {"name": "refund", "arguments": ""}}]
)


def fragment(text: str) -> JsonChunk:
    """The next piece of the arguments."""
    return said_chat(tool_calls=[{"index": 0, "function": {"arguments": text}}])


def bodies() -> list[ChunkBody]:
    """A whole response with one call, closed cleanly."""
    return [
        BEGIN,
        fragment('{"order":'),
        fragment('"ORDER-1001"}'),
        FINISH,
        StreamClosed(cancelled=False),
    ]


class Driver:
    """Feeds one fold; offsets and times go up by themselves."""

    def __init__(self) -> None:
        self.fold = ResponseFold()
        self.offset = -1
        self.now_ms = 1_000

    def feed(self, number: int, body: ChunkBody, key: bytes = KEY, **changes: str) -> Normalised:
        """One record."""
        self.offset += 1
        tenant, request_id, response_id = key.decode().split("/")
        chunk = ResponseChunk(
            tenant, request_id, response_id, changes.get("dialect", "openai-chat"), number, body
        )
        return self.fold.apply(key, chunk, self.offset, self.now_ms)


def events_of(stream: list[Normalised]) -> list[KeyedEvent]:
    """Every event, in order."""
    return [event for said in stream for event in said.events]


def expected() -> list[KeyedEvent]:
    """What the adapter alone makes of the response."""
    stream = ResponseStream("openai-chat", tenant="acme", request_id="req_1")
    events: list[KeyedEvent] = []
    for body in bodies():
        if isinstance(body, JsonChunk):
            events += stream.observe(json.loads(body.json))
    return events + stream.end()


def test_a_whole_response_gives_what_its_adapter_gives_and_its_usage_once() -> None:
    """The fold adds nothing to the events; usage comes with the end, its zero kept."""
    driver = Driver()
    said = [driver.feed(number, body) for number, body in enumerate(bodies())]
    assert events_of(said) == expected()
    (usage,) = [one.usage for one in said if one.usage is not None]
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (3, 0, None)
    assert [one.refusal for one in said] == [None] * len(said)


def test_raw_bytes_cut_anywhere_give_the_same_events() -> None:
    """Framing and cuts are the dialect reader's work, not the fold's."""
    wire = b"".join(
        b"data: " + body.json + b"\n\n" for body in bodies() if isinstance(body, JsonChunk)
    )
    for size in (1, 7, 64, len(wire)):
        driver = Driver()
        pieces: list[ChunkBody] = [
            *(RawChunk(wire[i : i + size]) for i in range(0, len(wire), size)),
            StreamClosed(cancelled=False),
        ]
        said = [driver.feed(number, body) for number, body in enumerate(pieces)]
        assert events_of(said) == expected()


@pytest.mark.parametrize("repeated", range(4))
def test_an_equal_repeat_is_dropped_and_another_text_refuses_the_response(repeated: int) -> None:
    """Under a used number the same bytes mean a redelivery, others a contradiction."""
    driver = Driver()
    whole = bodies()
    for number in range(repeated + 1):
        driver.feed(number, whole[number])
    assert driver.feed(repeated, whole[repeated]) == Normalised()
    assert driver.fold.repeats_count == 1
    said = driver.feed(repeated, fragment("other"))
    assert said.refusal is not None
    assert said.refusal.code == "chunk_conflict"
    assert [event.body for _, event in said.events] == [CallAborted("sequence_conflict")]
    assert driver.feed(repeated + 1, whole[repeated + 1]) == Normalised()


def test_a_jump_aborts_the_open_calls_and_the_rest_is_swallowed() -> None:
    """What is missing could have been any call's fragment."""
    driver = Driver()
    whole = bodies()
    driver.feed(0, whole[0])
    said = driver.feed(2, whole[2])
    assert said.refusal is not None
    assert said.refusal.code == "chunk_gap"
    assert [event.body for _, event in said.events] == [CallAborted("sequence_gap")]
    assert [driver.feed(n, whole[n]) for n in (1, 3, 4)] == [Normalised()] * 3
    assert driver.fold.swallowed_count == 3


def test_a_response_without_its_first_record_is_refused_once() -> None:
    """Its calls cannot be known, so there is nothing to abort; the dead letter names it."""
    driver = Driver()
    whole = bodies()
    first = driver.feed(1, whole[1])
    assert first.refusal is not None
    assert first.refusal.code == "missing_first_chunk"
    assert driver.feed(2, whole[2]) == Normalised()


def test_dialect_and_envelope_are_checked() -> None:
    """An unknown dialect, another dialect's bytes, and a change on the way each have a name."""
    unknown = Driver().feed(0, BEGIN, dialect="telepathy").refusal
    foreign = Driver().feed(0, BEGIN, dialect="anthropic").refusal
    driver = Driver()
    driver.feed(0, BEGIN)
    changed = driver.feed(1, fragment("{}"), dialect="mistral")
    assert unknown is not None
    assert foreign is not None
    assert changed.refusal is not None
    codes = [unknown.code, foreign.code, changed.refusal.code]
    assert codes == ["unknown_dialect", "not_that_dialect", "envelope_changed"]
    assert [event.body for _, event in changed.events] == [CallAborted("identity_conflict")]


def test_a_cancelled_stream_never_completes_its_calls() -> None:
    """Its reader left: the calls that are open end as cancelled."""
    driver = Driver()
    driver.feed(0, BEGIN)
    driver.feed(1, fragment("{}"))
    said = driver.feed(2, StreamClosed(cancelled=True))
    assert ResponseEnded("cancelled") in [event.body for _, event in said.events]


def test_an_ended_response_is_forgotten_after_the_linger_and_a_silent_one_after_the_idle_time() -> (
    None
):
    """Log time decides, so every replay forgets at the same record."""
    driver = Driver()
    for number, body in enumerate(bodies()):
        driver.feed(number, body)
    driver.feed(0, BEGIN, b"acme/req_2/resp_2")
    driver.now_ms += LINGER_MS - 1
    driver.feed(0, BEGIN, b"acme/req_3/resp_3")
    assert driver.feed(5, FINISH) == Normalised()
    driver.now_ms += LINGER_MS
    again = driver.feed(6, FINISH).refusal
    assert again is not None
    assert again.code == "missing_first_chunk"
    assert driver.fold.open_count == 2
    driver.now_ms += IDLE_MS
    driver.feed(0, BEGIN, b"acme/req_4/resp_4")
    assert driver.fold.open_count == 1


def test_a_response_that_lives_for_too_long_is_closed_and_pins_nothing() -> None:
    """Its calls expire at the same age; the low-water mark may move on."""
    driver = Driver()
    driver.feed(0, BEGIN)
    number = 0
    for _ in range(LIFE_MS // IDLE_MS * 2):
        number += 1
        driver.now_ms += IDLE_MS // 2
        driver.feed(number, fragment(" "))
    assert driver.fold.open_count == 0
    assert driver.feed(number + 1, fragment(" ")).events == []
    assert driver.fold.low_water(driver.offset + 1).offset == driver.offset


def test_more_open_responses_than_the_bound_are_refused_by_name() -> None:
    """Memory is bounded; what is refused can be sent again under another response id."""
    driver = Driver()
    driver.fold = ResponseFold(responses_max=1)
    driver.feed(0, BEGIN)
    refused = driver.feed(0, BEGIN, b"acme/req_2/resp_2").refusal
    assert refused is not None
    assert refused.code == "too_many_responses"


def test_more_records_than_the_bound_abort_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each record of an open response costs memory."""
    monkeypatch.setattr(normalise, "CHUNKS_MAX", 2)
    driver = Driver()
    driver.feed(0, BEGIN)
    driver.feed(1, fragment("{"))
    said = driver.feed(2, fragment("}"))
    assert said.refusal is not None
    assert said.refusal.code == "too_many_chunks"
    assert [event.body for _, event in said.events] == [CallAborted("too_many_fragments")]


def test_the_keys_response_id_names_a_response_that_the_wire_does_not_name() -> None:
    """Two tries of one request must not share their calls' keys."""
    keys: set[str] = set()
    for response_id in ("try_1", "try_2"):
        said = Driver().feed(
            0,
            JsonChunk(
                b'{"contentBlockStart":{"contentBlockIndex":0,"start":'
                b'{"toolUse":{"toolUseId":"tooluse_1","name":"refund"}}}}'
            ),
            f"acme/req_1/{response_id}".encode(),
            dialect="bedrock-converse",
        )
        keys |= {key.response_id for key, _ in said.events}
    assert keys == {"try_1", "try_2"}
