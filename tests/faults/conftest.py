"""Clusters of the fault tests: each started once, when the first test asks for it."""

from collections.abc import Iterator

import pytest

from tests.faults.cluster import Cluster
from tests.faults.disk import small_disk


@pytest.fixture(scope="session")
def one_node() -> Iterator[Cluster]:
    """One real broker behind a proxy, on a disk that can be filled."""
    with small_disk() as disk, Cluster(1, disk=disk) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def three_nodes() -> Iterator[Cluster]:
    """Three real brokers, three replicas of everything, two of which must answer."""
    with Cluster(3) as cluster:
        yield cluster
