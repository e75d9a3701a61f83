"""Hypothesis strategies of every record that the codec reads and writes, within its rules."""

from typing import TypeVar, get_args

from hypothesis import strategies as st

from processor.codec.fields import (
    DETAIL_BYTES_MAX,
    DIALECT_BYTES_MAX,
    LONG_MAX,
    MODEL_BYTES_MAX,
    REASON_BYTES_MAX,
    SEQ_MAX,
    TOOL_BYTES_MAX,
)
from processor.core.canonical import sha256
from processor.core.events import (
    SEQ_NONE,
    ArgumentsDelta,
    ArgumentsDone,
    ArgumentsFormat,
    Body,
    CallAborted,
    CallExpired,
    CallStarted,
    ExpiryCause,
    ResponseEnded,
    ResponseOutcome,
    StreamEvent,
)
from processor.core.evidence import Evidence, FinalCopy
from processor.core.identity import CallKey
from processor.core.limits import ID_BYTES_MAX
from processor.core.outcomes import CallCompleted, CallRejected, EffectClass, Release
from processor.core.reasons import REASONS, STAGE_OF
from processor.core.results import CallResult, ResultState, Retry
from processor.core.usage import ResponseUsage

T = TypeVar("T")

NO_CONTROL = st.characters(exclude_categories=["Cs"], exclude_characters="\x7f").filter(
    lambda character: character >= " "
)
ANY_TEXT = st.characters(exclude_categories=["Cs"])
ID_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
NOTHING = frozenset({"", "None", "null", "undefined"})


def texts(bytes_max: int) -> st.SearchStrategy[str]:
    """Texts that `check_text` accepts."""
    return st.text(NO_CONTROL, min_size=1, max_size=bytes_max).filter(
        lambda text: len(text.encode()) <= bytes_max
    )


def ids(*, excluded: str = "") -> st.SearchStrategy[str]:
    """Ids by the rules of the call key."""
    return st.text(ID_CHARACTERS, min_size=1, max_size=ID_BYTES_MAX).filter(
        lambda text: (
            len(text.encode()) <= ID_BYTES_MAX
            and text not in NOTHING
            and not set(excluded) & set(text)
        )
    )


def maybe(strategy: st.SearchStrategy[T]) -> st.SearchStrategy[T | None]:
    """The same, or None."""
    return st.none() | strategy


KEYS = st.builds(CallKey, ids(), ids(excluded=":"), ids(), ids())
ITEM_IDS = texts(ID_BYTES_MAX).filter(lambda text: text not in NOTHING)
INDEXES = st.integers(0, SEQ_MAX)
OFFSETS = st.integers(0, LONG_MAX)
OUTCOMES = st.sampled_from(get_args(ResponseOutcome))


def starts(key: CallKey) -> st.SearchStrategy[CallStarted]:
    """Starts of the call `key`."""
    return st.builds(
        CallStarted,
        st.just(key.tenant),
        st.just(key.request_id),
        st.just(key.response_id),
        st.just(key.call_id),
        tool=texts(TOOL_BYTES_MAX),
        dialect=texts(DIALECT_BYTES_MAX),
        item_id=maybe(ITEM_IDS),
        output_index=maybe(INDEXES),
        model=maybe(texts(MODEL_BYTES_MAX)),
        arguments_format=st.sampled_from(get_args(ArgumentsFormat)),
    )


def bodies(key: CallKey, fragments: st.SearchStrategy[bytes]) -> st.SearchStrategy[Body]:
    """Every body but `CallExpired`."""
    return st.one_of(
        st.builds(ArgumentsDelta, fragments),
        starts(key),
        st.builds(ArgumentsDone, maybe(fragments)),
        st.builds(ResponseEnded, OUTCOMES, maybe(texts(DETAIL_BYTES_MAX))),
        st.builds(CallAborted, texts(REASON_BYTES_MAX)),
    )


AT = maybe(st.integers(-LONG_MAX - 1, LONG_MAX).filter(bool))
EXPIRIES = st.builds(
    CallExpired, st.sampled_from(get_args(ExpiryCause)), st.integers(SEQ_NONE, SEQ_MAX)
)


def events(
    key: CallKey, fragments: st.SearchStrategy[bytes] | None = None
) -> st.SearchStrategy[StreamEvent]:
    """Every event of the call `key`."""
    counted = bodies(key, st.binary(max_size=300) if fragments is None else fragments)
    return st.one_of(
        st.builds(StreamEvent, st.integers(0, SEQ_MAX), counted, AT),
        st.builds(StreamEvent, st.just(SEQ_NONE), EXPIRIES, AT),
    )


KEYED_EVENTS = KEYS.flatmap(lambda key: st.tuples(st.just(key.encode()), events(key)))

EVIDENCE = st.builds(
    Evidence,
    topic=texts(249),
    partition=INDEXES,
    first_offset=OFFSETS,
    last_offset=OFFSETS,
    events=OFFSETS,
    fragments=OFFSETS,
    duplicates_dropped=OFFSETS,
    started_at_ms=OFFSETS,
    ended_at_ms=OFFSETS,
    final_copy=st.sampled_from(get_args(FinalCopy)),
    outcome=maybe(OUTCOMES),
)


@st.composite
def completed(draw: st.DrawFn) -> CallCompleted:
    """Completed calls whose digest is that of their arguments."""
    arguments = draw(st.binary(max_size=300))
    return CallCompleted(
        key=draw(KEYS),
        tool=draw(texts(TOOL_BYTES_MAX)),
        dialect=draw(texts(DIALECT_BYTES_MAX)),
        arguments=arguments,
        arguments_format=draw(st.sampled_from(get_args(ArgumentsFormat))),
        arguments_sha256=sha256(arguments),
        canonical_sha256=draw(maybe(st.binary(min_size=32, max_size=32))),
        effect_class=draw(st.sampled_from(get_args(EffectClass))),
        release=draw(st.sampled_from(get_args(Release))),
        evidence=draw(EVIDENCE),
        item_id=draw(maybe(ITEM_IDS)),
        output_index=draw(maybe(INDEXES)),
        model=draw(maybe(texts(MODEL_BYTES_MAX))),
        catalogue_digest=draw(maybe(texts(128))),
    )


@st.composite
def rejected(draw: st.DrawFn) -> CallRejected:
    """Rejected calls with a reason of the closed list."""
    reason = draw(st.sampled_from(sorted(REASONS)))
    return CallRejected(
        key=draw(KEYS),
        reason=reason,
        stage=STAGE_OF[reason],
        detail=draw(st.text(ANY_TEXT)),
        evidence=draw(EVIDENCE),
        tool=draw(maybe(texts(TOOL_BYTES_MAX))),
        dialect=draw(maybe(texts(DIALECT_BYTES_MAX))),
        item_id=draw(maybe(ITEM_IDS)),
        output_index=draw(maybe(INDEXES)),
        model=draw(maybe(texts(MODEL_BYTES_MAX))),
    )


RESULTS = st.builds(
    CallResult,
    key=KEYS,
    tool=texts(TOOL_BYTES_MAX),
    state=st.sampled_from(get_args(ResultState)),
    retry=st.sampled_from(get_args(Retry)),
    body=maybe(st.binary(max_size=300)),
    error_class=maybe(texts(256)),
    replayed=st.booleans(),
)

USAGES = st.builds(
    ResponseUsage,
    tenant=ids(),
    request_id=ids(excluded=":"),
    response_id=ids(),
    dialect=texts(DIALECT_BYTES_MAX),
    model=maybe(texts(MODEL_BYTES_MAX)),
    input_tokens=maybe(OFFSETS),
    output_tokens=maybe(OFFSETS),
    total_tokens=maybe(OFFSETS),
    cached_input_tokens=maybe(OFFSETS),
    reasoning_tokens=maybe(OFFSETS),
    provider=st.dictionaries(texts(64), OFFSETS, max_size=5),
)
