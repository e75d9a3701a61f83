"""What an examination concludes from what it has seen."""

import json
from dataclasses import replace

import httpx
import pytest

from processor.audit.doctor import ASSEMBLER_RIGHTS, judge_rights
from processor.audit.doctor_brokers import METADATA_BYTES, judge_brokers
from processor.audit.doctor_group import GroupFacts, judge_clock, judge_commits, judge_group
from processor.audit.doctor_registry import examine_registry
from processor.audit.doctor_report import Diagnosis
from processor.audit.kafka_state import BrokerState, GroupState, LogState
from processor.audit.log_scan import CommittedOffset
from processor.codec.registry import RegistrySettings
from processor.core.assembly import FOLD_VERSION
from processor.core.gate import NoCatalogue
from processor.core.limits import Limits
from processor.core.terms import Terms, TermsMark
from processor.runtime.known_terms import KnownTerms
from processor.runtime.offset_metadata import OffsetMetadata
from processor.runtime.restore import TopicFacts
from processor.runtime.settings import CommitSettings
from processor.runtime.topics import TopicNames

HEALTHY = {
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.max.timeout.ms": "900000",
    "group.min.session.timeout.ms": "6000",
    "group.max.session.timeout.ms": "1800000",
    "offset.metadata.max.bytes": "4096",
    "offsets.retention.minutes": "10080",
}
MARK = TermsMark(None, Limits(), wait_for_response=False)
TERMS = KnownTerms(Terms(Limits(), NoCatalogue()))
METADATA = OffsetMetadata(FOLD_VERSION, 5, 0, 2, "id", MARK, 0)
LOGS = {0: LogState(0, 20, 20, 1_000), 1: LogState(0, 20, 20, 2_000)}


def codes_of_brokers(count: int, **changed: str) -> list[str]:
    """Codes for a cluster whose brokers all have these settings."""
    settings = HEALTHY | {name.replace("_", "."): value for name, value in changed.items()}
    brokers = [BrokerState(number, settings) for number in range(count)]
    return [found.code for found in judge_brokers(brokers, CommitSettings())]


def group(
    committed: dict[int, CommittedOffset],
    members: dict[str, tuple[int, ...]] | None = None,
    logs: dict[int, LogState] | None = None,
) -> GroupFacts:
    """A group on a topic of two partitions."""
    state = GroupState("STABLE", "CLASSIC", {"0": (0, 1)} if members is None else members, None)
    return GroupFacts("g", "events", TopicFacts("id", 2), state, committed, logs or LOGS)


def test_a_healthy_cluster_has_no_finding() -> None:
    """Three brokers with Kafka's own defaults, but for the copies of its inner topics."""
    assert codes_of_brokers(3) == []
    assert judge_brokers([BrokerState(1, {})], CommitSettings()) == []


@pytest.mark.parametrize(
    ("count", "setting", "value", "code"),
    [
        (1, "offsets_topic_replication_factor", "3", "inner_topic_unavailable"),
        (3, "transaction_state_log_min_isr", "4", "inner_topic_unavailable"),
        (3, "transaction_state_log_min_isr", "1", "inner_topic_at_risk"),
        (3, "offsets_topic_replication_factor", "1", "inner_topic_at_risk"),
        (3, "transaction_max_timeout_ms", "7999", "transaction_timeout_refused"),
        (3, "group_min_session_timeout_ms", "12001", "session_timeout_refused"),
        (3, "group_max_session_timeout_ms", "11999", "session_timeout_refused"),
        (3, "offset_metadata_max_bytes", "128", "offset_metadata_too_small"),
        (3, "offsets_retention_minutes", "60", "offsets_retention_too_short"),
    ],
)
def test_each_wrong_setting_of_a_broker_is_found_once(
    count: int, setting: str, value: str, code: str
) -> None:
    """However many brokers have it."""
    small = {"transaction_state_log_replication_factor": "1", "transaction_state_log_min_isr": "1"}
    changed = (small if count == 1 else {}) | {setting: value}
    assert codes_of_brokers(count, **changed) == [code]


def test_the_bound_of_the_metadata_is_one_that_ours_keeps() -> None:
    """With two sets of terms and the largest numbers."""
    far = 1 << 50
    mark = TermsMark("f" * 64, Limits(*[far] * 5), wait_for_response=False)
    longest = OffsetMetadata(99, far, far, 99_999, "x" * 22, mark, far, mark)
    assert len(longest.encode()) <= METADATA_BYTES


def test_members_are_compared_with_partitions() -> None:
    """None, too few partitions owned, more members than partitions; a busy group is left alone."""

    def codes(members: dict[str, tuple[int, ...]]) -> list[str]:
        return [found.code for found in judge_group(group({}, members))]

    assert codes({"0": (0,), "1": (1,)}) == []
    assert codes({}) == ["no_member"]
    assert codes({"0": (1,)}) == ["partitions_without_owner"]
    assert codes({"0": (0,), "1": (1,), "2": ()}) == ["more_members_than_partitions"]
    busy = group({}, {"0": ()})
    assert list(judge_group(replace(busy, state=replace(busy.state, state="PREPARING")))) == []


def test_commits_are_judged_as_a_start_would() -> None:
    """Every refusal of a start by its name, before it is tried; a fresh group has none."""

    def codes(text: str, offset: int = 10) -> list[str]:
        commits = {p: CommittedOffset(offset, text) for p in (0, 1)}
        return [found.code for found in judge_commits(group(commits), TERMS)]

    assert codes(METADATA.encode()) == []
    assert list(judge_commits(group({}), TERMS)) == []
    assert codes("") == ["reset_by_hand"] * 2
    assert codes("{}") == ["metadata_unreadable"] * 2
    assert codes(replace(METADATA, topic_id="other").encode()) == ["topic_recreated"] * 2
    assert codes(METADATA.encode(), 21) == ["offset_out_of_range"] * 2
    other = replace(MARK, catalogue_digest="ab" * 32)
    assert codes(replace(METADATA, terms=other).encode()) == ["catalogue_unknown"]
    gone = {p: LogState(6, 20, 20, None) for p in (0, 1)}
    commits = {p: CommittedOffset(10, METADATA.encode()) for p in (0, 1)}
    found = list(judge_commits(group(commits, logs=gone), TERMS))
    assert [f.code for f in found] == ["offset_out_of_range"] * 2
    one_lost = group({0: CommittedOffset(10, METADATA.encode())})
    assert [f.code for f in judge_commits(one_lost, TERMS)] == ["no_committed_offset"]
    assert all(f.fix and f.sentence for f in found)


def test_a_clock_is_judged_only_by_what_the_log_proves() -> None:
    """A record of the future proves that this host is behind; an old one proves nothing."""
    assert [f.code for f in judge_clock("t", 10_000, 5_000)[0]] == ["clock_behind"]
    for newest_ms in (None, 4_000, 6_000):
        found, note = judge_clock("t", newest_ms, 5_000)
        assert not found
        assert note.startswith("clock: ")


def test_a_right_that_the_assembler_needs_and_these_credentials_lack_is_found() -> None:
    """Topics whose rights the cluster does not tell are not judged."""
    names = TopicNames().by_role()
    full = {names[role]: rights for role, rights in ASSEMBLER_RIGHTS.items()}
    assert list(judge_rights(names, full)) == []
    assert list(judge_rights(names, dict.fromkeys(names.values()))) == []
    lacking = full | {names["completed"]: frozenset({"DESCRIBE", "DESCRIBE_CONFIGS"})}
    [found] = judge_rights(names, lacking)
    assert (found.code, found.subject) == ("right_missing", names["completed"])
    assert "WRITE" in found.sentence


@pytest.mark.parametrize(
    ("status", "answer", "code"),
    [
        (200, {"is_compatible": True}, None),
        (200, {"is_compatible": False}, "schema_incompatible"),
        (404, {"error_code": 40401}, None),
        (401, {}, "registry_denied"),
        (500, {"message": "secret"}, "registry_refused"),
        (200, "no json", "registry_unreachable"),
    ],
)
def test_the_registry_is_asked_and_never_written_to(
    status: int, answer: object, code: str | None
) -> None:
    """Its texts are not passed on."""
    asked: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        body = answer if isinstance(answer, str) else json.dumps(answer)
        return httpx.Response(status, content=body.encode())

    told = Diagnosis()
    examine_registry(
        RegistrySettings("http://registry:8081"),
        {"a-value": "{}"},
        told,
        transport=httpx.MockTransport(handle),
    )
    assert [f.code for f in told.findings] == ([] if code is None else [code])
    assert "secret" not in str(told)
    assert [r.url.path for r in asked] == ["/compatibility/subjects/a-value/versions/latest"]
