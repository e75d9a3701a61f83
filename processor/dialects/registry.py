"""Every dialect by its name; the names are public and stable."""

from collections.abc import Callable
from typing import Final

from processor.core._record import record
from processor.core.errors import Misuse
from processor.dialects import (
    anthropic,
    bedrock_converse,
    cohere_v2,
    gemini,
    mistral,
    ollama,
    openai_chat,
    openai_responses,
)
from processor.dialects.adapter import Adapter
from processor.dialects.calls import Calls
from processor.dialects.fields import Chunk


@record
class Dialect:
    """How a dialect is read.

    `refusal` says why a first chunk is not of it, None when it is or could be. Where two dialects
    look alike, `is_told_apart` is True for a chunk, the first or a later one, that only this one
    sends.
    """

    adapter: Callable[[Calls], Adapter]
    refusal: Callable[[Chunk], str | None]
    is_told_apart: Callable[[Chunk], bool] | None = None


DIALECTS: Final[dict[str, Dialect]] = {
    "anthropic": Dialect(anthropic.AnthropicAdapter, anthropic.refusal),
    "bedrock-converse": Dialect(bedrock_converse.BedrockAdapter, bedrock_converse.refusal),
    "cohere-v2": Dialect(cohere_v2.CohereAdapter, cohere_v2.refusal),
    "gemini": Dialect(gemini.GeminiAdapter, gemini.refusal),
    "mistral": Dialect(mistral.MistralAdapter, mistral.refusal, mistral.is_told_apart),
    "ollama": Dialect(ollama.OllamaAdapter, ollama.refusal),
    "openai-chat": Dialect(openai_chat.ChatAdapter, openai_chat.refusal, openai_chat.is_told_apart),
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
    return narrowed([name for name, of in DIALECTS.items() if of.refusal(chunk) is None], chunk)


def narrowed(names: list[str], chunk: Chunk) -> list[str]:
    """Those of `names` that a chunk is proof of; all of them when it is proof of none."""
    tests = [(name, DIALECTS[name].is_told_apart) for name in names]
    return [name for name, test in tests if test is not None and test(chunk)] or names
