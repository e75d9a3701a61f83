"""What the dev stack tells its callers: addresses, the state of each part, progress."""

from typing import Literal

from processor.core._record import record

PartState = Literal["running", "stopped", "external"]
Step = Literal["download", "verify", "prepare", "start", "ready"]


@record
class Endpoints:
    """Where the parts listen; `database_url` holds the generated password."""

    kafka_bootstrap: str
    database_url: str


@record
class PartStatus:
    """One part: `port` is 0 when unknown, `since_ms` is epoch milliseconds, None when stopped."""

    name: Literal["kafka", "postgres"]
    state: PartState
    pid: int | None
    port: int
    since_ms: int | None
    log_path: str


@record
class StackStatus:
    """The stack of one directory; `endpoints` is None unless both parts can be used."""

    directory: str
    kafka: PartStatus
    postgres: PartStatus
    endpoints: Endpoints | None


@record
class Progress:
    """A step that has begun, or its advance: jars and bytes are counted while downloading."""

    step: Step
    text: str
    jar_count: int = 0
    jar_bytes: int = 0
