"""Every captured stream: verdict, reason, exact text, ids, usage."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import cast

import pytest

from tests.golden.replay import FIXTURES, Expected, events_of, fold, matches, stream

#: Each folder, and how many streams it has: a lost file would make the tests pass by being empty.
FOLDERS = {
    "anthropic": 25,
    "anthropic-compatible": 4,
    "bedrock-converse": 14,
    "cohere-v2": 11,
    "mistral": 9,
    "gemini": 16,
    "ollama": 10,
    "openai-chat": 29,
    "openai-compatible": 43,
    "openai-responses": 27,
}
NAMES = sorted(
    f"{folder}/{path.name.removesuffix('.expected.json')}"
    for folder in FOLDERS
    for path in (FIXTURES / "streams" / folder).glob("*.expected.json")
)
#: Where a fixture leaves a choice, the policy of its `alternatives` that is ours, and why.
POLICY_OF = {
    "anthropic/stream-cut-before-message-stop": (
        "require message_stop",
        "without a catalogue every tool waits for the response's clean end",
    ),
    "cohere-v2/finish-error": (
        "gate on the whole response",
        "without a catalogue every tool waits for the response's clean end",
    ),
    "mistral/arguments-object": (
        "one object, serialised canonically",
        "the vendor's type allows an object; its one compact text is what we make of it",
    ),
    "openai-responses/stream-cut-after-call-done": (
        "gate on the whole response",
        "without a catalogue every tool waits for the response's clean end",
    ),
    "openai-responses/truncated-after-complete-call": (
        "gate on the whole response",
        "without a catalogue every tool waits for the response's clean end",
    ),
    "openai-compatible/index-always-zero": (
        "a new non-empty id opens a new call",
        "the id names a call, an index only leads to an id",
    ),
    "openai-compatible/index-missing": (
        "one id, whole call in one entry",
        "the only call of a choice is the only possible owner",
    ),
}
#: The fixture counts positions for a call whose wire has none; we make none up.
WITHOUT_INDEX = frozenset({"openai-compatible/index-missing"})
#: The fixture gives the buffer, which is empty; the wire says that the call has no arguments.
NO_ARGUMENTS = frozenset(
    {
        "anthropic/no-arguments",
        "anthropic/no-arguments-no-delta",
        "bedrock-converse/no-arguments",
    }
)
#: The wire's names of our counters for input, output and all tokens.
COUNTERS_OF = {
    "anthropic": ("input_tokens", "output_tokens", None),
    "bedrock-converse": ("inputTokens", "outputTokens", "totalTokens"),
    "cohere-v2": ("tokens.input_tokens", "tokens.output_tokens", None),
    "mistral": ("prompt_tokens", "completion_tokens", "total_tokens"),
    "gemini": ("promptTokenCount", "candidatesTokenCount", "totalTokenCount"),
    "ollama": ("prompt_eval_count", "eval_count", None),
    "openai-chat": ("prompt_tokens", "completion_tokens", "total_tokens"),
    "openai-responses": ("input_tokens", "output_tokens", "total_tokens"),
}


def expected_of(name: str) -> Expected:
    """What a fixture says of itself."""
    path = FIXTURES / "streams" / f"{name}.expected.json"
    return cast("Expected", json.loads(path.read_text()))


def data_of(name: str) -> bytes:
    """The bytes of a fixture."""
    path = FIXTURES / "streams" / f"{name}.sse"
    return (path if path.exists() else path.with_suffix(".jsonl")).read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_every_call_gets_the_verdict_of_its_fixture(name: str) -> None:
    """The calls are those of the fixture, or of the one alternative that POLICY_OF names."""
    expected = expected_of(name)
    outcomes = fold(events_of(expected["dialect"], data_of(name)))
    calls = expected["calls"]
    if name in POLICY_OF:
        assert not matches(outcomes, calls), "an entry of POLICY_OF that is not needed"
        policy = POLICY_OF[name][0]
        calls = next(a["calls"] for a in expected["alternatives"] if a["policy"] == policy)
    if name in WITHOUT_INDEX:
        assert [outcome.output_index for outcome in outcomes] == [None]
        calls = [{k: v for k, v in call.items() if k != "output_index"} for call in calls]
    if name in NO_ARGUMENTS:
        assert [call["arguments_text"] for call in calls] == [""]
        calls = [{**call, "arguments_text": "{}"} for call in calls]
    assert matches(outcomes, calls), outcomes


@pytest.mark.parametrize("name", NAMES)
def test_usage_is_the_wires_own(name: str) -> None:
    """Every whole counter of the wire is kept under its path, zeros too; absent stays absent."""
    expected = expected_of(name)
    response = stream(expected["dialect"])
    response.observe_bytes(data_of(name))
    response.end()
    usage = response.usage
    if expected["usage"] is None:
        assert usage is None
        return
    assert usage is not None
    assert usage.provider == flat(expected["usage"])
    assert usage.response_id == (response.response_id or "~")
    ours = (usage.input_tokens, usage.output_tokens, usage.total_tokens)
    assert ours == tuple(usage.provider.get(path or "") for path in COUNTERS_OF[usage.dialect])


def flat(of: Mapping[str, object], prefix: str = "") -> dict[str, int]:
    """Whole numbers by path."""
    found: dict[str, int] = {}
    for name, value in of.items():
        if isinstance(value, int):
            found[prefix + name] = value
        elif isinstance(value, Mapping):
            found |= flat(cast("Mapping[str, object]", value), f"{prefix}{name}.")
    return found


def test_all_fixtures_are_there() -> None:
    """A refresh must not lose any."""
    found = Counter(name.partition("/")[0] for name in NAMES)
    assert found == FOLDERS
