"""What a SQLSTATE means for the caller: one table."""

from typing import Final

from processor.core.errors import (
    Fenced,
    Indeterminate,
    InvariantViolated,
    Misuse,
    ProcessorError,
    Transient,
)

# SQLSTATE, or its class of two characters -> what the caller must do. An error with a SQLSTATE of the
# first two kinds was raised before the commit, so nothing happened. A lost connection has no SQLSTATE
# or one of class 08, and says nothing about the commit. The longest prefix wins.
_FAMILY_BY_SQLSTATE: Final[dict[str, type[ProcessorError]]] = {
    "08": Indeterminate,
    "08001": Transient,
    "08004": Transient,
    "22": Misuse,
    "23": Misuse,
    "25006": Transient,
    "28": Misuse,
    "3D": Misuse,
    "3F": Misuse,
    "40": Transient,
    "40003": Indeterminate,
    "42": Misuse,
    "53": Transient,
    "55P03": Transient,
    "57014": Transient,
    "57P01": Indeterminate,
    "57P02": Indeterminate,
    "57P03": Transient,
    "TC001": Fenced,
    "TC002": Misuse,
}

#: Schema, function, table, column or type that is not there.
_OLD_SCHEMA: Final = frozenset({"3F000", "42883", "42P01", "42703", "42704"})

#: One sentence for each family.
ADVICE: Final[dict[type[ProcessorError], str]] = {
    Fenced: "another owner has taken the call over: the effect is rolled back",
    Indeterminate: "the connection was lost while a commit may have been under way",
    InvariantViolated: "the ledger refused in a way that this version does not know",
    Misuse: "the ledger refused the question: check migrations, rights and values",
    Transient: "the ledger did not act: ask again",
}


def family_of(sqlstate: str | None) -> type[ProcessorError]:
    """What the caller must do after this SQLSTATE; a lost connection has None."""
    if sqlstate is None:
        return Indeterminate
    for length in (5, 2):
        family = _FAMILY_BY_SQLSTATE.get(sqlstate[:length])
        if family is not None:
            return family
    return InvariantViolated


def advice_for(sqlstate: str | None) -> str:
    """One sentence for a person: what the error means and what to do."""
    if sqlstate in _OLD_SCHEMA:
        return "the ledger's schema is missing or older: run `toolcalls migrate`"
    return ADVICE[family_of(sqlstate)]
