"""The known pitfalls of stream processing, each with the tests that hold it or why there are none.

A row is covered (`by`: test node ids), open (no test yet: what is missing), or does not apply.
A row with `by` may also say in `words` what those tests leave out.
"""

from typing import Final, Literal, NamedTuple

Standing = Literal["covered", "open", "does not apply"]

INTEGRATION: Final = "tests/integration/test_"
LIFE: Final = f"{INTEGRATION}assembler_life.py::test_"
ONCE: Final = f"{INTEGRATION}assembler_exactly_once.py::test_"
BAD: Final = f"{INTEGRATION}assembler_bad_input.py::test_"
POISON: Final = f"{INTEGRATION}faults_poison_records.py::test_"
CHECKPOINTS: Final = f"{INTEGRATION}assembler_checkpoints.py::test_"
EXECUTOR: Final = f"{INTEGRATION}executor_kafka.py::test_"
KAFKA: Final = "tests/contract/test_kafka_contract.py::test_"
READING: Final = "tests/contract/test_kafka_contract_reading.py::test_"
LEDGER: Final = "tests/contract/test_ledger_contract.py::test_"
RESTORE: Final = "tests/unit/runtime/test_restore.py::test_"
TOPICS: Final = "tests/unit/runtime/test_topics.py::test_"
REGISTRY: Final = "tests/unit/codec/test_registry.py::test_"
CORE: Final = "tests/property/test_core_assembly.py::test_"
RESTART: Final = "tests/property/test_core_restart.py::test_"
ROGUES: Final = "tests/faults/test_z_rogues.py::test_"
BROKERS: Final = "tests/faults/test_d_brokers.py::test_"
GONE: Final = "tests/faults/test_c_checkpoints_gone.py::test_"
POSITIONS: Final = "tests/faults/test_o_positions.py::test_"

FROZEN: Final = f"{LIFE}a_frozen_process_that_lost_its_partitions_commits_nothing"
SAME_SLOT: Final = f"{LIFE}of_two_processes_in_one_slot_one_stays"
SIGTERM: Final = f"{LIFE}sigterm_commits_what_was_read_and_ends_with_0"
KILLS: Final = f"{ONCE}a_kill_at_every_point_loses_doubles_and_invents_nothing"
RANDOM_KILLS: Final = f"{ONCE}kills_at_random_moments_lose_double_and_invent_nothing"
EXPIRES: Final = f"{LIFE}a_call_without_an_end_expires_once_also_on_an_idle_topic"
SEEDS: Final = (
    "tests/simulation/test_simulation.py::"
    "test_the_first_seeds_hold_every_promise_and_meet_every_fault_and_ending"
)
STALE: Final = (
    f"{KAFKA}a_commit_of_an_older_generation_is_refused_and_the_transaction_must_be_aborted"
)
GAPS: Final = f"{ROGUES}aborted_records_and_markers_between_fragments_are_gaps_also_at_a_restart"
DELAYED: Final = (
    f"{ROGUES}a_foreign_open_transaction_delays_its_partition_alone_and_goes_when_aborted"
)
MISFIT: Final = f"{RESTORE}a_position_that_does_not_fit_is_refused_by_name"
NO_CHANGELOG: Final = "no changelog: state is folded again from the input"
NO_STORE: Final = "no local store: memory, the topics and Postgres hold everything"


class Pitfall(NamedTuple):
    """One pitfall: what goes wrong, how it stands, and by which tests or for which reason."""

    title: str
    standing: Standing
    by: tuple[str, ...] = ()
    words: str = ""


def _by(title: str, *tests: str, but: str = "") -> Pitfall:
    """A pitfall that tests hold; `but` says what they leave out."""
    return Pitfall(title, "covered", tests, but)


def _open(title: str, missing: str) -> Pitfall:
    """A pitfall that applies and that no test holds."""
    return Pitfall(title, "open", (), missing)


def _not(title: str, reason: str) -> Pitfall:
    """A pitfall that this design cannot meet."""
    return Pitfall(title, "does not apply", (), reason)


PITFALLS: Final[dict[str, Pitfall]] = {
    # Zombies, fencing, transactions
    "Z1": _by("a woken zombie writes to a lost partition", FROZEN, STALE),
    "Z2": _by(
        "group metadata that fences nothing",
        f"{KAFKA}metadata_of_a_consumer_that_never_joined_fences_nothing",
        f"{KAFKA}metadata_with_a_slot_name_fences_even_before_the_join",
    ),
    "Z3": _open("a transaction without offsets is not fenced", "freeze right before an expiry"),
    "Z4": _by(
        "a transaction that hangs",
        DELAYED,
        f"{INTEGRATION}doctor.py::test_a_transaction_that_does_not_end_is_found",
    ),
    "Z5": _by(
        "a request lands in a later transaction",
        "tests/faults/test_suite_catches.py::"
        "test_a_request_that_lands_in_the_next_transaction_moves_the_position_back",
        but="in the simulation; not with a proxy before a real broker",
    ),
    "Z6": _by(
        "two processes in one slot",
        SAME_SLOT,
        f"{ROGUES}a_second_producer_with_our_transactional_id_ends_the_process_and_costs_nothing",
    ),
    "Z7": _by(
        "fenced that is a timeout",
        f"{KAFKA}a_transaction_past_its_time_limit_is_aborted_and_its_producer_fenced",
        but="the age in the message is not asserted",
    ),
    "Z8": _by(
        "commit with unknown result",
        f"{INTEGRATION}faults_commit_that_never_returns.py::"
        "test_a_commit_that_outlives_its_time_limit_ends_the_wait_with_an_error",
        SEEDS,
        but="no coordinator is killed between request and answer",
    ),
    "Z9": _by("committed there, failed here", SEEDS, but="in the simulation only"),
    "Z10": _by("reading on after being fenced", SAME_SLOT),
    "Z11": _open("a transaction times out in a restore", "a restore slower than the timeout"),
    "Z12": _open("an idle open transaction", "an idle time of several timeouts, then one record"),
    "Z13": _by("a stop request in mid-transaction", SIGTERM, but="not at every crash point"),
    "Z14": _open("transactional ids pile up", "many restarts, then a list of the ids"),
    "Z15": _open("the transactional id has expired", "a broker that forgets ids in seconds"),
    "Z16": _not("two producers in turn", "one process has one producer"),
    "Z17": _by("a plain commit beside transactions", KILLS, but="no static check"),
    # Offsets and commit order
    "O1": _not("offsets before the changelog", "outputs and offsets are one transaction"),
    "O2": _by("committing what was fetched", KILLS, RANDOM_KILLS),
    "O3": _by("gaps and control records", GAPS, f"{KAFKA}a_control_record_takes_an_offset"),
    "O4": _not("completion out of order", "one thread folds a partition in its order"),
    "O5": _by(
        "a failed record is acknowledged",
        f"{BAD}every_kind_of_bad_bytes_is_a_named_dead_letter_and_good_calls_complete",
    ),
    "O6": _by(
        "offsets of a pending transaction",
        f"{KAFKA}committed_waits_while_a_transaction_may_still_move_the_offset",
    ),
    "O7": _by(
        "a race lets a policy decide the start",
        f"{READING}a_position_outside_of_the_log_is_an_error_message",
        but="no rebalance storm with open transactions",
    ),
    "O8": _by(
        "a position outside of the log",
        f"{POSITIONS}records_deleted_above_low_are_refused_by_name",
        f"{POSITIONS}records_deleted_below_low_are_not_missed",
        MISFIT,
    ),
    "O9": _by(
        "no position is no new group",
        f"{POSITIONS}a_position_that_was_deleted_is_no_new_group_by_itself",
        f"{LIFE}a_new_group_is_started_only_when_told_from_where",
        f"{LIFE}offsets_moved_by_hand_are_refused_until_accepted",
    ),
    "O10": _by(
        "topic recreated",
        MISFIT,
        but="the decision alone; no recreated topic on a real broker",
    ),
    "O11": _by(
        "partitions added",
        f"{POSITIONS}partitions_added_to_the_input_while_nobody_ran_are_refused",
        f"{TOPICS}checkpoints_have_as_many_partitions_as_events",
        but="under a running process: not noticed before a restart",
    ),
    "O12": _by(
        "commit of a lost assignment",
        FROZEN,
        f"{KAFKA}a_commit_of_a_member_that_was_removed_is_refused",
    ),
    "O13": _by("no seek after an abort", SEEDS, but="in the simulation only"),
    # Groups
    "G1": _open("poll interval exceeded", "a batch slower than the interval on a real broker"),
    "G2": _open("restore in the callback", "joins and leaves during a long restore"),
    "G3": _open("pause forgotten", "a rebalance while partitions are paused"),
    "G4": _by("a batch outlives its revocation", SEEDS, but="in the simulation only"),
    "G5": _open("exceptions in callbacks", "a callback that fails with messages fetched"),
    "G6": _by(
        "commit and rebalance wait for each other",
        f"{INTEGRATION}faults_orphaned_partition.py::"
        "test_a_kill_during_the_commit_before_a_revocation_leaves_no_partition_without_owner",
        but="no storm with slow commits",
    ),
    "G7": _open("rebalance storm", "a bound on restores while members come and go"),
    "G8": _by(
        "a static member twice",
        SAME_SLOT,
        f"{KAFKA}a_static_member_that_is_replaced_ends_with_a_fatal_error",
    ),
    "G9": _not("the newer group protocol", "the classic protocol is the only one used"),
    "G10": _open("assignors mixed", "an eager member joins"),
    "G11": _not("co-partitioning lost", "the group reads one topic"),
    "G12": _by(
        "coordinator gone, fetching goes on",
        "tests/simulation/test_kit.py::"
        "test_while_coordinators_are_away_logs_are_read_and_no_session_ends",
        SEEDS,
        but="in the simulation; not on three real brokers",
    ),
    # Changelog and restore; what is left of it for the fold again and for checkpoints
    "C1": _not("restore to the stable offset only", "no end to find: the position mutes"),
    "C2": _by("waiting for an offset without record", GAPS),
    "C3": _by(
        "aborted records restored",
        DELAYED,
        GAPS,
        f"{CHECKPOINTS}a_kill_between_checkpoint_and_commit_leaves_the_old_state",
    ),
    "C4": _not("uncommitted local state", NO_STORE),
    "C5": _by("a restore broken off", KILLS),
    "C6": _by(
        "tombstone gone before it was read",
        f"{CHECKPOINTS}a_checkpoint_is_removed_when_its_call_is_forgotten",
        but="no tiny delete.retention.ms",
    ),
    "C7": _open("compaction never happens", "a bound on reading checkpoints, cleaner off"),
    "C8": _by(
        "wrong cleanup policy",
        f"{POSITIONS}a_compacted_events_topic_is_refused",
        f"{TOPICS}a_wrong_setting_is_the_only_finding",
    ),
    "C9": _by(
        "the topic of state is emptied",
        f"{GONE}checkpoints_that_are_gone_refuse_a_restart_instead_of_losing_their_calls",
    ),
    "C10": _open("slow restore", "a budget for a restore"),
    "C11": _open("a restore starves live partitions", "latency of one while another restores"),
    "C12": _open("the restoring reader joins the group", "the group described in a restore"),
    "C13": _not("a skipped changelog write", NO_CHANGELOG),
    "C14": _by(
        "state above the size limit", f"{BAD}a_call_larger_than_its_limit_is_rejected_by_name"
    ),
    "C15": _not("the whole buffer for each fragment", NO_CHANGELOG),
    "C16": _by(
        "foreign records in the state",
        "tests/property/test_checkpoint_records.py::test_a_key_belongs_to_its_group",
        but="no foreign bytes on the checkpoints topic",
    ),
    "C17": _by(
        "wrong partition",
        f"{INTEGRATION}partitioner.py::test_every_key_lies_where_it_is_looked_for",
        "tests/unit/runtime/test_partitioner.py::test_murmur2_is_that_of_the_kafka_clients",
    ),
    "C18": _by("dirty state after an abort", SEEDS),
    "C19": _by(
        "off by one at small counts",
        f"{RESTORE}low_at_the_committed_offset_needs_no_older_record",
        f"{RESTART}a_restart_at_any_cut_has_the_state_and_says_the_rest_of_one_that_never_stopped",
    ),
    # Records, schemas, errors
    "R1": _by(
        "poison in a loop",
        f"{POISON}a_record_that_is_small_only_when_compressed_does_not_stop_its_partition",
        f"{POISON}a_header_name_that_is_not_utf8_does_not_stop_its_partition",
    ),
    "R2": _by(
        "registry away",
        f"{REGISTRY}an_unknown_id_is_the_records_fault",
        f"{REGISTRY}a_registry_that_does_not_answer_is_tried_again_and_then_transient",
    ),
    "R3": _by(
        "writer and reader mixed up",
        "tests/unit/codec/test_schemas.py::"
        "test_the_newest_version_reads_what_every_earlier_one_wrote",
    ),
    "R4": _by(
        "format of state changes",
        "tests/unit/codec/test_golden.py::test_events_of_version_1_are_read_for_ever",
        MISFIT,
    ),
    "R5": _by(
        "output too large or refused",
        f"{TOPICS}a_larger_record_on_the_events_topic_needs_a_larger_dead_letter",
        but="refused by rights: no test",
    ),
    "R6": _open("headers dropped in a batch", "headers of every output are compared, no batch"),
    "R7": _open("the producer's queue is full", "a transaction larger than the queue"),
    "R8": _by(
        "delivery failure unseen",
        "tests/integration/test_relay.py::test_a_broker_that_is_not_there_confirms_nothing",
    ),
    "R9": _by(
        "repeated fragments",
        f"{CORE}any_repetition_of_any_events_is_harmless",
        f"{CORE}a_call_that_lost_any_one_event_is_never_completed",
    ),
    "R10": _by("records after the end", RANDOM_KILLS),
    # Time
    "W1": _by("the worker's clock jumps", SEEDS, but="skewed clocks, in the simulation"),
    "W2": _open("a record from the future", "a record dated ahead; the topic has broker time"),
    "W3": _by(
        "log time forgotten at a restart",
        f"{RESTORE}restore_reads_from_low_and_mutes_below_the_committed_offset",
    ),
    "W4": _by("idle partition", EXPIRES),
    "W5": _open("a sweep deletes what was refreshed", "no test of this row was identified"),
    "W6": _open("expiry after downtime", "a backlog longer than a life"),
    # Process, disk, memory, broker
    "D1": _not("disk full in a local store", NO_STORE),
    "D2": _not("corrupt state directory", NO_STORE),
    "D3": _by(
        "memory grows",
        "tests/faults/test_d_memory.py"
        "::test_a_broker_that_hangs_in_a_commit_does_not_make_the_process_grow",
        "tests/integration/test_assembler_back_pressure.py"
        "::test_calls_larger_than_the_bound_in_every_partition_are_all_completed",
        but="no soak of hours",
    ),
    "D4": _not("fork after clients", "processes are started anew, none is forked"),
    "D5": _by("silent stall", f"{BROKERS}the_network_may_cut_or_swallow"),
    "D6": _open("liveness proves little", "a blocked loop"),
    "D7": _by(
        "broker away for long",
        f"{BROKERS}the_only_broker_may_come_back",
        but="seconds, not minutes",
    ),
    "D8": _by("rolling restart", f"{BROKERS}of_three_brokers_any_may_go"),
    "D9": _by(
        "acknowledged records vanish",
        f"{TOPICS}one_replica_in_a_cluster_of_three_is_a_finding",
        but="no unclean election",
    ),
    "D10": _open("a busy loop stays in the group", "a loop that is busy beyond the interval"),
    # Postgres
    "P1": _by(
        "the effect is outside of Kafka",
        f"{EXECUTOR}a_process_killed_at_a_crash_point_is_followed_by_an_honest_ledger",
    ),
    "P2": _by("claimed and not ended", f"{LEDGER}crash_after_begin_ends_by_effect_class"),
    "P3": _by(
        "one key twice at once",
        f"{INTEGRATION}ledger_concurrency.py::"
        "test_every_thread_tries_every_key_and_each_key_takes_effect_once",
    ),
    "P4": _by(
        "commit lost on the way",
        f"{INTEGRATION}ledger_connection.py::"
        "test_lost_answers_to_claim_begin_and_finish_leave_one_of_each",
    ),
    "P5": _open("keys purged before the input", "purge, rewind, start"),
    "P6": _by(
        "a standby without the last commits",
        f"{INTEGRATION}ledger_failover.py::"
        "test_a_standby_without_the_last_commits_repeats_no_unsure_effect",
    ),
    "P7": _by(
        "slow Postgres",
        f"{INTEGRATION}ledger_connection.py::test_a_lock_that_is_not_had_in_time_is_transient",
    ),
    "P8": _by(
        "the key is not stable",
        f"{LEDGER}same_key_with_other_arguments_or_tool_is_a_conflict",
        "tests/unit/codec/test_headers.py::test_ids_are_the_same_at_every_replay",
    ),
    # Client library
    "L1": _open("a partial batch is held back", "a contract test"),
    "L2": _open("a full queue sleeps a second", "set to 20 ms; no test"),
    "L3": _by(
        "the end of a partition is the stable offset",
        f"{READING}the_high_watermark_of_a_reader_of_committed_data_is_the_last_stable_offset",
    ),
    "L4": _by(
        "position over markers",
        f"{READING}the_position_is_one_above_the_last_record_handed_out",
    ),
    "L5": _open("a lost callback defaults to revoke", "a contract test"),
    "L6": _not("the mock cluster", "no mocks for Kafka: every test has the real broker"),
    "L7": _by(
        "flush leaves records",
        f"{INTEGRATION}publisher.py::test_closing_without_a_broker_says_what_stays_undelivered",
    ),
    "L8": _open("message timeout above the transaction's", "set below it; no test"),
    "L9": _open("large statistics on the poll path", "no test of this row was identified"),
    "L10": _open("accessors called again", "a matter of speed; no test"),
}
