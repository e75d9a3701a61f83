"""Settings from the environment and the command line, merged once, all errors at once.

Rules:
    Every variable begins with `TOOLCALLS_`; an option of the command line wins over it.
    The rooms define their own settings records; only this file and the command line know where
    the values come from.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from processor.core.errors import Misuse
from processor.core.expiry import ExpiryLimits
from processor.core.limits import ARGUMENTS_BYTES_CEILING, FRAGMENTS_CEILING, Limits
from processor.runtime.crash_points import CrashPoint, crash_at, never_crash
from processor.runtime.settings import (
    BUFFERED_BYTES_MAX,
    CHECKPOINT_AFTER_MS,
    EXPIRY_MARGIN_MS,
    SLOT_PATTERN,
    CommitSettings,
    GroupProtocol,
    RuntimeSettings,
)
from processor.runtime.slot import SLOT_WAIT_S

if TYPE_CHECKING:
    from processor.policy.catalogue import Catalogue

_PREFIX: Final = "TOOLCALLS_"


class Environment(BaseModel):
    """Every setting that may come from the environment, with its unit in the name."""

    model_config = ConfigDict(extra="forbid")

    kafka_bootstrap: str | None = None
    database_url: str | None = None
    topic_prefix: str = ""
    group: str = Field(default="toolcalls-assembler", min_length=1)
    normaliser_group: str = Field(default="toolcalls-normaliser", min_length=1)
    slot: str = Field(default="0", pattern=SLOT_PATTERN)
    start: Literal["earliest", "latest"] | None = None
    group_protocol: GroupProtocol = "classic"
    slot_wait_s: int = Field(default=SLOT_WAIT_S, ge=0)
    transaction_timeout_ms: int = Field(default=CommitSettings().transaction_timeout_ms, ge=2_000)
    session_timeout_ms: int = Field(default=CommitSettings().session_timeout_ms, ge=1)
    wait_for_response: bool = False
    commit_interval_ms: int = Field(default=CommitSettings().interval_ms, ge=1)
    arguments_bytes_max: int = Field(
        default=Limits().arguments_bytes_max, ge=1, le=ARGUMENTS_BYTES_CEILING
    )
    fragments_max: int = Field(default=Limits().fragments_max, ge=1, le=FRAGMENTS_CEILING)
    open_calls_max: int = Field(default=Limits().open_calls_max, ge=1)
    linger_ms: int = Field(default=Limits().linger_ms, ge=1)
    call_idle_ttl_ms: int = Field(default=ExpiryLimits().idle_ttl_ms, ge=1)
    call_max_life_ms: int = Field(default=ExpiryLimits().max_life_ms, ge=1)
    expiry_margin_ms: int = Field(default=EXPIRY_MARGIN_MS, ge=0)
    checkpoint_after_ms: int = Field(default=CHECKPOINT_AFTER_MS, ge=0)
    buffered_bytes_max: int = Field(default=BUFFERED_BYTES_MAX, ge=1)
    catalogue: str | None = None
    crash_at: str | None = None
    allow_crash_points: bool = False


def read_environment(**overrides: object) -> Environment:
    """Read and check the environment; an override that is not None wins.

    Raises: `Misuse` naming every wrong variable, without its value.
    """
    given: dict[str, object] = {
        name: os.environ[variable]
        for name in Environment.model_fields
        if (variable := _PREFIX + name.upper()) in os.environ
    }
    given |= {name: value for name, value in overrides.items() if value is not None}
    try:
        return Environment.model_validate(given)
    except ValidationError as e:
        wrong = [
            f"{_PREFIX}{'_'.join(str(part) for part in error['loc']).upper()}: {error['msg']}"
            for error in e.errors(include_input=False, include_url=False)
        ]
        raise Misuse("settings refused: " + "; ".join(wrong)) from None


def read_catalogue(path: str) -> "Catalogue":
    """Read `catalogue.yaml`. Raises: `Misuse` naming the file, the line and the field."""
    # Imported here: a start without a catalogue need not wait for YAML and JSON Schema.
    from processor.policy.catalogue import parse_catalogue

    try:
        return parse_catalogue(Path(path).read_text(), path)
    except OSError as e:
        raise Misuse(f"the catalogue {path} cannot be read: {e.strerror}") from None
    except UnicodeDecodeError:
        raise Misuse(f"the catalogue {path} is not UTF-8") from None


def kafka_bootstrap(environment: Environment) -> str:
    """The broker's address. Raises: `Misuse` with the two ways to give it."""
    if not environment.kafka_bootstrap:
        raise Misuse(
            "no Kafka address: give --kafka-bootstrap HOST:PORT or set TOOLCALLS_KAFKA_BOOTSTRAP"
            " (`toolcalls dev up` starts a broker and prints the line)"
        )
    return environment.kafka_bootstrap


def runtime_settings(
    environment: Environment, events_topic: str, *, accept_reset: bool
) -> RuntimeSettings:
    """The assembler's settings, checked."""
    return RuntimeSettings(
        bootstrap=kafka_bootstrap(environment),
        input_topic=events_topic,
        group=environment.group,
        slot=environment.slot,
        start=environment.start,
        accept_reset=accept_reset,
        group_protocol=environment.group_protocol,
        wait_for_response=environment.wait_for_response,
        commit=_commit_settings(environment),
        limits=Limits(
            arguments_bytes_max=environment.arguments_bytes_max,
            fragments_max=environment.fragments_max,
            open_calls_max=environment.open_calls_max,
            linger_ms=environment.linger_ms,
        ),
        expiry=ExpiryLimits(environment.call_idle_ttl_ms, environment.call_max_life_ms),
        expiry_margin_ms=environment.expiry_margin_ms,
        checkpoint_after_ms=environment.checkpoint_after_ms,
        buffered_bytes_max=environment.buffered_bytes_max,
    ).checked()


def normaliser_settings(
    environment: Environment, chunks_topic: str, *, accept_reset: bool
) -> RuntimeSettings:
    """The normaliser's settings, checked."""
    return RuntimeSettings(
        kafka_bootstrap(environment),
        chunks_topic,
        group=environment.normaliser_group,
        slot=environment.slot,
        start=environment.start,
        accept_reset=accept_reset,
        group_protocol=environment.group_protocol,
        commit=_commit_settings(environment),
    ).checked()


def _commit_settings(environment: Environment) -> CommitSettings:
    return CommitSettings(
        interval_ms=environment.commit_interval_ms,
        transaction_timeout_ms=environment.transaction_timeout_ms,
        session_timeout_ms=environment.session_timeout_ms,
    )


def crash_point(environment: Environment) -> CrashPoint:
    """Where the process is to kill itself, for tests. Raises: `Misuse` unless it was allowed."""
    if not environment.crash_at:
        return never_crash
    if not environment.allow_crash_points:
        raise Misuse("TOOLCALLS_CRASH_AT counts only with TOOLCALLS_ALLOW_CRASH_POINTS=1")
    return crash_at(environment.crash_at)
