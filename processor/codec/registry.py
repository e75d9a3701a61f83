"""Client of a schema registry with the Confluent REST interface.

Rules:
    An id never changes its meaning, so a schema that was read is kept for ever.
    An unknown id is the record's fault (`Undecodable`), an unreachable registry nobody's
    (`Transient`), refused credentials or an incompatible schema the operator's (`Misuse`).
    Answers are bounded before they are read; their text is not passed on.
"""

import json
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, cast
from urllib.parse import quote, urlsplit

import httpx

from processor.codec.avro import SCHEMA_BYTES_MAX
from processor.codec.dead_letter_codes import Undecodable
from processor.codec.frames import SCHEMA_ID_MAX
from processor.core._record import record
from processor.core.errors import Misuse, Transient

#: A schema inside a JSON text may double in size, by its escapes.
ANSWER_BYTES_MAX: Final = 2 * SCHEMA_BYTES_MAX + 64 * 1024
#: Ids that the registry does not know; kept so that a repeated bad record costs no request.
UNKNOWN_IDS_MAX: Final = 1_024

_RETRIED: Final = frozenset({408, 429, 500, 502, 503, 504})
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"


@record
class RegistrySettings:
    """Where the registry is and how patient we are. Times in seconds; `tries` counts the first."""

    url: str
    user: str | None = None
    password: str | None = None
    timeout_s: float = 3.0
    tries: int = 3
    retry_delay_s: float = 0.2

    def checked(self) -> "RegistrySettings":
        """Return these settings, or refuse the contradictory ones by name."""
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Misuse("registry.url must begin with http:// or https:// and name a host")
        if parts.username or parts.password:
            raise Misuse("registry.url must not carry credentials; use registry.user and .password")
        if (self.user is None) != (self.password is None):
            raise Misuse("registry.user and registry.password are given together or not at all")
        if not 0 < self.timeout_s <= 30:
            raise Misuse("registry.timeout_s must be above 0 and at most 30")
        if not 1 <= self.tries <= 10:
            raise Misuse("registry.tries must be 1 to 10")
        return self


class Registry:
    """A `SchemaLookup` over HTTP. Not thread-safe; blocks at most `tries` times `timeout_s`."""

    def __init__(
        self,
        settings: RegistrySettings,
        *,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings.checked()
        self._sleep = sleep
        self._schemas: dict[int, str] = {}
        self._unknown: set[int] = set()
        user, password = settings.user, settings.password
        self._client = httpx.Client(
            base_url=settings.url.rstrip("/") + "/",
            auth=(user, password) if user is not None and password is not None else None,
            timeout=settings.timeout_s,
            headers={"Accept": _ACCEPT},
            transport=transport,
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def schema(self, schema_id: int) -> str:
        """Text of the schema with this id.

        Raises: `Undecodable` (unknown_schema); `Transient`; `Misuse` for refused credentials.
        """
        known = self._schemas.get(schema_id)
        if known is not None:
            return known
        if schema_id > SCHEMA_ID_MAX or schema_id in self._unknown:
            raise Undecodable("unknown_schema", f"the registry does not know schema id {schema_id}")
        status, answer = self._request("GET", f"schemas/ids/{schema_id}")
        if status == HTTPStatus.NOT_FOUND:
            if len(self._unknown) < UNKNOWN_IDS_MAX:
                self._unknown.add(schema_id)
            raise Undecodable("unknown_schema", f"the registry does not know schema id {schema_id}")
        text = answer.get("schema")
        if status != HTTPStatus.OK or not isinstance(text, str):
            raise Transient(f"the registry answered {status} for schema id {schema_id}")
        if answer.get("schemaType", "AVRO") != "AVRO" or answer.get("references"):
            raise Undecodable(
                "unknown_schema", f"schema id {schema_id} is no Avro schema without references"
            )
        self._schemas[schema_id] = text
        return text

    def register(self, subject: str, schema: str) -> int:
        """Register `schema` under `subject` (`<topic>-value`) and return its id; repeatable.

        Raises: `Misuse` when the registry refuses it as incompatible or not valid; `Transient`.
        """
        path = f"subjects/{quote(subject, safe='')}/versions"
        status, answer = self._request("POST", path, json.dumps({"schema": schema}))
        if status == HTTPStatus.CONFLICT:
            raise Misuse(
                f"the registry refuses the schema of subject {subject} as incompatible with its"
                " earlier versions; compare both, or use another topic"
            )
        if status == HTTPStatus.UNPROCESSABLE_ENTITY:
            raise Misuse(f"the registry refuses the schema of subject {subject} as not valid")
        schema_id = answer.get("id")
        if status != HTTPStatus.OK or type(schema_id) is not int:
            raise Transient(f"the registry answered {status} for subject {subject}")
        self._schemas[schema_id] = schema
        return schema_id

    def _request(
        self, method: str, path: str, body: str | None = None
    ) -> tuple[int, dict[str, object]]:
        settings = self._settings
        last = "no answer"
        for attempt in range(settings.tries):
            if attempt:
                self._sleep(settings.retry_delay_s * 2 ** (attempt - 1))
            try:
                status, answer = self._once(method, path, body)
            except httpx.HTTPError as e:
                last = type(e).__name__
                continue
            if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                raise Misuse(
                    f"the registry at {self._host()} refuses our credentials ({status});"
                    " check registry.user and registry.password"
                )
            if status not in _RETRIED:
                return status, answer
            last = f"status {status}"
        raise Transient(
            f"the schema registry at {self._host()} does not answer ({last},"
            f" {settings.tries} tries); check registry.url and the network"
        )

    def _once(self, method: str, path: str, body: str | None) -> tuple[int, dict[str, object]]:
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"} if body else None
        with self._client.stream(method, path, content=body, headers=headers) as response:
            read = bytearray()
            for part in response.iter_bytes():
                read += part
                if len(read) > ANSWER_BYTES_MAX:
                    raise httpx.DecodingError("the answer is too long", request=response.request)
        try:
            answer: object = json.loads(read)
        except (ValueError, RecursionError):
            answer = None
        return response.status_code, (
            cast("dict[str, object]", answer) if isinstance(answer, dict) else {}
        )

    def _host(self) -> str:
        return urlsplit(self._settings.url).netloc
