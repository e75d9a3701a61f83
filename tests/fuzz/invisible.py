"""What damage to one chunk can do to a call, by dialect: the one table of what no wire can show.

Rules:
    `said` is what each chunk of the untouched stream adds to each call, `order` the chunks that
    arrived before the response's end. A call that completes has one of the texts given here.
    Responses numbers its events: a call has the text that was sent, or none.
    A call that comes whole with an id (Gemini, Ollama) as well. Without ids a lost call is not
    missed, a repeated one is one more, and places name other calls: any text that was sent.
    Elsewhere nothing is numbered: a fragment that is lost, repeated or moved is invisible where the
    rest still parses. Then a call has all of its own fragments that came, in the order in which
    they came, and nothing of another call.
    In a message of content blocks a call without any fragment has the arguments `{}`.
    Of a Gemini call in parts, a leaf alone is invisible, and chunks of one kind that change places:
    then a call has what came between a first part and the next end.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, cast

from tests.unit.dialects.wires import Chunk

NUMBERED: Final = frozenset({"openai-responses"})
WHOLE: Final = frozenset({"gemini", "ollama"})
BLOCKS: Final = frozenset({"anthropic", "bedrock-converse"})
NO_ID: Final = "~"

Said = Sequence[Mapping[str, str]]


def possible_texts(dialect: str, said: Said, order: Iterable[int]) -> dict[str, set[str]]:
    """By call id, the texts that a completed call may have; made-up ids share theirs."""
    found = {call_id: {text} for call_id, text in _joined(dialect, said).items()}
    if dialect not in NUMBERED | WHOLE:
        nothing = "{}" if dialect in BLOCKS else ""
        came = _joined(dialect, [said[at] for at in order])
        found = {call_id: {came.get(call_id) or nothing} for call_id in found}
    unnamed = {text for i, texts in found.items() if i.startswith(NO_ID) for text in texts}
    return {i: unnamed if i.startswith(NO_ID) else texts for i, texts in found.items()}


def _joined(dialect: str, said: Said) -> dict[str, str]:
    texts: dict[str, str] = {}
    for chunk in said:
        for call_id, text in chunk.items():
            before = "" if dialect in WHOLE else texts.get(call_id, "")
            texts[call_id] = before + text
    return texts


class Part(NamedTuple):
    """One chunk of Gemini calls in parts; `said` has its call, or the name and text of its leaf."""

    kind: Literal["head", "leaf", "close", "finish"]
    chunk: Chunk
    said: tuple[str, str] = ("", "")


def texts_of_parts(sent: Sequence[Part], order: Iterable[int]) -> dict[str, str]:
    """By call id, the one text that a completed call in parts may have."""
    arrived = [sent[at] for at in order]
    same_kinds = [part.kind for part in arrived] == [part.kind for part in sent]
    same_frame = [p for p in arrived if p.kind != "leaf"] == [p for p in sent if p.kind != "leaf"]
    return _built(arrived if same_kinds or same_frame else sent)


def _built(parts: Iterable[Part]) -> dict[str, str]:
    """What the leaves between each head and the next end make, by another builder."""
    found, call_id, members = dict[str, str](), "", dict[str, str]()
    for part in parts:
        if part.kind == "head":
            call_id, members = part.said[0], {}
        elif part.said[0]:
            name, text = part.said
            members[name] = members.get(name, "") + text
        if part.kind == "close":
            found[call_id] = compact(members)
    return found


def compact(value: object) -> str:
    """The text that a value must have, by another writer."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def has_parts(chunks: Iterable[Chunk]) -> bool:
    """True when a Gemini stream has a call in parts."""
    return any("partialArgs" in json.dumps(chunk) for chunk in chunks)


def shape_of(chunk: Chunk) -> str:
    """The kind of a Gemini chunk: which of its parts announce more, name a call, or have leaves."""
    shape = list[tuple[object, ...]]()
    for candidate in cast("list[Chunk]", chunk.get("candidates", [])):
        content = cast("Chunk", candidate.get("content", {}))
        for part in cast("list[Chunk]", content.get("parts", [])):
            call = cast("Chunk", part.get("functionCall", {}))
            shape.append((call.get("name"), call.get("willContinue"), bool(call.get("args"))))
        shape.append((candidate.get("finishReason"),))
    return repr(shape)
