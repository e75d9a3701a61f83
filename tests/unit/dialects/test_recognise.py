"""Whose stream it is, when nobody says it: a right name, or none."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from processor.dialects.recognise import EVENTS_MAX, Unsure, recognise, recognise_bytes
from processor.dialects.registry import DIALECTS, dialects_like
from tests.golden.replay import FIXTURES
from tests.unit.dialects.cohere_events import BEGIN
from tests.unit.dialects.wires import Chunk, chat, entry, lifecycle, sse

STREAMS = sorted(
    path for path in (FIXTURES / "streams").glob("*/*") if not path.name.endswith(".expected.json")
)
#: First events by which each dialect is certain.
FIRST: dict[str, Chunk] = {
    "anthropic": {"type": "message_start", "message": {"id": "msg_0001"}},
    "bedrock-converse": {"messageStart": {"role": "assistant"}},
    "cohere-v2": BEGIN,
    "gemini": {"candidates": [{"content": {"parts": []}}]},
    "ollama": {"message": {"role": "assistant", "content": ""}, "done": False},
    "mistral": {**chat(entry(0, "aBcD12345", "x", "{}")), "id": "cmpl-0001", "p": "abc"},
    "openai-chat": chat(),
    "openai-responses": {**lifecycle("created", "in_progress"), "sequence_number": 0},
}
#: A chunk of the Chat form that says nothing of its server.
BARE: Chunk = {"id": "cmpl-0001", "choices": [{"index": 0, "delta": {}}]}


def dialect_of(path: Path) -> str:
    """The dialect that a fixture is of."""
    text = (path.parent / f"{path.name.partition('.')[0]}.expected.json").read_text()
    return cast("Mapping[str, str]", json.loads(text))["dialect"]


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_captured_stream_gets_its_own_name_or_none(path: Path) -> None:
    """Whatever is registered: never another's name, and none only to what looks alike."""
    right = dialect_of(path)
    found = recognise_bytes(path.read_bytes(), is_whole=True)
    if isinstance(found, str):
        assert found == right
    elif right in DIALECTS:
        assert right in found.like or found.why.startswith("all that came is an error")


def test_only_mistral_and_errors_are_not_recognised() -> None:
    """Refusing everything would pass the test above."""
    left = {
        path.parent.name
        for path in STREAMS
        if dialect_of(path) in DIALECTS
        and isinstance(found := recognise_bytes(path.read_bytes(), is_whole=True), Unsure)
        and found.like
    }
    assert left == {"mistral"}


@pytest.mark.parametrize("name", DIALECTS)
def test_the_first_event_is_enough(name: str) -> None:
    """What follows does not matter."""
    others = [chunk for other, chunk in FIRST.items() if other != name]
    assert recognise([FIRST[name], *others]) == name


def test_look_alikes_are_told_apart_by_a_later_event_or_not_at_all() -> None:
    """Padding with an id of nine is Mistral's; either alone is not."""
    padded: Chunk = {**BARE, "p": "abc"}
    nine = {**chat(entry(0, "aBcD12345", "x", "{}")), "id": "cmpl-0001"}
    found = recognise([BARE, padded, nine])
    assert isinstance(found, Unsure)
    assert found.like == ("mistral", "openai-chat")
    assert "mistral or openai-chat, and nothing in it tells these apart" in found.why
    assert recognise([BARE, {**nine, "p": "abc"}]) == "mistral"
    assert recognise([BARE, {**BARE, "system_fingerprint": None}]) == "openai-chat"
    assert recognise([chat(), {**nine, "p": "abc"}]) == "openai-chat"
    assert recognise([{**chat(entry(0, "aBcD12345", "x", "{}")), "p": "abc"}]) == "openai-chat"


@pytest.mark.parametrize("broken", [{"choices": 1}, {"choices": [{"delta": 1}]}, {"choices": [1]}])
def test_a_chunk_of_another_shape_tells_nothing(broken: Chunk) -> None:
    """The adapter will refuse it; here it is passed over."""
    found = recognise([BARE, {**broken, "p": "abc"}])
    assert isinstance(found, Unsure)


def test_an_error_names_nobody() -> None:
    """Alone it refuses, in front of an event it is passed over."""
    errors: list[Chunk] = [{"error": {"code": 500}}, {"error": "x"}, {"object": "error"}]
    for error in errors:
        found = recognise([error])
        assert isinstance(found, Unsure)
        assert (found.like, "an error" in found.why) == ((), True)
        assert recognise([error, BEGIN]) == "cohere-v2"


def test_what_no_dialect_accepts_is_refused_with_the_known_names() -> None:
    """The text quotes nothing of the input."""
    found = recognise([{"canary": "canary"}])
    assert isinstance(found, Unsure)
    assert all(name in found.why for name in DIALECTS)
    assert "canary" not in found.why


@pytest.mark.parametrize(
    "data", [b"", b"hello\n", b"data: [DONE]\n\n", b"data: {\n\n", b"[", b"7\n"]
)
def test_without_an_event_nothing_is_said(data: bytes) -> None:
    """No bytes, no frames, no JSON objects."""
    found = recognise_bytes(data, is_whole=True)
    assert isinstance(found, Unsure)
    assert found.why == "it holds no event of a model stream"


def test_only_so_many_events_are_looked_at() -> None:
    """A long stream of look-alikes is not read to its end."""
    taken = list[int]()

    def endless() -> object:
        while True:
            taken.append(1)
            yield BARE

    assert isinstance(recognise(cast("list[Chunk]", endless())), Unsure)
    assert len(taken) == EVENTS_MAX


def test_a_last_line_without_an_end_counts_when_nothing_follows() -> None:
    """The beginning of a line is no event."""
    line = json.dumps(BEGIN).encode()
    assert recognise_bytes(line, is_whole=True) == "cohere-v2"
    assert isinstance(recognise_bytes(line, is_whole=False), Unsure)
    assert recognise_bytes(sse([BEGIN]), is_whole=False) == "cohere-v2"


def test_a_refusal_names_the_likely_dialect_by_the_same_rule() -> None:
    """One that is told apart stands alone."""
    assert dialects_like(chat()) == ["openai-chat"]
    assert dialects_like(BARE) == ["mistral", "openai-chat"]
