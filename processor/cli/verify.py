"""`toolcalls verify`: are the outputs exactly what the events say?"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from processor.cli.console import emit_json, emit_line
from processor.cli.exit_codes import ExitCode

_Word = TypeVar("_Word", bound=str)

if TYPE_CHECKING:
    from processor.audit.verify_plan import PartitionPlan
    from processor.audit.verify_report import Difference, Report
    from processor.config import Environment
    from processor.core.terms import Terms
    from processor.runtime.known_terms import KnownTerms


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("verify", help=_HELP)(verify)


_HELP = """Fold a stretch of the events topic again, and compare every completed call, rejected call and
dead letter with what it says: nothing lost, doubled, altered or invented.

Without --from and --to: everything that the group has committed and the topic still holds. A bound
is a time (2026-12-01T10:00Z), how long ago (24h), or offsets (0:1500,1:900). The catalogue of the
last commit must be given, as for `toolcalls run`. Reads all it compares; memory stays small.

Example: toolcalls verify --from 24h --catalogue catalogue.yaml

Exit codes: 0 all agree, 10 differences, 2 wrong usage or no such group, 4 Kafka not reached or an
open transaction hides records, 8 the commits do not fit the topic or name another catalogue.
"""

Bootstrap = Annotated[str | None, typer.Option(help="Broker address, HOST:PORT[,HOST:PORT].")]
Prefix = Annotated[str | None, typer.Option(help="Prefix of all topic names.")]
Group = Annotated[str | None, typer.Option(help="The assembler's consumer group.")]
CataloguePath = Annotated[str | None, typer.Option(help="Path of catalogue.yaml.")]
PreviousCatalogue = Annotated[
    list[str] | None,
    typer.Option(
        envvar="TOOLCALLS_PREVIOUS_CATALOGUE", help="The catalogue before a change, if any."
    ),
]


def verify(
    lower: Annotated[
        str | None, typer.Option("--from", help="First event that is compared.")
    ] = None,
    upper: Annotated[str | None, typer.Option("--to", help="First event that is not.")] = None,
    kafka_bootstrap: Bootstrap = None,
    group: Group = None,
    prefix: Prefix = None,
    catalogue: CataloguePath = None,
    previous_catalogue: PreviousCatalogue = None,
    limit: Annotated[
        int, typer.Option(min=1, max=100_000, help="Differences listed; all are counted.")
    ] = 100,
    *,
    assume_terms: Annotated[
        bool,
        typer.Option(
            "--assume-terms",
            help="Compare also what older terms decided, by the previous catalogue or today's.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for machines.")] = False,
) -> None:
    """Compare."""
    from processor.app import wall_ms
    from processor.audit.verify import VerifySettings
    from processor.audit.verify import verify as run_verification
    from processor.cli.bounds import read_bound
    from processor.cli.reading_bar import reading_bar
    from processor.config import kafka_bootstrap as bootstrap_of
    from processor.config import read_environment
    from processor.runtime.topics import TopicNames

    environment = read_environment(
        kafka_bootstrap=kafka_bootstrap, group=group, topic_prefix=prefix, catalogue=catalogue
    )
    now_ms = wall_ms()
    settings = VerifySettings(
        bootstrap_of(environment),
        TopicNames.prefixed(environment.topic_prefix),
        environment.group,
        look_back_ms=environment.call_max_life_ms
        + environment.linger_ms
        + environment.expiry_margin_ms
        + _SLACK_MS,
        lower=read_bound("--from", lower, now_ms),
        upper=read_bound("--to", upper, now_ms),
        listed_max=limit,
    )
    known, oldest = known_terms(environment, previous_catalogue)
    with reading_bar() as on_progress:
        report = run_verification(
            settings, known, on_progress, assumed=oldest if assume_terms else None
        )
    _print(report, as_json=as_json)
    if not report.agrees:
        raise typer.Exit(ExitCode.DIFFERENCES)


def known_terms(
    environment: "Environment", previous_catalogue: list[str] | None
) -> "tuple[KnownTerms, Terms]":
    """Today's terms with those of the previous catalogues, and the oldest that were given."""
    from processor.config import read_catalogue, runtime_settings
    from processor.core.gate import NoCatalogue
    from processor.core.terms import Terms
    from processor.runtime.known_terms import KnownTerms

    rules = read_catalogue(environment.catalogue) if environment.catalogue else NoCatalogue()
    previous = [read_catalogue(path) for path in previous_catalogue or []]
    runtime = runtime_settings(environment, "events", accept_reset=False)
    today = Terms(runtime.limits, rules, runtime.wait_for_response)
    oldest = Terms(runtime.limits, previous[0] if previous else rules, runtime.wait_for_response)
    return KnownTerms(today, previous), oldest


#: The assembler looks for calls that are due once a second, and appends in its own time.
_SLACK_MS = 60_000


def _print(report: "Report", *, as_json: bool) -> None:
    if as_json:
        emit_json(_fields(report))
        return
    for plan in report.plans:
        emit_line(_plan_line(plan))
    emit_line(
        f"{report.events_read} events folded again: {_counts(report.expected)} expected,"
        f" {report.agreeing.total()} agree;"
        f" {report.open_at_end} calls open at the end"
    )
    if report.undecided:
        emit_line(f"not decidable: {_counts(report.undecided)}")
    for difference in report.listed:
        emit_line(_difference_line(difference))
    hidden = report.differing.total() - len(report.listed)
    if hidden:
        emit_line(f"... and {hidden} more (--limit)")
    if report.agrees and not report.agreeing:
        emit_line("Nothing was compared: the range holds no event that decided anything.")
    elif report.agrees:
        emit_line("All agree: nothing lost, doubled, altered or invented.")
    else:
        emit_line(f"DIFFERENCES: {_counts(report.differing)}")


def _counts(counts: Mapping[_Word, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count) or "0"


def _plan_line(plan: "PartitionPlan") -> str:
    line = f"partition {plan.partition}: offsets {plan.start} to {plan.end}"
    if plan.begin < plan.start:
        line += f", folded from {plan.begin} for the calls that were open"
    if plan.left_out:
        line += (
            f"; {plan.left_out} offsets below are left out: they were decided by terms that no"
            " commit names any more (--assume-terms compares them)"
        )
    return line


def _difference_line(found: "Difference") -> str:
    where = found.topic
    if found.partition is not None:
        where += f"[{found.partition}]"
    if found.offset is not None:
        where += f"@{found.offset}"
    event = f", event {found.event.partition}:{found.event.offset}" if found.event else ""
    key = found.key or "(no key)"
    return f"{found.code}: {where} {key}{event}: {found.sentence}.\n    {found.fix}."


def _fields(report: "Report") -> dict[str, object]:
    return {
        "agree": report.agrees,
        "partitions": [
            {
                "partition": plan.partition,
                "folded_from": plan.begin,
                "from": plan.start,
                "to": plan.end,
                "left_out": plan.left_out,
            }
            for plan in report.plans
        ],
        "events": report.events_read,
        "open_at_end": report.open_at_end,
        "expected": dict(report.expected),
        "agreeing": dict(report.agreeing),
        "undecided": dict(report.undecided),
        "outside": report.outside_count,
        "differences": dict(report.differing),
        "index_bytes": report.index_bytes,
        "listed": [_difference_fields(found) for found in report.listed],
    }


def _difference_fields(found: "Difference") -> dict[str, object]:
    return {
        "code": found.code,
        "topic": found.topic,
        "partition": found.partition,
        "offset": found.offset,
        "key": found.key,
        "event": None
        if found.event is None
        else {"partition": found.event.partition, "offset": found.event.offset},
        "sentence": found.sentence,
        "fix": found.fix,
    }
