"""What the group's view reads of the broker's bytes, and that it survives a silent broker."""

import socket
import struct

import pytest

from processor.runtime.errors import Unreachable
from processor.runtime.group_view import KafkaGroupView, assigned_partitions
from processor.runtime.settings import RuntimeSettings


def assignment(*topics: tuple[str, list[int]]) -> bytes:
    """As a group leader writes it: version 0, no user data."""
    parts = [struct.pack(">hi", 0, len(topics))]
    for name, partitions in topics:
        parts.append(struct.pack(">h", len(name)) + name.encode())
        parts.append(struct.pack(f">i{len(partitions)}i", len(partitions), *partitions))
    return b"".join(parts) + struct.pack(">i", -1)


def test_only_partitions_of_the_topic_count() -> None:
    """A member may have been given another topic's as well."""
    given = assignment(("other", [7, 8]), ("events", [0, 2]))
    assert assigned_partitions(given, "events") == {0, 2}
    assert assigned_partitions(given, "event") == set()


def test_an_assignment_that_is_empty_or_cut_has_no_partitions() -> None:
    """A member that waits for its assignment has an empty one."""
    whole = assignment(("events", [0, 1]))
    for size in range(len(whole) - 8):
        assert assigned_partitions(whole[:size], "events") == set()


def test_a_broker_that_takes_connections_and_never_answers_is_unreachable() -> None:
    """The question ends with an error of ours."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        view = KafkaGroupView(RuntimeSettings(address, "events"), ask_s=0.2)
        with pytest.raises(Unreachable):
            view.owned()
