"""Examination of the schema registry: would it take the schemas that we write?

Rules:
    Nothing is registered. A subject that does not exist yet is fine.
    Answers are bounded, and their text is not passed on.
"""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, cast
from urllib.parse import quote, urlsplit

import httpx

from processor.audit.doctor_report import Diagnosis
from processor.codec.records import (
    CALL_COMPLETED,
    CALL_REJECTED,
    CALL_RESULT,
    RESPONSE_USAGE,
    STREAM_EVENT,
)
from processor.codec.registry import RegistrySettings
from processor.runtime.topics import TopicNames

_ANSWER_BYTES_MAX: Final = 64 * 1024


def subjects_of(topics: TopicNames) -> Mapping[str, str]:
    """Text of the schema of each subject that this program writes."""
    return {
        f"{topics.events}-value": STREAM_EVENT.text,
        f"{topics.completed}-value": CALL_COMPLETED.text,
        f"{topics.rejected}-value": CALL_REJECTED.text,
        f"{topics.results}-value": CALL_RESULT.text,
        f"{topics.usage}-value": RESPONSE_USAGE.text,
    }


def examine_registry(
    settings: RegistrySettings,
    subjects: Mapping[str, str],
    told: Diagnosis,
    *,
    transport: httpx.BaseTransport | None = None,
) -> None:
    """Ask about each subject. Bounded by `timeout_s` for each. Raises: `Misuse` for settings."""
    settings = settings.checked()
    host = urlsplit(settings.url).netloc
    user, password = settings.user, settings.password
    auth = (user, password) if user is not None and password is not None else None
    base = settings.url.rstrip("/") + "/"
    with httpx.Client(
        base_url=base, auth=auth, timeout=settings.timeout_s, transport=transport
    ) as client:
        for subject, schema in subjects.items():
            try:
                status, answer = _ask(client, subject, schema)
            except (httpx.HTTPError, ValueError) as e:
                told.find(
                    "registry_unreachable",
                    f"registry {host}",
                    f"asking about {subject}: {type(e).__name__}",
                    "check registry.url and the network",
                )
                return
            _judge(told, host, subject, status, answer)


def _ask(client: httpx.Client, subject: str, schema: str) -> tuple[int, object]:
    path = f"compatibility/subjects/{quote(subject, safe='')}/versions/latest"
    body = json.dumps({"schema": schema})
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    with client.stream("POST", path, content=body, headers=headers) as response:
        read = bytearray()
        for part in response.iter_bytes():
            read += part
            if len(read) > _ANSWER_BYTES_MAX:
                raise ValueError("the answer is too long")
        if response.status_code != HTTPStatus.OK:
            return response.status_code, None
        return response.status_code, json.loads(read)


def _judge(told: Diagnosis, host: str, subject: str, status: int, answer: object) -> None:
    where = f"registry {host}"
    if status == HTTPStatus.NOT_FOUND:
        told.note(f"registry: {subject} is not registered yet")
    elif status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        told.find(
            "registry_denied",
            where,
            f"it refuses our credentials for {subject} ({status})",
            "check the registry's user and password",
        )
    elif status != HTTPStatus.OK or not isinstance(answer, dict):
        told.find(
            "registry_refused",
            where,
            f"it answered {status} for {subject}",
            "see the registry's log",
        )
    elif cast("dict[str, object]", answer).get("is_compatible") is not True:
        told.find(
            "schema_incompatible",
            where,
            f"the schema that this program writes does not fit the latest version of {subject}",
            "compare both: other readers of the topic would fail; use the release that wrote the"
            " latest version, or another topic",
        )
