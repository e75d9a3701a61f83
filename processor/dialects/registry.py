"""Every dialect by its name; the names are public and stable."""

from collections.abc import Callable
from typing import Final

from processor.core._record import record
from processor.core.errors import Misuse
from processor.dialects import openai_chat, openai_responses
from processor.dialects.adapter import Adapter
from processor.dialects.calls import Calls
from processor.dialects.fields import Chunk


@record
class Dialect:
    """How a dialect is read. `refusal` says why a first chunk is not of it, None when it is."""

    adapter: Callable[[Calls], Adapter]
    refusal: Callable[[Chunk], str | None]


DIALECTS: Final[dict[str, Dialect]] = {
    "openai-chat": Dialect(openai_chat.ChatAdapter, openai_chat.refusal),
    "openai-responses": Dialect(openai_responses.ResponsesAdapter, openai_responses.refusal),
}


def dialect_named(name: str) -> Dialect:
    """The dialect `name`. Raises: `Misuse` listing the known names."""
    found = DIALECTS.get(name)
    if found is None:
        raise Misuse(f"no such dialect; the known ones are {', '.join(DIALECTS)}")
    return found


def dialects_like(chunk: Chunk) -> list[str]:
    """Names of the dialects that a first chunk could be of."""
    return [name for name, dialect in DIALECTS.items() if dialect.refusal(chunk) is None]
