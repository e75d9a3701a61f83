"""Where a real SDK does not give the verdicts of the raw bytes, and why: the whole list.

Rules:
    A fixture that is not listed must agree to the byte; an entry that is not needed fails.
    `raises`: the SDK raises, and nothing completes. `unseen`: it drops the calls, and there is no
    event of any. `refused`: a proven call is refused. `reason`: refused for another reason.
    `identity`: the same arguments under other ids or positions. `unproven`: completed with the
    arguments of the wire, which the wire itself does not prove; only the raw bytes show that.
"""

from typing import Final

from tests.sdk.published import Kind

Known = dict[str, tuple[Kind, str]]

_ERROR: Final[tuple[Kind, str]] = ("raises", "the error on the wire becomes an exception")
_HELPER_PARSES: Final[tuple[Kind, str]] = ("raises", "the helper parses arguments as they grow")
_NO_FUNCTION: Final[tuple[Kind, str]] = ("raises", "an entry without a function is not foreseen")
_ONE_CHOICE: Final[tuple[Kind, str]] = ("refused", "choices are not told apart; nobody owns them")
_NO_LEGACY: Final[tuple[Kind, str]] = ("unseen", "the form before tool calls is no chunk of a call")
_NO_NAME: Final[tuple[Kind, str]] = ("unseen", "an event without its event field is dropped")
_NO_END: Final[tuple[Kind, str]] = ("raises", "a stream without a finish_reason is an error")
_CHOICE_END: Final = "only the first choice keeps its finish_reason"

DIFFERENCES: Final[dict[str, Known]] = {
    "openai-chat": {
        "openai-chat/error-chunk": _ERROR,
        "openai-compatible/error-then-done": _ERROR,
        "openai-compatible/openrouter-error-mid-stream": _ERROR,
    },
    "openai-responses": {"openai-responses/error-event-nested": _ERROR},
    "anthropic": {
        "anthropic/error-event": _ERROR,
        "anthropic-compatible/no-event-field": _NO_NAME,
    },
    "anthropic-helper": {
        "anthropic/error-event": _ERROR,
        "anthropic/invalid-json-eager": _HELPER_PARSES,
        "anthropic/unicode-lone-surrogates-across-deltas": _HELPER_PARSES,
        "anthropic-compatible/first-fragment-lost": _HELPER_PARSES,
        "anthropic-compatible/no-event-field": _NO_NAME,
    },
    "google-genai": {"gemini/error-chunk": _ERROR},
    "boto3": {"bedrock-converse/exception-mid-input": _ERROR},
    "ollama": {"ollama/error-line": _ERROR},
    "langchain": {
        "openai-chat/custom-tool": _NO_FUNCTION,
        "openai-chat/error-chunk": _ERROR,
        "openai-chat/legacy-function-call": _NO_LEGACY,
        "openai-chat/legacy-function-call-truncated": _NO_LEGACY,
        "openai-chat/two-choices": _ONE_CHOICE,
        "openai-chat/two-choices-one-truncated": _ONE_CHOICE,
        "openai-compatible/arguments-object": ("raises", "its chunk holds arguments as text only"),
        "openai-compatible/error-then-done": _ERROR,
        "openai-compatible/groq-x-groq-error": ("reason", "the vendor's error field is dropped"),
        "openai-compatible/id-then-name": _NO_FUNCTION,
        "openai-compatible/openrouter-error-mid-stream": _ERROR,
        "openai-compatible/response-id-per-chunk": ("unproven", "the response id is dropped"),
    },
    "litellm": {
        "openai-chat/error-chunk": _ERROR,
        "openai-chat/stream-cut": _NO_END,
        "openai-chat/two-choices": ("refused", _CHOICE_END),
        "openai-chat/two-choices-one-truncated": ("reason", _CHOICE_END),
        "openai-compatible/arguments-object": ("unproven", "an object is made a text"),
        "openai-compatible/error-then-done": _ERROR,
        "openai-compatible/finish-insufficient-system-resource": (
            "unproven",
            "a finish_reason that it does not know becomes stop, and then tool_calls",
        ),
        "openai-compatible/finish-missing": _NO_END,
        "openai-compatible/finish-on-every-chunk": (
            "unproven",
            "an early finish_reason is held back to the end",
        ),
        "openai-compatible/groq-x-groq-error": _NO_END,
        "openai-compatible/id-then-name": (
            "refused",
            "a chunk that its types refuse is emptied, with a line in its log",
        ),
        "openai-compatible/index-missing": ("identity", "a missing index becomes a position"),
        "openai-compatible/openrouter-error-mid-stream": _ERROR,
    },
}

#: What completes although the wire does not prove it: the arguments are still those of the wire.
UNPROVEN_ARGUMENTS: Final[dict[tuple[str, str], bytes]] = {
    ("langchain", "openai-compatible/response-id-per-chunk"): b'{"order_id":"ORDER-1001"}',
    ("litellm", "openai-compatible/arguments-object"): b'{"order_id": "ORDER-1001"}',
    ("litellm", "openai-compatible/finish-insufficient-system-resource"): (
        b'{"order_id":"ORDER-1001"}'
    ),
    ("litellm", "openai-compatible/finish-on-every-chunk"): b'{"order_id":"ORDER-1001"}',
}

_NOT_REACHED: Final = "the exception or the drop comes before the counters"
_COUNTED: Final = "LiteLLM counts tokens itself where the wire has no usage of the usual form"
_RENAMED: Final = "the vendor's own counters are moved to other names"

#: Responses whose counters differ, by SDK. The others have all counters that the SDK keeps.
USAGE: Final[dict[str, dict[str, str]]] = {
    "anthropic": {"anthropic-compatible/no-event-field": _NOT_REACHED},
    "anthropic-helper": {
        "anthropic/invalid-json-eager": _NOT_REACHED,
        "anthropic/unicode-lone-surrogates-across-deltas": _NOT_REACHED,
        "anthropic-compatible/first-fragment-lost": _NOT_REACHED,
        "anthropic-compatible/no-event-field": _NOT_REACHED,
    },
    "langchain": {
        "openai-chat/custom-tool": _NOT_REACHED,
        "openai-compatible/arguments-object": _NOT_REACHED,
        "openai-compatible/id-then-name": _NOT_REACHED,
        "openai-compatible/groq-whole-calls": "usage in a vendor's own field is dropped",
    },
    "litellm": {
        "openai-chat/usage-absent": _COUNTED,
        "openai-compatible/deepseek-keepalive-and-reasoning": _RENAMED,
        "openai-compatible/finish-missing": _NOT_REACHED,
        "openai-compatible/groq-whole-calls": _COUNTED,
        "openai-compatible/no-done-marker": _COUNTED,
        "openai-compatible/response-id-per-chunk": _COUNTED,
    },
}
