"""Builders of completed calls: a test names only what it is about."""

import hashlib
import time

from processor.core.canonical import canonical_sha256
from processor.core.events import ArgumentsFormat
from processor.core.evidence import Evidence
from processor.core.identity import CallKey
from processor.core.outcomes import CallCompleted, EffectClass, Release
from processor.core.strict_json import Parsed, parse_strict

ARGUMENTS = b'{"order":"ORDER-1001"}'


def completed_call(
    arguments: bytes = ARGUMENTS,
    *,
    number: int = 1001,
    tenant: str = "acme",
    tool: str = "refund",
    effect_class: EffectClass = "at_most_once",
    release: Release = "response_end",
    arguments_format: ArgumentsFormat = "json",
    ended_at_ms: int | None = None,
) -> CallCompleted:
    """A call that the assembler has released, by default just now."""
    now_ms = int(time.time() * 1000)
    parsed = parse_strict(arguments, depth_max=64) if arguments_format == "json" else None
    return CallCompleted(
        key=CallKey(tenant, f"req_{number}", f"resp_{number}", "call_1"),
        tool=tool,
        dialect="openai-chat",
        arguments=arguments,
        arguments_format=arguments_format,
        arguments_sha256=hashlib.sha256(arguments).digest(),
        canonical_sha256=canonical_sha256(parsed) if isinstance(parsed, Parsed) else None,
        effect_class=effect_class,
        release=release,
        evidence=Evidence(
            topic="toolcalls.events.v1",
            partition=0,
            first_offset=1,
            last_offset=4,
            events=4,
            fragments=2,
            duplicates_dropped=0,
            started_at_ms=(ended_at_ms or now_ms) - 200,
            ended_at_ms=now_ms if ended_at_ms is None else ended_at_ms,
            final_copy="absent",
            outcome="completed",
        ),
    )
