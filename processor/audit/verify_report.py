"""What a verification found: a closed list of differences, each with what to do; never content."""

from collections import Counter
from typing import Final, Literal

from processor.audit.verify_index import Place
from processor.audit.verify_plan import PartitionPlan
from processor.core._record import record
from processor.core.identity import IdentityError, decode_call_key

DifferenceCode = Literal[
    "missing", "doubled", "altered", "headers_altered", "other_verdict", "invented"
]
UndecidedCause = Literal["open_before_range", "output_deleted"]

#: Output topics in the order of their numbers in the index.
KINDS: Final = ("completed", "rejected", "deadletter")
COMPLETED: Final = 0
REJECTED: Final = 1
LISTED_MAX: Final = 100

SENTENCES: Final[dict[DifferenceCode, str]] = {
    "missing": "the events decide this output, and the topic does not have it",
    "doubled": "the same output lies there once more",
    "altered": "key or value are not, byte for byte, what the events say",
    "headers_altered": "key and value are as they must be, the headers are not",
    "other_verdict": "the events say another verdict than this topic holds",
    "invented": "no event decides this record",
}
FIXES: Final[dict[DifferenceCode, str]] = {
    "missing": (
        "look at the call with `toolcalls inspect`; find out who deleted records or moved the"
        " group's offsets; the application may ask again under a new request id"
    ),
    "doubled": (
        "the ledger lets it take effect once; find out whether a second group writes these topics,"
        " or the group's offsets were deleted or moved back"
    ),
    "altered": (
        "stop the executors of this tool; only the assembler may have Write on this topic: look at"
        " its rights and at who produced to it; give every catalogue and the release of that time"
    ),
    "headers_altered": "find out which release or program wrote the record",
    "other_verdict": (
        "stop the executors of this tool, then as for altered; see what the ledger did with it"
    ),
    "invented": (
        "stop the executors of this tool: somebody other than the assembler has Write on this"
        " topic; take the right away, and see what the ledger did with the call"
    ),
}


@record
class Difference:
    """One thing that is not as the events say. Offsets are those of the named topic.

    `event` is the record of the events topic that decides or is said to decide.
    """

    code: DifferenceCode
    topic: str
    partition: int | None
    offset: int | None
    key: str | None
    event: Place | None

    @property
    def sentence(self) -> str:
        """What is wrong."""
        return SENTENCES[self.code]

    @property
    def fix(self) -> str:
        """What to do."""
        return FIXES[self.code]


class Report:
    """Counts everything, lists the first `listed_max` differences."""

    def __init__(self, plans: list[PartitionPlan], *, listed_max: int = LISTED_MAX) -> None:
        self.plans = plans
        self.listed_max = listed_max
        self.events_read = 0
        self.open_at_end = 0
        self.expected: Counter[str] = Counter()
        self.agreeing: Counter[str] = Counter()
        self.differing: Counter[DifferenceCode] = Counter()
        self.undecided: Counter[UndecidedCause] = Counter()
        #: Records of the output topics that belong to other stretches or other events topics.
        self.outside_count = 0
        self.index_bytes = 0
        self.listed: list[Difference] = []

    @property
    def agrees(self) -> bool:
        """True when no difference was found."""
        return not self.differing

    def differs(self, difference: Difference) -> None:
        """Count a difference, and list it while there is room."""
        self.differing[difference.code] += 1
        if len(self.listed) < self.listed_max:
            self.listed.append(difference)

    @property
    def is_full(self) -> bool:
        """True when no further difference is listed."""
        return len(self.listed) >= self.listed_max


def shown_key(key: bytes | None) -> str | None:
    """A key for people. One that is no call key is only measured: it could hold anything."""
    if key is None:
        return None
    try:
        decode_call_key(key)
    except IdentityError:
        return f"(no call key, {len(key)} bytes)"
    return key.decode()
