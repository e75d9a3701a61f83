"""Every captured stream through every official SDK: the verdicts of the bytes, or none."""

import asyncio
from collections.abc import Iterable
from functools import cache

import pytest
from _pytest.mark import ParameterSet

from tests.golden.test_streams import NAMES, data_of, expected_of
from tests.sdk.clients import SDKS, Sdk, allowed_warnings
from tests.sdk.conftest import Opened
from tests.sdk.known import DIFFERENCES, UNPROVEN_ARGUMENTS, USAGE
from tests.sdk.published import (
    Told,
    bodies,
    difference,
    told_by,
    told_by_async,
    told_by_bytes,
)

DIALECT_OF = {name: expected_of(name)["dialect"] for name in NAMES}
#: Every stream of an SDK's dialect.
CASES = [(kind, name) for kind in SDKS for name in NAMES if DIALECT_OF[name] == kind.dialect]


def cases(of: Iterable[tuple[type[Sdk], str]]) -> list[ParameterSet]:
    """As parameters, with the warnings of each SDK's own making."""
    return [pytest.param(kind.name, name, marks=allowed_warnings(kind)) for kind, name in of]


def test_every_fixture_meets_an_sdk() -> None:
    """No dialect is left out, and the tables name nothing that is not tested."""
    assert {name for _, name in CASES} == set(NAMES)
    listed = {(sdk, name) for table in (DIFFERENCES, USAGE) for sdk in table for name in table[sdk]}
    assert listed <= {(kind.name, name) for kind, name in CASES}


@pytest.mark.parametrize(("name", "fixture"), cases(CASES))
def test_sync_objects_give_the_verdicts_of_the_bytes(name: str, fixture: str, sdk: Opened) -> None:
    """Objects as the SDK yields them, through `wrap`: equal to the bytes, or as `known` says."""
    of = sdk(name)
    check(of, fixture, told_by(of.dialect, of.open(model_of(fixture))))


@pytest.mark.parametrize(("name", "fixture"), cases(case for case in CASES if case[0].has_async))
def test_async_objects_give_the_verdicts_of_the_bytes(
    name: str, fixture: str, sdk: Opened, loop: asyncio.Runner
) -> None:
    """The same through the async client and the async publisher."""
    of = sdk(name)

    async def publish() -> Told:
        return await told_by_async(of.dialect, await of.open_async(model_of(fixture)))

    check(of, fixture, loop.run(publish()))


def check(of: Sdk, fixture: str, told: Told) -> None:
    """Equal, or different in exactly the way that is known, and never with other arguments."""
    raw = raw_of(fixture)
    found = difference(told, raw, of.loses)
    assert not told.faults, "a fault of the publisher"
    assert found == DIFFERENCES.get(of.name, {}).get(fixture, (None,))[0]
    assert {one.arguments for one in told.completed} <= {
        UNPROVEN_ARGUMENTS.get((of.name, fixture)),
        *(one.arguments for one in raw.completed),
    }
    if told.error is not None:
        assert not told.completed, "a call completed although the stream raised"
    if found is None and not of.loses:
        assert bodies(told) == bodies(raw)
    assert (kept(of, told) != kept(of, raw)) == (fixture in USAGE.get(of.name, {}))


@cache
def raw_of(fixture: str) -> Told:
    """What the bytes say."""
    return told_by_bytes(DIALECT_OF[fixture], data_of(fixture))


def kept(of: Sdk, told: Told) -> dict[str, int] | None:
    """The counters without those that the SDK never passes on."""
    if told.counters is None or of.counters is None:
        return told.counters
    return {name: told.counters[name] for name in told.counters.keys() & of.counters}


def model_of(fixture: str) -> str:
    """The model that the server answers with a fixture."""
    return fixture.replace("/", "--")
