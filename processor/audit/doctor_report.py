"""What an examination says: findings, each with its fix, and notes that need no step."""

from collections.abc import Iterable
from typing import Final

from processor.core._record import field, record
from processor.core.errors import ProcessorError

#: Findings that say that a server did not answer: nothing behind them was looked at.
UNREACHED: Final = frozenset({"kafka_unreachable", "database_unreachable", "registry_unreachable"})


@record
class Diagnosed:
    """One thing that is wrong: a stable code, where, a sentence, and the step that mends it."""

    code: str
    subject: str
    sentence: str
    fix: str


@record
class Diagnosis:
    """Everything found so far; notes are facts for people."""

    findings: list[Diagnosed] = field(default_factory=list[Diagnosed])
    notes: list[str] = field(default_factory=list[str])

    def find(self, code: str, subject: str, sentence: str, fix: str) -> None:
        """Add a finding."""
        self.findings.append(Diagnosed(code, subject, sentence, fix))

    def find_refusal(self, error: ProcessorError, subject: str, fix: str) -> None:
        """Add a finding for a question that was not answered."""
        self.find(error.code, subject, str(error).rstrip("."), fix)

    def note(self, sentence: str) -> None:
        """Add a fact."""
        self.notes.append(sentence)

    def extend(self, others: Iterable[Diagnosed]) -> None:
        """Add findings."""
        self.findings.extend(others)

    @property
    def was_cut_short(self) -> bool:
        """True when a server did not answer."""
        return any(f.code in UNREACHED for f in self.findings)
