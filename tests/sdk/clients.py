"""The official SDKs, each pointed at the local server; their streams are handed out unchanged.

Rules:
    The modules are loaded by name, so their types are `Any`: what the SDKs promise to a type
    checker is not what is tested, and following all of their sources takes minutes.
    One client of each kind serves all tests, and is closed: an open socket is a warning, and fails.
    `loses` names what the SDK never passes on, in any response.
"""

import importlib
import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any, ClassVar

import pytest

MESSAGES = [{"role": "user", "content": "hello"}]


def module(name: str) -> Any:
    """An SDK's module, untyped."""
    return importlib.import_module(name)


class Sdk:
    """One way to stream with one SDK, made for the address of a server."""

    name: ClassVar[str]
    dialect: ClassVar[str]
    package: ClassVar[str]
    loses: ClassVar[frozenset[str]] = frozenset()
    #: The counters that it passes on; None for all of the wire.
    counters: ClassVar[frozenset[str] | None] = None
    has_async: ClassVar[bool] = True
    #: Warnings of its own making, by the beginning of their text and their category.
    warns: ClassVar[tuple[str, ...]] = ()

    def __init__(self, url: str) -> None:
        self.url = url

    def open(self, model: str) -> Iterable[object]:
        """Ask for the stream of `model`."""
        raise NotImplementedError

    async def open_async(self, model: str) -> AsyncIterable[object]:
        """The same, for asyncio."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the sync client."""

    async def aclose(self) -> None:
        """Close the async client."""


class _OpenAI(Sdk):
    package = "openai"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        openai = module("openai")
        asked = {"api_key": "unused", "base_url": f"{url}/v1", "max_retries": 0}
        self._client: Any = openai.OpenAI(**asked)
        self._async_client: Any = openai.AsyncOpenAI(**asked)

    def close(self) -> None:
        """Close the sync client."""
        self._client.close()

    async def aclose(self) -> None:
        """Close the async client."""
        await self._async_client.close()


class OpenAIChat(_OpenAI):
    """`client.chat.completions.create(stream=True)`."""

    name = "openai-chat"
    dialect = "openai-chat"

    def open(self, model: str) -> Iterable[object]:
        """Ask for the stream."""
        chunks: Iterable[object] = self._client.chat.completions.create(
            model=model, messages=MESSAGES, stream=True
        )
        return chunks

    async def open_async(self, model: str) -> AsyncIterable[object]:
        """Ask for the stream."""
        chunks: AsyncIterable[object] = await self._async_client.chat.completions.create(
            model=model, messages=MESSAGES, stream=True
        )
        return chunks


class OpenAIResponses(_OpenAI):
    """`client.responses.create(stream=True)`."""

    name = "openai-responses"
    dialect = "openai-responses"

    def open(self, model: str) -> Iterable[object]:
        """Ask for the stream."""
        events: Iterable[object] = self._client.responses.create(
            model=model, input="hello", stream=True
        )
        return events

    async def open_async(self, model: str) -> AsyncIterable[object]:
        """Ask for the stream."""
        events: AsyncIterable[object] = await self._async_client.responses.create(
            model=model, input="hello", stream=True
        )
        return events


class Anthropic(Sdk):
    """`client.messages.create(stream=True)`: the raw events."""

    name = "anthropic"
    dialect = "anthropic"
    package = "anthropic"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        anthropic = module("anthropic")
        asked = {"api_key": "unused", "base_url": url, "max_retries": 0}
        self._client: Any = anthropic.Anthropic(**asked)
        self._async_client: Any = anthropic.AsyncAnthropic(**asked)

    def open(self, model: str) -> Iterable[object]:
        """Ask for the stream."""
        events: Iterable[object] = self._client.messages.create(
            model=model, max_tokens=9, messages=MESSAGES, stream=True
        )
        return events

    async def open_async(self, model: str) -> AsyncIterable[object]:
        """Ask for the stream."""
        events: AsyncIterable[object] = await self._async_client.messages.create(
            model=model, max_tokens=9, messages=MESSAGES, stream=True
        )
        return events

    def close(self) -> None:
        """Close the sync client."""
        self._client.close()

    async def aclose(self) -> None:
        """Close the async client."""
        await self._async_client.close()


class AnthropicHelper(Anthropic):
    """`client.messages.stream()`: the raw events, and the helper's own between them."""

    name = "anthropic-helper"

    def open(self, model: str) -> Iterator[object]:
        """Ask for the stream."""
        with self._client.messages.stream(model=model, max_tokens=9, messages=MESSAGES) as events:
            yield from events

    async def open_async(self, model: str) -> AsyncIterable[object]:
        """Ask for the stream."""
        return self._events(model)

    async def _events(self, model: str) -> AsyncIterator[object]:
        asked = {"model": model, "max_tokens": 9, "messages": MESSAGES}
        async with self._async_client.messages.stream(**asked) as events:
            async for event in events:
                yield event


class Gemini(Sdk):
    """`client.models.generate_content_stream()`."""

    name = "google-genai"
    dialect = "gemini"
    package = "google-genai"
    warns = ("Inheritance class AiohttpClientSession:DeprecationWarning",)

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._client: Any = module("google.genai").Client(
            api_key="unused", http_options={"base_url": url}
        )

    def open(self, model: str) -> Iterable[object]:
        """Ask for the stream."""
        chunks: Iterable[object] = self._client.models.generate_content_stream(
            model=model, contents="hello"
        )
        return chunks

    async def open_async(self, model: str) -> AsyncIterable[object]:
        """Ask for the stream."""
        chunks: AsyncIterable[object] = await self._client.aio.models.generate_content_stream(
            model=model, contents="hello"
        )
        return chunks

    def close(self) -> None:
        """Close the sync client."""
        self._client.close()

    async def aclose(self) -> None:
        """Close the async client."""
        await self._client.aio.aclose()


class Mistral(Sdk):
    """`client.chat.stream()`."""

    name = "mistralai"
    dialect = "mistral"
    package = "mistralai"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._client: Any = module("mistralai.client").Mistral(api_key="unused", server_url=url)

    def open(self, model: str) -> Iterable[object]:
        """Ask for the stream."""
        events: Iterable[object] = self._client.chat.stream(model=model, messages=MESSAGES)
        return events

    async def open_async(self, model: str) -> AsyncIterable[object]:
        """Ask for the stream."""
        events: AsyncIterable[object] = await self._client.chat.stream_async(
            model=model, messages=MESSAGES
        )
        return events

    def close(self) -> None:
        """Close the sync client."""
        self._client.__exit__(None, None, None)

    async def aclose(self) -> None:
        """Close the async client."""
        await self._client.__aexit__(None, None, None)


class Cohere(Sdk):
    """`ClientV2.chat_stream()`."""

    name = "cohere"
    dialect = "cohere-v2"
    package = "cohere"

    def __init__(self, url: str) -> None:
        super().__init__(url)
        cohere, httpx = module("cohere"), module("httpx")
        self._http: Any = httpx.Client()
        self._async_http: Any = httpx.AsyncClient()
        asked = {"api_key": "unused", "base_url": url}
        self._client: Any = cohere.ClientV2(**asked, httpx_client=self._http)
        self._async_client: Any = cohere.AsyncClientV2(**asked, httpx_client=self._async_http)

    def open(self, model: str) -> Iterable[object]:
        """Ask for the stream."""
        events: Iterable[object] = self._client.chat_stream(model=model, messages=MESSAGES)
        return events

    async def open_async(self, model: str) -> AsyncIterable[object]:
        """Ask for the stream."""
        events: AsyncIterable[object] = self._async_client.chat_stream(
            model=model, messages=MESSAGES
        )
        return events

    def close(self) -> None:
        """Close the sync client."""
        self._http.close()

    async def aclose(self) -> None:
        """Close the async client."""
        await self._async_http.aclose()


class Bedrock(Sdk):
    """`client.converse_stream()["stream"]`; boto3 has no asyncio."""

    name = "boto3"
    dialect = "bedrock-converse"
    package = "boto3"
    has_async = False

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._client: Any = module("boto3").client(
            "bedrock-runtime",
            region_name="us-east-1",
            endpoint_url=url,
            aws_access_key_id="unused",
            aws_secret_access_key="unused",
            config=module("botocore.config").Config(retries={"max_attempts": 0}),
        )

    def open(self, model: str) -> Iterable[object]:
        """Ask for the stream."""
        messages = [{"role": "user", "content": [{"text": "hello"}]}]
        events: Iterable[object] = self._client.converse_stream(modelId=model, messages=messages)[
            "stream"
        ]
        return events

    def close(self) -> None:
        """Close the sync client."""
        self._client.close()


class Ollama(Sdk):
    """`client.chat(stream=True)`. Its types have no field for the id of a call."""

    name = "ollama"
    dialect = "ollama"
    package = "ollama"
    loses = frozenset({"call_id"})

    def __init__(self, url: str) -> None:
        super().__init__(url)
        ollama = module("ollama")
        self._client: Any = ollama.Client(host=url)
        self._async_client: Any = ollama.AsyncClient(host=url)

    def open(self, model: str) -> Iterable[object]:
        """Ask for the stream."""
        lines: Iterable[object] = self._client.chat(model=model, messages=MESSAGES, stream=True)
        return lines

    async def open_async(self, model: str) -> AsyncIterable[object]:
        """Ask for the stream."""
        lines: AsyncIterable[object] = await self._async_client.chat(
            model=model, messages=MESSAGES, stream=True
        )
        return lines

    def close(self) -> None:
        """Close the sync client."""
        self._client.close()

    async def aclose(self) -> None:
        """Close the async client."""
        await self._async_client.close()


class LangChain(Sdk):
    """`ChatOpenAI.stream()`: message chunks, whose id is of a run, with the model at the end."""

    name = "langchain"
    dialect = "openai-chat"
    package = "langchain-openai"
    loses = frozenset({"response_id", "model"})
    counters = frozenset(
        {
            "prompt_tokens",
            "completion_tokens",
            "total_tokens",
            "prompt_tokens_details.cached_tokens",
            "completion_tokens_details.reasoning_tokens",
        }
    )

    def __init__(self, url: str) -> None:
        super().__init__(url)
        httpx = module("httpx")
        self._http: Any = httpx.Client()
        self._async_http: Any = httpx.AsyncClient()

    def open(self, model: str) -> Iterable[object]:
        """Ask for the stream."""
        chunks: Iterable[object] = self._model(model).stream("hello")
        return chunks

    async def open_async(self, model: str) -> AsyncIterable[object]:
        """Ask for the stream."""
        chunks: AsyncIterable[object] = self._model(model).astream("hello")
        return chunks

    def close(self) -> None:
        """Close the sync client."""
        self._http.close()

    async def aclose(self) -> None:
        """Close the async client."""
        await self._async_http.aclose()

    def _model(self, model: str) -> Any:
        return module("langchain_openai").ChatOpenAI(
            model=model,
            base_url=f"{self.url}/v1",
            api_key="unused",
            max_retries=0,
            stream_usage=True,
            http_client=self._http,
            http_async_client=self._async_http,
        )


class LiteLLM(Sdk):
    """`litellm.completion(stream=True)`. `model` is what was asked for, not what answered."""

    name = "litellm"
    dialect = "openai-chat"
    package = "litellm"
    loses = frozenset({"model"})
    warns = (
        "Accessing the 'model_:DeprecationWarning",
        "Pydantic serializer warnings:UserWarning",
        "Items? '.* on TypedDict class:UserWarning",
    )

    def __init__(self, url: str) -> None:
        super().__init__(url)
        # Documented; without it the import fetches a list of prices.
        os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
        self._litellm: Any = module("litellm")
        self._litellm.suppress_debug_info = True

    def open(self, model: str) -> Iterable[object]:
        """Ask for the stream."""
        chunks: Iterable[object] = self._litellm.completion(**self._asked(model))
        return chunks

    async def open_async(self, model: str) -> AsyncIterable[object]:
        """Ask for the stream."""
        chunks: AsyncIterable[object] = await self._litellm.acompletion(**self._asked(model))
        return chunks

    def _asked(self, model: str) -> dict[str, object]:
        return {
            "model": f"openai/{model}",
            "api_base": self.url,
            "api_key": "unused",
            "messages": MESSAGES,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_retries": 0,
        }


SDKS: tuple[type[Sdk], ...] = (
    OpenAIChat,
    OpenAIResponses,
    Anthropic,
    AnthropicHelper,
    Gemini,
    Mistral,
    Cohere,
    Bedrock,
    Ollama,
    LangChain,
    LiteLLM,
)


def allowed_warnings(kind: type[Sdk]) -> list[pytest.MarkDecorator]:
    """Marks that let pass what one SDK warns of itself, and nothing else."""
    return [pytest.mark.filterwarnings(f"ignore:{text}") for text in kind.warns]
