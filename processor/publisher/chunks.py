"""What applications hold in their hands, as what the dialects read: a mapping or raw bytes.

Rules:
    No vendor's SDK is imported; its objects are known by the method that gives the wire form.
    Only what the wire carried is passed on (`exclude_unset`), under the wire's names (`by_alias`).
    Values stay what the SDK has read. The serializer's JSON form is not used: it writes a number
    that is none, such as an overflow, as null, and so makes other arguments of it.
    An event that wraps its chunk as `data`, as Mistral's does, is that chunk.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final, Protocol, TypeGuard, cast

from processor.publisher.langchain_chunks import as_chat_chunk, is_message, is_message_chunk

Mapped = Mapping[str, object]

#: What a server-sent event has beside its data.
_EVENT_FIELDS: Final = frozenset({"data", "event", "id", "retry"})


class _Pydantic(Protocol):
    def model_dump(
        self, *, mode: str, exclude_unset: bool, by_alias: bool, warnings: bool
    ) -> dict[str, object]: ...


class _ToDict(Protocol):
    def to_dict(self) -> dict[str, object]: ...


class UnreadableChunk(TypeError):
    """The object is of no kind that can be read; the text names its type only."""


def is_raw(chunk: object) -> TypeGuard[bytes | bytearray | memoryview]:
    """True for bytes as they came off the connection."""
    return isinstance(chunk, bytes | bytearray | memoryview)


def as_mapping(chunk: object) -> Mapped:
    """The wire form of one chunk. Cost: about 8 µs for an object of the OpenAI SDK.

    Warnings of the serializer are off: they quote the values that they warn about.

    Raises: `UnreadableChunk` for anything but a mapping, a pydantic model, a LangChain message
    chunk, or an object with `to_dict()`, and when the object's own method fails.
    """
    if isinstance(chunk, Mapping):
        return cast("Mapped", chunk)
    kind = type(chunk).__name__
    try:
        if is_message_chunk(chunk):
            return as_chat_chunk(chunk)
        if callable(getattr(chunk, "model_dump", None)) and not is_message(chunk):
            return _unwrapped(_dumped(cast("_Pydantic", chunk)))
        if callable(getattr(chunk, "to_dict", None)):
            return cast("_ToDict", chunk).to_dict()
    except Exception as e:  # noqa: BLE001 - foreign code, whose text may quote the chunk
        raise UnreadableChunk(f"a chunk of type {kind} failed with {type(e).__name__}") from None
    raise UnreadableChunk(f"a chunk of type {kind} cannot be read")


def _dumped(chunk: _Pydantic) -> dict[str, object]:
    dumped = chunk.model_dump(mode="python", exclude_unset=True, by_alias=True, warnings=False)
    _name_words(dumped)
    return dumped


def _name_words(of: dict[str, object]) -> None:
    """Put words in place of an SDK's enumerations; what a dump holds is nobody else's."""
    for name, member in of.items():
        kind = type(member)
        if kind is str or member is None:
            continue
        if kind is dict:
            _name_words(cast("dict[str, object]", member))
        elif kind is list:
            for element in cast("list[object]", member):
                if type(element) is dict:
                    _name_words(cast("dict[str, object]", element))
        elif isinstance(member, Enum):
            of[name] = member.value


def _unwrapped(dumped: dict[str, object]) -> Mapped:
    data = dumped.get("data")
    if isinstance(data, Mapping) and dumped.keys() <= _EVENT_FIELDS:
        return cast("Mapped", data)
    return dumped
