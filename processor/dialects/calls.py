"""The calls of one response: their numbering, and how they end. Shared by every dialect.

Rules:
    A call is on the wire from its first trace on, and among our events from the moment when its id
    and its tool are both known; until then its fragments are held, within bounds.
    `seq` counts the events of one call from 0 without holes, whatever happens to other calls.
    A contradiction aborts every call that it could concern; an aborted call gets no more fragments.
    `ResponseEnded` goes once to every call that has appeared, aborted ones too: it ends the key.
    A response id that the wire never told is written `~`; so are the ids that we have to make up,
    which always begin with it.
"""

from typing import Final, Literal, NamedTuple

from processor.core._record import record
from processor.core.events import (
    ArgumentsDelta,
    ArgumentsDone,
    ArgumentsFormat,
    Body,
    CallAborted,
    CallStarted,
    ResponseEnded,
    ResponseOutcome,
    StreamEvent,
)
from processor.core.identity import CallKey, IdentityError, call_key, checked_id
from processor.core.limits import ARGUMENTS_BYTES_CEILING
from processor.dialects.adapter import TooManyCalls
from processor.dialects.fields import Chunk, Malformed, is_name
from processor.dialects.surrogates import SurrogateJoiner, Unpaired, encode_whole
from processor.dialects.usage import COUNTERS_MAX, counters

#: Calls of one response; more are no plan of a model but a fault.
CALLS_MAX: Final = 1_000
#: What is held back for calls that have not begun, and copies that wait, per response.
HELD_CHARACTERS_MAX: Final = 4 * 1024 * 1024
HELD_TEXTS_MAX: Final = 65_536
#: Stands for a response id that the wire does not have; our own call ids begin with it.
NO_ID: Final = "~"


class KeyedEvent(NamedTuple):
    """An event and the call that it belongs to."""

    key: CallKey
    event: StreamEvent


@record
class Origin:
    """What is known of a response before its first chunk. Ids are checked by the maker.

    `response_id` names the response when the wire does not.
    """

    tenant: str
    request_id: str
    dialect: str
    response_id: str = NO_ID


_State = Literal["held", "open", "aborted", "ended"]


class CallSlot:
    """One call of a response, from its first trace on the wire to its end."""

    __slots__ = (
        "_calls",
        "_fallback_id",
        "_held",
        "_joiner",
        "_key",
        "_seq",
        "_state",
        "arguments_format",
        "call_id",
        "doom",
        "item_id",
        "output_index",
        "tool",
    )

    def __init__(self, calls: "Calls", fallback_id: str) -> None:
        self._calls = calls
        self._fallback_id = fallback_id
        self._key: CallKey | None = None
        self._seq = 0
        self._state: _State = "held"
        self._held: list[str] = []
        self._joiner = SurrogateJoiner()
        self.call_id: str | None = None
        self.tool: str | None = None
        self.item_id: str | None = None
        self.output_index: int | None = None
        #: None until the wire tells it; a call that begins without is `json`.
        self.arguments_format: ArgumentsFormat | None = None
        #: Reason by which the call is aborted as soon as it appears.
        self.doom: str | None = None

    @property
    def is_alive(self) -> bool:
        """True while nothing has refused or ended the call."""
        return self._state in ("held", "open")

    @property
    def has_begun(self) -> bool:
        """True once the call is among our events."""
        return self._key is not None

    def bind(self, call_id: str | None, tool: str | None) -> None:
        """Learn what is not known yet. With both known the call begins; a taken id is a conflict."""
        if self.call_id is None and call_id is not None:
            owner = self._calls.owner(call_id)
            if owner is not None:
                owner.abort("identity_conflict")
                if self._key is None:
                    self._drop()
                return
            self.call_id = call_id
            self._calls.claim(call_id, self)
        if self.tool is None and tool is not None:
            self.tool = tool
        if self._state == "held" and self.call_id is not None and self.tool is not None:
            self._begin()

    def bind_made_up_id(self) -> None:
        """For a form that has no ids at all: the call goes by the name that we give it."""
        self.bind(self._fallback_id, None)

    def append(self, text: str) -> None:
        """The next fragment of the arguments. An empty one is no event."""
        if not text:
            return
        if self._state == "held":
            if self._calls.hold(len(text)):
                self._held.append(text)
            else:
                self.abort("too_large")
        elif self._state == "open":
            try:
                fragment = self._joiner.join(text)
            except Unpaired:
                self.abort("invalid_utf8")
                return
            if fragment:
                self._emit(ArgumentsDelta(fragment))

    def finish(self, copy: str | None = None) -> None:
        """The call's own end, or one more final copy of it. A call that has not begun has none."""
        if self._state != "open":
            return
        if self._joiner.waits:
            self.abort("invalid_utf8")
        elif copy is None:
            self._emit(ArgumentsDone())
        elif len(copy) > ARGUMENTS_BYTES_CEILING:
            self.abort("too_large")
        else:
            try:
                whole = encode_whole(copy)
            except Unpaired:
                self.abort("invalid_utf8")
                return
            self._emit(ArgumentsDone(whole))

    def abort(self, reason: str) -> None:
        """Refuse the call by a reason of the closed list; the first one stands."""
        if not self.is_alive:
            return
        if self._state == "held":
            self._appear()
        self._let_go()
        self._emit(CallAborted(reason))
        self._leave("aborted")

    def end(self, outcome: ResponseOutcome, detail: str | None = None) -> None:
        """The response's end, once."""
        if self._state == "held":
            self.abort("missing_call_id" if self.call_id is None else "tool_name_missing")
        if self._state != "ended":
            self._emit(ResponseEnded(outcome, detail))
            self._leave("ended")

    def _begin(self) -> None:
        held = self._held
        self._let_go()
        is_sound = self._appear()
        self._state = "open"
        reason = self.doom or self._calls.poison
        if not is_sound:
            self.abort("malformed_event")
        elif reason is not None:
            self.abort(reason)
        for text in held:
            self.append(text)

    def _appear(self) -> bool:
        """Make the key and start the call; False when its id or its tool can be none."""
        calls, tool = self._calls, self.tool
        key = calls.key_of(self.call_id or self._fallback_id)
        self._key = key or calls.key_of(self._fallback_id)
        named = tool is not None and is_name(tool)
        if self._key is not None and tool is not None and named:
            self._emit(
                CallStarted(
                    *self._key,
                    tool=tool,
                    dialect=calls.origin.dialect,
                    item_id=self.item_id,
                    output_index=self.output_index,
                    model=calls.model,
                    arguments_format=self.arguments_format or "json",
                )
            )
        return key is not None and (named or tool is None)

    def _drop(self) -> None:
        """Never appear: the key is another call's. One that has appeared has a key, and an end."""
        self._let_go()
        self._leave("ended")

    def _leave(self, state: _State) -> None:
        self._state = state
        self._calls.alive.pop(self, None)

    def _let_go(self) -> None:
        self._calls.let_go(sum(map(len, self._held)), len(self._held))
        self._held = []

    def _emit(self, body: Body) -> None:
        if self._key is None:
            return
        self._calls.emit(self._key, StreamEvent(self._seq, body))
        self._seq += 1


class Calls:
    """The calls of one response, and the events that wait to be taken."""

    def __init__(self, origin: Origin, model: str | None) -> None:
        self.origin = origin
        self.model = model
        #: As the wire told it first.
        self.response_id: str | None = None
        #: Reason by which every call that still begins is refused.
        self.poison: str | None = None
        self.ended = False
        #: How the response ended, by what ended it first.
        self.outcome: ResponseOutcome | None = None
        self.slots: list[CallSlot] = []
        #: Those of them that nothing has refused or ended.
        self.alive: dict[CallSlot, None] = {}
        #: As far as they came; at most `COUNTERS_MAX` names.
        self.counters: dict[str, int] = {}
        self._current_id: str | None = None
        self._keyed_without_id = False
        self._by_id: dict[str, CallSlot] = {}
        self._held_characters = 0
        self._held_texts = 0
        self._events: list[KeyedEvent] = []

    def take(self) -> list[KeyedEvent]:
        """The events since the last time."""
        events, self._events = self._events, []
        return events

    def emit(self, key: CallKey, event: StreamEvent) -> None:
        """Put one event out."""
        self._events.append(KeyedEvent(key, event))

    # --- what the wire says of the response ----------------------------------------------------

    def see_model(self, model: object) -> None:
        """Take the wire's name of the model, unless one is known or it can be no name."""
        if self.model is None and isinstance(model, str) and is_name(model):
            self.model = model

    def see_usage(self, usage: Chunk) -> None:
        """Take the counters of a usage object; of the response's names the first ones are kept."""
        for name, value in counters(usage).items():
            if name in self.counters or len(self.counters) < COUNTERS_MAX:
                self.counters[name] = value

    def see_response_id(self, response_id: str | None) -> None:
        """Bind the response id. Another one later refuses what is open and what still begins.

        Raises: `Malformed` for what can be no id; every call is refused then.
        """
        if response_id is None or response_id == self._current_id:
            return
        try:
            checked_id("response_id", response_id)
        except IdentityError:
            self.refuse_all("malformed_event")
            raise Malformed from None
        if self._current_id is not None or self._keyed_without_id:
            self.refuse_all("response_id_changed")
        self._current_id = response_id
        if self.response_id is None:
            self.response_id = response_id

    def key_of(self, call_id: str) -> CallKey | None:
        """The key of a call of this response; None when the id can be none."""
        if self._current_id is None:
            self._keyed_without_id = True
        origin = self.origin
        response_id = self._current_id or origin.response_id
        try:
            return call_key(origin.tenant, origin.request_id, response_id, call_id)
        except IdentityError:
            return None

    # --- the calls -----------------------------------------------------------------------------

    def open(self, fallback_id: str) -> CallSlot:
        """A new call. `fallback_id` names it if the wire never does. Raises: `TooManyCalls`."""
        if len(self.slots) >= CALLS_MAX:
            raise TooManyCalls
        slot = CallSlot(self, NO_ID + fallback_id)
        self.slots.append(slot)
        self.alive[slot] = None
        return slot

    def owner(self, call_id: str) -> CallSlot | None:
        """The call that has this id."""
        return self._by_id.get(call_id)

    def claim(self, call_id: str, slot: CallSlot) -> None:
        """The id is this call's from now on."""
        self._by_id[call_id] = slot

    def abort_all(self, reason: str) -> None:
        """Refuse every call that is alive."""
        for slot in list(self.alive):
            slot.abort(reason)

    def refuse_all(self, reason: str) -> None:
        """Refuse every call that is alive, and every one that still begins."""
        self.abort_all(reason)
        self.poison = self.poison or reason

    def end_all(self, outcome: ResponseOutcome, detail: str | None = None) -> None:
        """The response is over, for every call that has not ended."""
        self.outcome = self.outcome or outcome
        for slot in self.slots:
            slot.end(outcome, detail)
        self.ended = True

    def hold(self, characters: int, texts: int = 1) -> bool:
        """Take room for held texts; False when the response has not that much left."""
        is_over = self._held_characters + characters > HELD_CHARACTERS_MAX
        if is_over or self._held_texts + texts > HELD_TEXTS_MAX:
            return False
        self._held_characters += characters
        self._held_texts += texts
        return True

    def let_go(self, characters: int, texts: int) -> None:
        """Give the room of held texts back."""
        self._held_characters -= characters
        self._held_texts -= texts
