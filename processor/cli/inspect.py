"""`toolcalls inspect`: what happened to this call, and what may be done next."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, cast

import typer

from processor.cli.console import emit_json, emit_line, print_table
from processor.cli.exit_codes import ExitCode
from processor.cli.ledger_call import NEXT_STEP, Database
from processor.cli.verify import Bootstrap, CataloguePath, Group, Prefix, PreviousCatalogue

if TYPE_CHECKING:
    from processor.audit.inspect_report import Inspection, LedgerSaid
    from processor.audit.inspect_scan import Found, RecordAt
    from processor.audit.log_scan import LogScan
    from processor.config import Environment
    from processor.core.identity import CallKey
    from processor.core.terms import Terms
    from processor.ledger.port import Transition
    from processor.runtime.topics import TopicNames


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("inspect", help=_HELP)(inspect)


_HELP = """Show the six checkpoints of one call with their evidence: identity, buffer, ordering,
completion, validation, replay. Offsets, counts and digests; never an argument or a result.

The call is named by its key tenant/request/response/call, or by the four options. Only the call's
partition of each topic is read, from --since on, or whole. With a database its ledger is asked too.

Example: toolcalls inspect acme/req_42/resp_7/call_A --since 24h

Exit codes: 0 the call is known, 11 nobody knows it, 2 wrong usage, 4 Kafka not reached.
"""


def inspect(
    call_key: Annotated[
        str | None, typer.Argument(help="The call key.", show_default=False)
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Tenant, instead of a key.")] = None,
    request_id: Annotated[str | None, typer.Option(help="Id of the model request.")] = None,
    response_id: Annotated[str | None, typer.Option(help="Id of the response.")] = None,
    call_id: Annotated[str | None, typer.Option(help="Id of the call in it.")] = None,
    since: Annotated[
        str | None, typer.Option(help="Read from this time on: 24h, 2026-12-01T10:00Z.")
    ] = None,
    kafka_bootstrap: Bootstrap = None,
    group: Group = None,
    prefix: Prefix = None,
    catalogue: CataloguePath = None,
    previous_catalogue: PreviousCatalogue = None,
    database_url: Database = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Look for the call."""
    from processor.app import wall_ms
    from processor.audit.inspect_report import inspect_found
    from processor.audit.inspect_scan import CallScan
    from processor.audit.kafka_state import KafkaState
    from processor.audit.log_scan import LogScan
    from processor.cli.bounds import read_time_ms
    from processor.cli.reading_bar import reading_bar
    from processor.config import kafka_bootstrap as bootstrap_of
    from processor.config import read_environment
    from processor.runtime.topics import TopicNames

    key = _key(call_key, tenant, request_id, response_id, call_id)
    environment = read_environment(
        kafka_bootstrap=kafka_bootstrap, group=group, topic_prefix=prefix, catalogue=catalogue
    )
    bootstrap = bootstrap_of(environment)
    topics = TopicNames.prefixed(environment.topic_prefix)
    since_ms = None if since is None else read_time_ms("--since", since, wall_ms())
    with LogScan(bootstrap) as scan, reading_bar() as on_progress:
        terms, terms_note = _terms(scan, topics, environment, previous_catalogue or [], key)
        call_scan = CallScan(
            scan, KafkaState(bootstrap), topics, key, on_progress, since_ms=since_ms
        )
        found = call_scan.find(terms, environment.group)
    ledger = _ask_ledger(database_url, key)
    told = inspect_found(found, ledger, terms_note=terms_note, next_of_state=NEXT_STEP)
    if as_json:
        emit_json(_fields(told))
    else:
        _print(told)
    if told.standing == "unknown":
        raise typer.Exit(ExitCode.UNKNOWN_CALL)


def _key(
    call_key: str | None,
    tenant: str | None,
    request_id: str | None,
    response_id: str | None,
    call_id: str | None,
) -> "CallKey":
    from processor.core.errors import Misuse
    from processor.core.identity import IdentityError, decode_call_key
    from processor.core.identity import call_key as made_of

    parts = (tenant, request_id, response_id, call_id)
    try:
        if call_key is not None and not any(parts):
            return decode_call_key(call_key.encode())
        if call_key is None and tenant and request_id and response_id and call_id:
            return made_of(tenant, request_id, response_id, call_id)
    except (IdentityError, UnicodeEncodeError) as e:
        said = str(e) if isinstance(e, IdentityError) else "the key is not Unicode"
        raise Misuse(f"{said}: a call key is tenant/request/response/call") from None
    raise Misuse(
        "name the call by its key tenant/request/response/call, or by all of --tenant,"
        " --request-id, --response-id and --call-id"
    )


def _terms(
    scan: "LogScan",
    topics: "TopicNames",
    environment: "Environment",
    previous_catalogue: list[str],
    key: "CallKey",
) -> "tuple[Terms, str | None]":
    """The terms of the last commit, and why what is folded again may differ, if it may."""
    from processor.audit.verify_plan import checked_metadata
    from processor.config import read_catalogue
    from processor.core.gate import NoCatalogue
    from processor.core.limits import Limits
    from processor.core.terms import Terms
    from processor.runtime.errors import RestoreRefused
    from processor.runtime.known_terms import KnownTerms
    from processor.runtime.partitioner import partition_of

    rules = read_catalogue(environment.catalogue) if environment.catalogue else NoCatalogue()
    today = Terms(Limits(), rules, environment.wait_for_response)
    partitions = scan.partitions(topics.events)
    if not partitions:
        return today, "the events topic does not exist"
    partition = partition_of(key.encode(), len(partitions))
    committed = scan.committed(environment.group, topics.events).get(partition)
    if committed is None:
        return today, f"the group {environment.group} has committed nothing here"
    try:
        where = f"{topics.events}[{partition}]"
        mark = checked_metadata(where, committed, None).terms
        known = KnownTerms(today, [read_catalogue(path) for path in previous_catalogue])
        return known.known(mark), None
    except RestoreRefused as e:
        return today, f"not compared: {str(e).split(':', 1)[0]}"


def _ask_ledger(database_url: str | None, key: "CallKey") -> "LedgerSaid":
    from processor.audit.inspect_report import LedgerSaid
    from processor.core.errors import ProcessorError
    from processor.ledger.postgres import PostgresLedger, PostgresSettings

    if not database_url:
        return LedgerSaid(note="not asked: give --database-url or set TOOLCALLS_DATABASE_URL")
    settings = PostgresSettings(
        database_url, application_name="toolcalls-cli", pool_max=1, pool_wait_s=_LEDGER_WAIT_S
    )
    try:
        with PostgresLedger(settings) as ledger:
            view = ledger.show(key.tenant, key.idempotency_key)
            history = ledger.history(key.tenant, key.idempotency_key)
    except ProcessorError as e:
        return LedgerSaid(note=f"did not answer: {e}")
    return LedgerSaid(view, tuple(history))


#: Kafka's part is told all the same, so nobody waits long for the ledger's.
_LEDGER_WAIT_S = 3.0


def _print(told: "Inspection") -> None:
    head = f"{told.call_key}: {told.standing}"
    if told.reason:
        head += f", {told.reason} at the checkpoint {told.stage}"
    emit_line(head)
    found = told.found
    if told.standing == "unknown":
        emit_line(
            f"Nobody knows this call. Its partition is {found.partition}; read were offsets"
            f" {found.scanned_from} to {found.scanned_to} of the events topic, and its partition of"
            " each output topic."
        )
        emit_line(f"Next: {told.next_step}.")
        return
    for checkpoint in told.checkpoints:
        emit_line(f"\n{checkpoint.name:<11} {checkpoint.status}")
        for name, value in checkpoint.evidence.items():
            if value not in (None, [], {}):
                label = name.removesuffix("_ms").replace("_", " ")
                emit_line(f"  {label:<21} {_cell(name, value)}")
    _print_records(told)
    emit_line(f"\nNext: {told.next_step}.")


def _print_records(told: "Inspection") -> None:
    found = told.found
    if len(found.verdicts) > 1:
        emit_line("\nverdicts, the first decided one counts")
        for verdict in found.verdicts:
            proof = verdict.outcome.evidence
            emit_line(f"  {_where(verdict.at)}, events {proof.first_offset} to {proof.last_offset}")
    if found.dead_letters:
        emit_line("\ndead letters")
        for letter in found.dead_letters:
            emit_line(f"  {_where(letter.at)} from {letter.origin}: {letter.code}, {letter.detail}")
    for at in found.unreadable:
        emit_line(f"\nnot readable: {_where(at)}")
    if told.ledger.history:
        emit_line("\nledger")
        rows = [_transition(t) for t in told.ledger.history]
        cells = [[str(v) if v is not None else "-" for v in row.values()] for row in rows]
        print_table(("at", "from", "to", "fence", "by", "why"), cells)


def _where(at: "RecordAt") -> str:
    return f"{at.topic}[{at.partition}]@{at.offset} {_time(at.timestamp_ms)}"


def _cell(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("_ms"):
        return _time(cast("int", value))
    if isinstance(value, Mapping):
        counts = cast("Mapping[str, object]", value)
        return ", ".join(f"{count} {kind}" for kind, count in counts.items())
    if isinstance(value, list):
        return ", ".join(str(part) for part in cast("list[object]", value))
    return str(value)


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def _fields(told: "Inspection") -> dict[str, object]:
    return {
        "call_key": told.call_key,
        "standing": told.standing,
        "reason": told.reason,
        "stage": told.stage,
        "next_step": told.next_step,
        "checkpoints": {c.name: {"status": c.status, **c.evidence} for c in told.checkpoints},
        **_record_fields(told.found),
        "ledger_history": [_transition(t) for t in told.ledger.history],
    }


def _record_fields(found: "Found") -> dict[str, object]:
    return {
        "read": {
            "partition": found.partition,
            "from": found.scanned_from,
            "to": found.scanned_to,
            "committed": found.committed,
        },
        "verdicts": [
            {
                **_at_fields(v.at),
                "first_event": v.outcome.evidence.first_offset,
                "last_event": v.outcome.evidence.last_offset,
            }
            for v in found.verdicts
        ],
        "dead_letters": [
            {**_at_fields(d.at), "code": d.code, "detail": d.detail, "origin": d.origin}
            for d in found.dead_letters
        ],
        "results": [
            {
                **_at_fields(r.at),
                "state": r.result.state,
                "next_key": r.result.retry,
                "replayed": r.result.replayed,
                "error_class": r.result.error_class,
            }
            for r in found.results
        ],
        "unreadable": [_at_fields(at) for at in found.unreadable],
    }


def _at_fields(at: "RecordAt") -> dict[str, object]:
    return {
        "topic": at.topic,
        "partition": at.partition,
        "offset": at.offset,
        "at": _time(at.timestamp_ms),
    }


def _transition(transition: "Transition") -> dict[str, object]:
    return {
        "at": _time(transition.at_ms),
        "from_state": transition.from_state,
        "to_state": transition.to_state,
        "fence": transition.fence,
        "by": transition.by,
        "why": transition.why,
    }
