"""The release gate: when a finished call may be given out, and what its tool demands.

Rules:
    `read_only` and `idempotent` tools may be released at the call's own terminal event; every other
    class waits for the response's clean end, because some servers close a cut call as if complete.
    A tool that nobody listed is `at_most_once`.
"""

from collections.abc import Callable
from typing import Final, Protocol

from processor.core._record import record
from processor.core.outcomes import EffectClass

EARLY_CLASSES: Final[frozenset[EffectClass]] = frozenset({"read_only", "idempotent"})


@record
class ToolRule:
    """What the catalogue says of one tool, as far as the assembler must know.

    `validate` takes the parsed arguments and answers None, or a detail without content such as
    `/amount: type`. With `empty_arguments_allowed` an empty text means `{}` for this tool.
    """

    effect_class: EffectClass = "at_most_once"
    empty_arguments_allowed: bool = False
    validate: Callable[[object], str | None] | None = None


UNLISTED: Final = ToolRule()


class Rules(Protocol):
    """Where the fold looks up a tool; `digest` names the version of the catalogue, if any."""

    @property
    def digest(self) -> str | None:
        """Digest of the catalogue that every verdict made by it carries."""
        ...

    def rule(self, tool: str) -> ToolRule:
        """The rule of `tool`; `UNLISTED` when nobody listed it. Must be pure."""
        ...


class NoCatalogue:
    """Every tool is unlisted: effect class `at_most_once`, no schema."""

    digest: str | None = None

    def rule(self, tool: str) -> ToolRule:
        """The same rule for every tool."""
        del tool
        return UNLISTED


def may_release_early(effect_class: EffectClass, *, wait_for_response: bool) -> bool:
    """True when the class may leave at the call's own end; `wait_for_response` makes all wait."""
    return not wait_for_response and effect_class in EARLY_CLASSES
