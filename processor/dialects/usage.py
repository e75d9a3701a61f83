"""What a response used, read from the wire as it stands.

Rules:
    Totals, not increments: where a counter comes again, the last value wins.
    Absent is not zero; a stream without one usable counter has no usage at all.
    Only whole numbers count: times that some servers put beside the counters are fractions.
"""

from collections.abc import Iterator, Mapping
from typing import Final, cast

from processor.core._record import record
from processor.core.usage import ResponseUsage
from processor.dialects.fields import Chunk, has_control, is_number

COUNTERS_MAX: Final = 256
COUNTER_NAME_CHARACTERS_MAX: Final = 64
DEPTH_MAX: Final = 4
_COUNTER_MAX: Final = 2**63 - 1


@record
class CounterNames:
    """Where a dialect keeps each of our counters: paths of the wire, the first present one wins."""

    input_tokens: tuple[str, ...]
    output_tokens: tuple[str, ...]
    total_tokens: tuple[str, ...]
    cached_input_tokens: tuple[str, ...]
    reasoning_tokens: tuple[str, ...]


def counters(of: Chunk) -> dict[str, int]:
    """Every counter of a usage object by its path, such as `prompt_tokens_details.cached_tokens`."""
    found: dict[str, int] = {}
    for path, value in _walk(of, "", 1):
        if len(found) >= COUNTERS_MAX:
            break
        found[path] = value
    return found


def _walk(of: Chunk, prefix: str, depth: int) -> Iterator[tuple[str, int]]:
    for name, value in of.items():
        if len(name) > COUNTER_NAME_CHARACTERS_MAX or not name.isascii() or has_control(name):
            continue
        if is_number(value) and 0 <= value <= _COUNTER_MAX:
            yield prefix + name, value
        elif isinstance(value, Mapping) and depth < DEPTH_MAX:
            yield from _walk(cast("Chunk", value), f"{prefix}{name}.", depth + 1)


def response_usage(
    identity: tuple[str, str, str, str],
    model: str | None,
    names: CounterNames,
    provider: dict[str, int],
) -> ResponseUsage:
    """The record of a response; `identity` is tenant, request id, response id and dialect."""

    def first(paths: tuple[str, ...]) -> int | None:
        return next((provider[path] for path in paths if path in provider), None)

    return ResponseUsage(
        *identity,
        model=model,
        input_tokens=first(names.input_tokens),
        output_tokens=first(names.output_tokens),
        total_tokens=first(names.total_tokens),
        cached_input_tokens=first(names.cached_input_tokens),
        reasoning_tokens=first(names.reasoning_tokens),
        provider=dict(provider),
    )
