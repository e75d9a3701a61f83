"""Runs the demo: the servers, the steps of the story, what is shown and what is checked."""

import secrets
import tempfile
from pathlib import Path

from processor import devstack
from processor.cli import demo_story as story
from processor.cli.console import progress_line
from processor.cli.demo_show import Show
from processor.config import Environment, read_environment
from processor.devstack.places import default_directory
from processor.runtime.topics import TopicNames


def run_demo(*, directory: Path | None, picture: Path | None, keep: bool) -> None:
    """Run the demo once on the stack in `directory`; with `keep` the stack stays up.

    Raises: `DemoFailed` when something is not as it must be.
    """
    environment = read_environment()
    home = directory or default_directory().with_name("demo")
    show = Show(picture=picture is not None)
    # A prefix of its own, so that a second demo on the same servers begins with empty topics.
    prefix = f"demo-{secrets.token_hex(3)}."
    try:
        with tempfile.TemporaryDirectory(prefix="toolcalls-demo-") as folder:
            place = _start(show, home, environment, prefix, folder)
            _tell(show, place)
        if picture is not None:
            show.save(picture)
    finally:
        if keep:
            show.keep_hint(home, prefix)
        else:
            devstack.down(home)
    if show.failed:
        raise story.DemoFailed(f"{len(show.failed)} checks failed: {'; '.join(show.failed)}")


def _start(
    show: Show, home: Path, environment: Environment, prefix: str, folder: str
) -> story.Place:
    with progress_line() as line:
        endpoints = devstack.up(
            home,
            on_progress=lambda progress: line.show(progress.text),
            kafka_bootstrap=environment.kafka_bootstrap,
            database_url=environment.database_url,
        )
        line.show("making topics and the ledger's schema")
        place = story.Place(
            endpoints.kafka_bootstrap,
            endpoints.database_url,
            TopicNames.prefixed(prefix),
            prefix,
            f"req_{secrets.token_hex(3)}",
            Path(folder),
        )
        story.prepare(place)
    show.started(place)
    return place


def _tell(show: Show, place: story.Place) -> None:
    with story.Outputs(place) as outputs, story.LedgerView(place) as ledger:
        with story.assembler(place) as assembling:
            _tell_assembly(show, place, outputs, assembling)
            with story.executor(place) as executing:
                _tell_execution(show, place, ledger, executing)
                _tell_redelivery(show, place, outputs, ledger, assembling, executing)
            _tell_crash(show, place, outputs, ledger, assembling)
        _tell_checkpoints(show, outputs, ledger)


def _tell_assembly(
    show: Show, place: story.Place, outputs: story.Outputs, assembling: story.Process
) -> None:
    story.publish(place, "two_calls.sse", place.request(1))
    story.publish(place, "cut_call.sse", place.request(2))
    show.fragments(story.fragments(place))
    verdicts = outputs.wait(assembling, completed=2, rejected=1)
    show.verdicts(verdicts)
    found = {call.key.call_id: call.arguments for call in verdicts.completed}
    show.check("both calls have their exact arguments", passed=found == story.EXPECTED)
    reasons = [(call.key.call_id, call.reason) for call in verdicts.rejected]
    show.check("the cut call is rejected as truncated", passed=reasons == [("call_C", "truncated")])


def _tell_execution(
    show: Show, place: story.Place, ledger: story.LedgerView, executing: story.Process
) -> None:
    keys = [f"{place.request(1)}:{call_id}" for call_id in story.EXPECTED]
    for key in keys:
        ledger.wait_state(executing, key, "succeeded")
    show.results([(key, ledger.state(key), ledger.result(key)) for key in keys])
    show.check("each call took effect once", passed=story.effects(place) == dict.fromkeys(keys, 1))


def _tell_redelivery(
    show: Show,
    place: story.Place,
    outputs: story.Outputs,
    ledger: story.LedgerView,
    assembling: story.Process,
    executing: story.Process,
) -> None:
    before = story.effects(place)
    results = {key: ledger.result(key) for key in before}
    story.pass_linger()
    story.publish(place, "two_calls.sse", place.request(1))
    outputs.wait(assembling, completed=4, rejected=1)
    story.wait_executed(place, executing)
    after = story.effects(place)
    show.redelivery(before, after)
    same = after == before and results == {key: ledger.result(key) for key in before}
    show.check("the redelivery had no second effect, the stored results stand", passed=same)


def _tell_crash(
    show: Show,
    place: story.Place,
    outputs: story.Outputs,
    ledger: story.LedgerView,
    assembling: story.Process,
) -> None:
    key = f"{place.request(3)}:call_D"
    with story.executor(place, crash_at="after_effect") as crashing:
        story.publish(place, "refund.sse", place.request(3))
        outputs.wait(assembling, completed=5, rejected=1)
        story.wait_killed(crashing)
        status = crashing.returncode
    state = ledger.state(key)
    with story.executor(place) as executing:
        ledger.wait_state(executing, key, "in_doubt")
    show.crash(status, state, ledger.history(key))
    show.check("the executor was killed between effect and record", passed=status == -9)
    show.check(
        "the ledger says in_doubt, and the refund ran once",
        passed=ledger.state(key) == "in_doubt" and story.effects(place).get(key) == 1,
    )


def _tell_checkpoints(show: Show, outputs: story.Outputs, ledger: story.LedgerView) -> None:
    call = next(c for c in outputs.seen.completed if c.key.call_id == "call_A")
    view = ledger.call(call.key.idempotency_key)
    show.checkpoints(call, view)
    deliveries = sum(1 for c in outputs.seen.completed if c.key == call.key)
    show.check(
        "one key, two deliveries, one effect",
        passed=view is not None and view.begun == 1 and deliveries == 2,
    )
