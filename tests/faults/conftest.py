"""Clusters of the fault tests: each started once, when the first test asks for it."""

from collections.abc import Iterator

import pytest

from tests.faults.cluster import Cluster


@pytest.fixture(scope="session")
def one_node() -> Iterator[Cluster]:
    """One real broker behind a proxy."""
    with Cluster(1) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def three_nodes() -> Iterator[Cluster]:
    """Three real brokers, three replicas of everything, two of which must answer."""
    with Cluster(3) as cluster:
        yield cluster
