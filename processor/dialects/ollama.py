"""Ollama's native chat stream: one JSON object per line.

Rules (ollama `api/types.go`, `server/routes.go`, `docs/api.md`; ollama-python `_types.py`):
    A call comes whole in one entry, also in the line that ends the response. Its id names it; the
    older servers send none, and there the call's ordinal is all that names it.
    The arguments are an object, so their text is ours; without arguments it is `{}`.
    An id that comes again with the same tool and text is a repeat, with anything else a conflict.
    Nothing ends one call: the line with `done` true ends all of them and the response. Only its
    `done_reason` `stop` is a success; without a reason the server lost its runner.
    There is no response id, and no number: a line that cannot be read refuses the whole response.
"""

from typing import ClassVar, Final

from processor.core.events import ResponseOutcome
from processor.dialects.calls import Calls
from processor.dialects.fields import (
    Chunk,
    Malformed,
    id_or_none,
    name_or_none,
    number_or_none,
    object_or_none,
    objects,
    text_or_none,
    vendor_word,
)
from processor.dialects.usage import CounterNames
from processor.dialects.whole_calls import WholeCalls, begin

_OUTCOME_OF_REASON: Final[dict[str | None, ResponseOutcome]] = {
    "stop": "completed",
    "length": "truncated",
    None: "stream_ended",
}
#: Only these count tokens; the other numbers of the last line are times.
_COUNTERS: Final = ("prompt_eval_count", "eval_count")


def refusal(chunk: Chunk) -> str | None:
    """Why a first chunk is not of this dialect; None when it is."""
    if isinstance(chunk.get("error"), str):
        return None
    if not isinstance(chunk.get("done"), bool):
        return "the first line has no done"
    if "message" not in chunk:
        return "the first line has no message, so it is not of /api/chat"
    return None


class OllamaAdapter:
    """The adapter of one response."""

    counter_names: ClassVar[CounterNames] = CounterNames(
        input_tokens=("prompt_eval_count",),
        output_tokens=("eval_count",),
        total_tokens=(),
        cached_input_tokens=(),
        reasoning_tokens=(),
    )

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._whole = WholeCalls()

    def observe(self, chunk: Chunk) -> None:
        """One line: an error first, then its calls, then whether it is the last."""
        calls = self._calls
        calls.see_model(chunk.get("model"))
        if chunk.get("error"):
            calls.abort_all("stream_error")
            calls.end_all("failed")
            return
        done = chunk.get("done")
        if not (done is None or isinstance(done, bool)):
            raise Malformed
        for entry in objects(object_or_none(chunk, "message") or {}, "tool_calls"):
            self._observe_call(entry)
        if done:
            calls.see_usage({name: chunk.get(name) for name in _COUNTERS})
            self._end(text_or_none(chunk, "done_reason"))

    def damaged(self) -> None:
        """What was lost may have been a call, or the end of all."""
        self._calls.refuse_all("malformed_event")

    def sentinel(self) -> None:
        """Not of this dialect: an end of input."""
        self.end(cancelled=False)

    def end(self, *, cancelled: bool) -> None:
        """No line has ended the response."""
        self._calls.end_all("cancelled" if cancelled else "stream_ended")

    def _observe_call(self, entry: Chunk) -> None:
        function = object_or_none(entry, "function")
        if function is None:
            raise Malformed
        call_id, tool = id_or_none(entry, "id"), name_or_none(function, "name")
        index, arguments = number_or_none(function, "index"), function.get("arguments")
        owner = None if call_id is None else self._calls.owner(call_id)
        if owner is not None:
            self._whole.repeat(owner, tool, arguments)
            return
        ordinal = len(self._calls.slots)
        slot = self._calls.open(f"call:{ordinal}")
        slot.output_index = ordinal if index is None else index
        begin(slot, call_id, tool)
        self._whole.fill(slot, arguments)

    def _end(self, reason: str | None) -> None:
        outcome = _OUTCOME_OF_REASON.get(reason, "unknown")
        if outcome != "completed":
            self._calls.end_all(outcome, vendor_word(reason))
            return
        for slot in list(self._calls.alive):
            slot.finish()
        self._calls.end_all(outcome)
