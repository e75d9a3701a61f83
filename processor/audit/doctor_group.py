"""What is wrong with a group, its commits and the log it reads; pure.

Rules:
    What a start would refuse is found before it is tried, by the same function.
    A finding is about the assembler's group as it is now; a group that never ran is no finding of
    its commits.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from processor.audit.doctor_report import Diagnosed
from processor.audit.kafka_state import GroupState, LogState
from processor.audit.log_scan import CommittedOffset
from processor.core._record import record
from processor.core.assembly import FOLD_VERSION
from processor.runtime.errors import RestoreRefused
from processor.runtime.known_terms import KnownTerms
from processor.runtime.restore import Committed, LogEnds, TopicFacts, plan_start

#: Clocks of two machines under NTP are closer than this.
CLOCK_APART_MS: Final = 2_000


@record
class GroupFacts:
    """What is known of a group and of its topic."""

    name: str
    topic: str
    facts: TopicFacts
    state: GroupState
    committed: Mapping[int, CommittedOffset]
    logs: Mapping[int, LogState]


def judge_group(group: GroupFacts) -> Iterator[Diagnosed]:
    """Members against partitions."""
    name, state = group.name, group.state
    subject = f"group {name}"
    if not state.members:
        yield Diagnosed(
            "no_member",
            subject,
            f"nobody reads {group.topic}: the group has no member ({state.state.lower()})",
            "start `toolcalls run`; a new group needs --start earliest or latest",
        )
        return
    if state.state != "STABLE":
        return
    owned = [p for partitions in state.members.values() for p in partitions]
    orphans = sorted(set(range(group.facts.partitions)).difference(owned))
    if orphans:
        yield Diagnosed(
            "partitions_without_owner",
            subject,
            f"nobody owns the partitions {_some(orphans)} of {group.topic} in a stable group",
            "wait 10 s and ask again, the assembler mends it; if they stay, restart one process",
        )
    idle = sorted(member for member, partitions in state.members.items() if not partitions)
    if idle and len(state.members) > group.facts.partitions:
        yield Diagnosed(
            "more_members_than_partitions",
            subject,
            f"{len(state.members)} members, {group.facts.partitions} partitions: {_some(idle)} have"
            " nothing to do",
            "run fewer processes; partitions cannot be added while calls are open",
        )


def judge_commits(group: GroupFacts, terms: KnownTerms) -> Iterator[Diagnosed]:
    """What a start with these terms would refuse, partition by partition; the same text once."""
    if not group.committed:
        return
    seen: set[str] = set()
    for partition in range(group.facts.partitions):
        refusal = _refusal(group, partition, terms)
        if refusal is None:
            continue
        code, _, text = refusal.partition(": ")
        sentence, _, fix = text.partition(". ")
        if code == "catalogue_unknown" and code in seen:
            continue
        seen.add(code)
        yield Diagnosed(code, f"group {group.name}", sentence, fix or "see the text")


def _refusal(group: GroupFacts, partition: int, terms: KnownTerms) -> str | None:
    committed = group.committed.get(partition)
    log = group.logs[partition]
    offset, metadata = (-1, "") if committed is None else (committed.offset, committed.metadata)
    try:
        plan = plan_start(
            Committed(group.topic, partition, offset, metadata),
            LogEnds(log.first, log.high),
            group.facts,
            FOLD_VERSION,
            terms.today.mark,
            start=None,
            accept_reset=False,
        )
        if plan.former is not None:
            terms.known(plan.former)
    except RestoreRefused as e:
        return str(e)
    return None


def judge_clock(topic: str, newest_ms: int | None, now_ms: int) -> tuple[list[Diagnosed], str]:
    """This host's clock against the newest record that a broker stamped, and a note.

    Nothing is written, so the broker's clock is known only to have been at `newest_ms` at least.
    """
    if newest_ms is None:
        return [], f"clock: {topic} holds no record, so nothing shows the brokers' time"
    behind_ms = newest_ms - now_ms
    if behind_ms > CLOCK_APART_MS:
        found = Diagnosed(
            "clock_behind",
            "this host",
            f"the newest record of {topic} was stamped {behind_ms / 1000:.1f} s in this host's"
            " future",
            "mend the time service of this host, or of the broker that leads the partition",
        )
        return [found], f"clock: at least {behind_ms / 1000:.1f} s behind the brokers"
    return [], (
        f"clock: the newest record of {topic} is {max(0, -behind_ms) / 1000:.1f} s old, so this"
        " host's clock is ahead of the brokers by no more than that"
    )


def lag(group: GroupFacts) -> int:
    """Offsets behind the committed positions, control records included."""
    return sum(
        max(0, log.stable - max(log.first, group.committed[p].offset))
        for p, log in group.logs.items()
        if p in group.committed
    )


def _some(values: list[int] | list[str]) -> str:
    shown = ", ".join(str(value) for value in values[:10])
    return shown if len(values) <= 10 else f"{shown} and {len(values) - 10} more"
