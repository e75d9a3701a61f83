"""What the driver's errors mean for the caller: one table."""

import pytest

from processor.core.errors import (
    Fenced,
    Indeterminate,
    InvariantViolated,
    Misuse,
    ProcessorError,
    Transient,
)
from processor.ledger.postgres import PostgresLedger, PostgresSettings
from processor.ledger.sqlstates import family_of


@pytest.mark.parametrize(
    ("sqlstate", "family"),
    [
        (None, Indeterminate),
        ("08006", Indeterminate),
        ("08007", Indeterminate),
        ("08001", Transient),
        ("40001", Transient),
        ("40P01", Transient),
        ("40003", Indeterminate),
        ("53300", Transient),
        ("55P03", Transient),
        ("57014", Transient),
        ("57P01", Indeterminate),
        ("57P03", Transient),
        ("25006", Transient),
        ("23514", Misuse),
        ("22001", Misuse),
        ("42501", Misuse),
        ("3D000", Misuse),
        ("TC001", Fenced),
        ("XX000", InvariantViolated),
    ],
)
def test_a_sqlstate_has_one_family(sqlstate: str | None, family: type[ProcessorError]) -> None:
    """Raised before the commit: nothing happened. No SQLSTATE: nobody knows."""
    assert family_of(sqlstate) is family


@pytest.mark.parametrize(
    "settings",
    [
        PostgresSettings("x", pool_min=3, pool_max=2),
        PostgresSettings("x", pool_min=0),
        PostgresSettings("x", lock_timeout_ms=20_000),
        PostgresSettings("x", lock_timeout_ms=0),
    ],
)
def test_settings_that_contradict_are_refused_at_construction(settings: PostgresSettings) -> None:
    """Before any connection."""
    with pytest.raises(Misuse):
        PostgresLedger(settings)
