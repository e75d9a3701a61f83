"""Examination of the Kafka side: brokers, topics, rights, the group, its commits, the log.

Rules:
    Only questions, each with a time limit; what is denied or not answered is a finding, and what
    does not need it is asked all the same. When nobody answers at all, nothing further is asked.
    Rights are those of the credentials that ask; run it as the assembler's user to see the
    assembler's.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, TypeVar

from processor.audit.doctor_brokers import judge_brokers
from processor.audit.doctor_group import (
    GroupFacts,
    judge_clock,
    judge_commits,
    judge_group,
    lag,
)
from processor.audit.doctor_report import Diagnosed, Diagnosis
from processor.audit.kafka_state import BrokerState, Denied, KafkaState
from processor.audit.log_scan import LogScan
from processor.core._record import record
from processor.core.errors import ProcessorError
from processor.runtime.errors import Unreachable
from processor.runtime.kafka_admin import KafkaAdmin
from processor.runtime.known_terms import KnownTerms
from processor.runtime.restore import TopicFacts
from processor.runtime.settings import CommitSettings
from processor.runtime.topics import TopicDescription, TopicNames, TopicRole, check_topics

T = TypeVar("T")

REQUEST_TIMEOUT_S: Final = 5.0
#: A transaction that is open for longer is looked at: longer than the assembler's may last (8 s).
OPEN_LOOKS: Final = 22
_LOOK_S: Final = 0.5

#: What the assembler does with each topic.
ASSEMBLER_RIGHTS: Final[Mapping[TopicRole, frozenset[str]]] = {
    "events": frozenset({"READ", "WRITE", "DESCRIBE_CONFIGS"}),
    "completed": frozenset({"WRITE", "DESCRIBE_CONFIGS"}),
    "rejected": frozenset({"WRITE", "DESCRIBE_CONFIGS"}),
    "deadletter": frozenset({"WRITE", "DESCRIBE_CONFIGS"}),
    "checkpoints": frozenset({"READ", "WRITE", "DESCRIBE_CONFIGS"}),
}


def judge_rights(
    names: Mapping[TopicRole, str], operations: Mapping[str, frozenset[str] | None]
) -> Iterator[Diagnosed]:
    """What the assembler must do, and these credentials may not. None: the cluster does not say."""
    for role, name in names.items():
        allowed = operations.get(name)
        missing = ASSEMBLER_RIGHTS.get(role, frozenset[str]()) - (allowed or frozenset())
        if allowed is not None and missing:
            yield Diagnosed(
                "right_missing",
                name,
                f"these credentials may not {', '.join(sorted(missing))} on {name}, the assembler"
                " must",
                "give its user the rights of the README (Rights), or ask as that user",
            )


@record
class DoctorSettings:
    """What is examined. `looks` and `timeout_s` bound the time."""

    bootstrap: str
    topics: TopicNames
    group: str
    commit: CommitSettings
    call_life_ms: int
    timeout_s: float = REQUEST_TIMEOUT_S
    open_looks: int = OPEN_LOOKS


class KafkaDoctor:
    """One examination. `wall_ms` is this host's clock, epoch milliseconds."""

    def __init__(
        self,
        settings: DoctorSettings,
        terms: KnownTerms,
        wall_ms: Callable[[], int],
        on_step: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._terms = terms
        self._wall_ms = wall_ms
        self._on_step = on_step
        self._state = KafkaState(settings.bootstrap, request_timeout_s=settings.timeout_s)
        self._told = Diagnosis()
        self._pause = threading.Event()

    def examine(self) -> Diagnosis:
        """Ask everything. Cost: well below a second, and 11 s more while a transaction is open."""
        self._on_step("brokers")
        try:
            brokers = self._state.brokers()
        except ProcessorError as e:
            fix = "check the address, the listener and the credentials; is the broker up?"
            self._told.find_refusal(e, f"Kafka at {self._settings.bootstrap}", fix)
            return self._told
        self._examine_brokers(brokers)
        self._on_step("topics")
        topics = self._asked(lambda: self._examine_topics(len(brokers)), "topics") or {}
        self._on_step("rights")
        self._asked(lambda: self._examine_rights(list(topics)), "rights")
        events = topics.get(self._settings.topics.events)
        if events is not None:
            self._on_step("group and log")
            self._asked(lambda: self._examine_group(events), f"group {self._settings.group}")
        return self._told

    def _asked(self, ask: Callable[[], T], subject: str) -> T | None:
        """The answer, or None and a finding."""
        try:
            return ask()
        except ProcessorError as e:
            fix = "see the broker's log"
            if isinstance(e, Denied):
                fix = "give this user the right (README, Rights), or ask as another user"
            elif isinstance(e, Unreachable):
                fix = "ask again; if it stays, see the brokers' logs"
            self._told.find_refusal(e, subject, fix)
            return None

    def _examine_brokers(self, brokers: list[int]) -> None:
        found: list[BrokerState] = []
        for broker in brokers:
            state = self._asked(partial(self._state.broker_settings, broker), f"broker {broker}")
            if state is None:
                break
            found.append(state)
        self._told.extend(judge_brokers(found, self._settings.commit))
        self._told.note(f"brokers: {len(brokers)}")
        if any(state.settings.get("auto.create.topics.enable") == "true" for state in found):
            self._told.note(
                "brokers: topics are created by themselves; a misspelled name of another program"
                " makes a topic with wrong settings"
            )

    def _examine_topics(self, brokers_count: int) -> dict[str, TopicDescription]:
        settings = self._settings
        admin = KafkaAdmin(settings.bootstrap, request_timeout_s=settings.timeout_s)
        found = admin.describe(settings.topics.by_role().values())
        for finding in check_topics(
            settings.topics,
            found,
            brokers_count=brokers_count,
            call_life_ms=settings.call_life_ms,
        ):
            self._told.find(finding.code, finding.topic, finding.sentence, finding.fix)
        return found

    def _examine_rights(self, existing: list[str]) -> None:
        names = self._settings.topics.by_role()
        self._told.extend(judge_rights(names, self._state.topic_operations(existing)))

    def _examine_group(self, events: TopicDescription) -> None:
        settings, topic = self._settings, events.name
        partitions = list(range(events.partitions))
        logs = self._state.log_states(topic, partitions)
        state = self._state.group(settings.group, topic)
        with LogScan(settings.bootstrap) as scan:
            committed = scan.committed(settings.group, topic)
        facts = TopicFacts(events.topic_id, events.partitions)
        group = GroupFacts(settings.group, topic, facts, state, committed, logs)
        self._told.extend(judge_group(group))
        self._told.extend(judge_commits(group, self._terms))
        if state.operations is not None and "READ" not in state.operations:
            self._told.find(
                "right_missing",
                f"group {settings.group}",
                "these credentials may not READ the group, the assembler must",
                "give its user the rights of the README (Rights), or ask as that user",
            )
        self._told.note(
            f"group {settings.group}: {state.state.lower()}, {len(state.members)} members,"
            f" {events.partitions} partitions, {len(committed)} with a commit, {lag(group)} offsets"
            " behind"
        )
        newest_ms = max((s.newest_ms for s in logs.values() if s.newest_ms), default=None)
        if events.settings.get("message.timestamp.type") == "LogAppendTime":
            found, note = judge_clock(topic, newest_ms, self._wall_ms())
            self._told.extend(found)
            self._told.note(note)
        self._examine_open(topic, partitions)

    def _examine_open(self, topic: str, partitions: list[int]) -> None:
        """A transaction that does not end hides everything behind it from the assembler."""
        stuck: dict[int, int] = {}
        for look in range(self._settings.open_looks + 1):
            logs = self._state.log_states(topic, partitions)
            still = {p: s.stable for p, s in logs.items() if s.stable < s.high}
            stuck = still if look == 0 else {p: s for p, s in stuck.items() if still.get(p) == s}
            if not stuck:
                return
            self._on_step("a transaction is open; does it end?")
            self._pause.wait(_LOOK_S)
        for partition, stable in sorted(stuck.items()):
            self._told.find(
                "transaction_hangs",
                f"{topic}[{partition}]",
                f"a transaction has been open at offset {stable} for"
                f" {self._settings.open_looks * _LOOK_S:.0f} s; what lies behind it is hidden from"
                " the assembler",
                "find it with `kafka-transactions.sh find-hanging` and end it with `kafka-transactions.sh"
                " abort`; or wait for its producer's transaction.timeout.ms",
            )
