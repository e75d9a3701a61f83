"""Ask an HTTP endpoint what became of a key: a GET that only reads.

Rules:
    Success means that it happened, 404 and 410 that it did not, everything else that nobody knows; with
    a member to read, its text decides.
"""

import json
from typing import cast
from urllib.parse import quote

from processor.executor.context import ToolContext
from processor.executor.effect_key import effect_key
from processor.executor.http_answer import judged, result_of
from processor.executor.http_tool import Answer, HttpClient, Sent
from processor.executor.results import WithoutBody
from processor.executor.signals import Happened, NotHappened
from processor.policy.transports import KEY_PLACEHOLDER, Reconcile


class HttpLookup:
    """See the module; `ask` is the tool's lookup."""

    def __init__(self, client: HttpClient, stated: Reconcile) -> None:
        self._client = client
        self._stated = stated

    async def ask(self, context: ToolContext) -> Happened | NotHappened | None:
        """The other side's answer. Raises: `NotSent`, `OutcomeUnknown`."""
        key = effect_key(context.tenant, context.idempotency_key)
        answer = await self._client.send(
            "GET",
            self._client.url.replace(KEY_PLACEHOLDER, quote(key, safe="")),
            sent=Sent(),
            limit_s=context.attempt_deadline_s,
        )
        if answer.status in {404, 410}:
            return NotHappened()
        if judged(answer.status) != "done":
            return None
        return self._read(answer)

    def _read(self, answer: Answer) -> Happened | NotHappened | None:
        result = (
            WithoutBody("result_too_large")
            if answer.body is None
            else result_of(answer.body, answer.headers.get("content-type", ""))
        )
        if self._stated.member is None:
            return Happened(result)
        text = _member(answer.body or b"", self._stated.member)
        if text in self._stated.happened:
            return Happened(result)
        return NotHappened() if text in self._stated.not_happened else None


def _member(body: bytes, name: str) -> str | None:
    try:
        value: object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    found = cast("dict[str, object]", value).get(name) if isinstance(value, dict) else None
    return found if isinstance(found, str) else None
