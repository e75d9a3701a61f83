"""How the demo looks: tables in a terminal, plain lines in a pipe, and a picture on demand."""

from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from processor.cli.demo_story import Fragment, Place, Verdicts
from processor.core.outcomes import CallCompleted
from processor.ledger.port import CallView, Transition

_PICTURE_COLUMNS: Final = 112
_CALL_STYLES: Final = ("cyan", "magenta", "yellow", "blue")


class Show:
    """Prints the demo and remembers which checks failed."""

    def __init__(self, *, picture: bool) -> None:
        self.failed: list[str] = []
        if picture:
            self._console = Console(
                record=True, width=_PICTURE_COLUMNS, force_terminal=True, highlight=False
            )
        else:
            self._console = Console(highlight=False)
            if not self._console.is_terminal:
                self._console = Console(highlight=False, width=_PICTURE_COLUMNS)

    def save(self, path: Path) -> None:
        """Write everything shown so far as an SVG picture."""
        self._console.save_svg(str(path), title="toolcalls demo")

    def check(self, text: str, *, passed: bool) -> None:
        """One line with a mark; a failed check makes the demo fail."""
        mark = "[green]ok[/]    " if passed else "[red]FAILED[/]"
        self._console.print(f"  {mark} {escape(text)}")
        if not passed:
            self.failed.append(text)

    def started(self, place: Place) -> None:
        """The servers are there."""
        self._console.print(
            f"Kafka at {place.bootstrap}, Postgres ready, topics {escape(place.topics.events)} and others"
        )

    def fragments(self, fragments: list[Fragment]) -> None:
        """The fragments as they arrived."""
        self._heading("1. Fragments, as they arrived: three calls of two responses")
        table = self._table("call", "seq", "fragment", "partition", "offset")
        calls = list(dict.fromkeys(f.key.call_id for f in fragments))
        for fragment in fragments:
            style = _CALL_STYLES[calls.index(fragment.key.call_id) % len(_CALL_STYLES)]
            table.add_row(
                fragment.key.call_id,
                str(fragment.seq),
                escape(fragment.text),
                str(fragment.partition),
                str(fragment.offset),
                style=style,
            )
        self._console.print(table)

    def verdicts(self, verdicts: Verdicts) -> None:
        """Completed and rejected calls."""
        self._heading("2. Verdicts of the assembler")
        table = self._table("call", "tool", "verdict", "arguments or reason")
        for call in verdicts.completed:
            table.add_row(
                call.key.call_id, call.tool, "[green]completed[/]", escape(call.arguments.decode())
            )
        for rejected in verdicts.rejected:
            table.add_row(
                rejected.key.call_id,
                rejected.tool or "",
                "[red]rejected[/]",
                f"{rejected.reason} (checkpoint {rejected.stage})",
            )
        self._console.print(table)

    def results(self, rows: list[tuple[str, str, str]]) -> None:
        """What the executor's tools answered, from the ledger."""
        self._heading("3. Executed, each under its idempotency key")
        table = self._table("idempotency key", "ledger", "stored result")
        for key, state, result in rows:
            table.add_row(key, f"[green]{state}[/]", escape(result))
        self._console.print(table)

    def redelivery(self, before: dict[str, int], after: dict[str, int]) -> None:
        """Effects before and after the whole stream came once more."""
        self._heading("4. The whole stream is delivered once more")
        table = self._table("idempotency key", "effects before", "effects after")
        for key, count in after.items():
            table.add_row(key, str(before.get(key, 0)), str(count))
        self._console.print(table)

    def crash(self, status: int | None, state: str, history: list[Transition]) -> None:
        """An executor killed between effect and record, and what the ledger says."""
        self._heading("5. An executor is killed after the effect, before its record")
        self._console.print(
            f"  executor ended by signal {-(status or 0)}; the ledger said [yellow]{state}[/] then."
            " When the lease was over:"
        )
        table = self._table("from", "to", "why")
        for step in history:
            table.add_row(step.from_state or "", step.to_state, step.why or "")
        self._console.print(table)
        self._console.print(
            "  A refund cannot be asked about, so nobody repeats it by guesswork: a person settles it."
        )

    def checkpoints(self, call: CallCompleted, view: CallView | None) -> None:
        """The six checkpoints of one call with their evidence."""
        self._heading(f"6. The six checkpoints of {call.key.call_id}")
        proof = call.evidence
        canonical = call.canonical_sha256.hex()[:16] if call.canonical_sha256 else "none"
        begun = view.begun if view else 0
        table = self._table("checkpoint", "evidence")
        table.add_row("identity", escape(call.key.encode().decode()))
        table.add_row(
            "buffer", f"{proof.fragments} fragments, {len(call.arguments)} bytes, joined once"
        )
        table.add_row(
            "ordering",
            f"{proof.events} events without a gap, offsets {proof.first_offset} to"
            f" {proof.last_offset} of partition {proof.partition},"
            f" {proof.duplicates_dropped} repeats dropped",
        )
        table.add_row(
            "completion",
            f"released at {call.release}, response {proof.outcome}, final copy {proof.final_copy}",
        )
        table.add_row("validation", f"strict JSON object, RFC 8785 sha256 {canonical}...")
        table.add_row("replay", f"key {call.key.idempotency_key}, begun {begun} time(s)")
        self._console.print(table)

    def keep_hint(self, home: Path, prefix: str) -> None:
        """How to go on with a stack that was kept."""
        self._console.print(
            f'\nThe stack is up: eval "$(toolcalls dev up --dir {home})" sets its addresses,'
            f" export TOOLCALLS_TOPIC_PREFIX={prefix} names the demo's topics, `toolcalls ledger"
            f" list` shows its calls, `toolcalls dev down --dir {home}` ends it.",
            soft_wrap=True,
        )

    def _heading(self, text: str) -> None:
        self._console.print(f"\n[bold]{escape(text)}[/]")

    def _table(self, *columns: str) -> Table:
        table = Table(*columns, box=None, pad_edge=False, header_style="dim")
        table.padding = (0, 2, 0, 2)
        return table
