"""`toolcalls publish` puts captured streams on a real broker's topic, or says why it did not."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from processor.cli.main import build_app
from processor.core.errors import Misuse
from processor.core.identity import decode_call_key
from processor.publisher import ChunkRefused, DeliveryFailed, Undelivered
from tests.builders import only_completed
from tests.integration.publisher_topics import new_topics, read_topic, unused_address
from tests.unit.publisher.model_streams import ARGUMENTS, DIALECT, folded, interleaved

FORMS: dict[str, Callable[[list[dict[str, object]]], str]] = {
    "sse": lambda chunks: "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks),
    "jsonl": lambda chunks: "".join(f"{json.dumps(chunk)}\n" for chunk in chunks),
    "json": lambda chunks: json.dumps(chunks, indent=2),
}


def publish(bootstrap: str, *arguments: str) -> list[str]:
    """Run the verb; its standard output, by line. Raises what the verb raises."""
    fixed = ["publish", "--kafka-bootstrap", bootstrap, "--dialect", DIALECT, *arguments]
    result = CliRunner().invoke(build_app(), fixed, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_every_form_of_a_capture_is_published_as_a_request_of_its_own(
    kafka_bootstrap: str, topic_prefix: str, tmp_path: Path
) -> None:
    """Server-sent events, JSON lines and an array say the same, each under its own request id."""
    settings = new_topics(kafka_bootstrap, topic_prefix)
    files: list[str] = []
    for suffix, form in FORMS.items():
        path = tmp_path / f"capture.{suffix}"
        path.write_text(form(interleaved()), encoding="utf-8")
        files.append(str(path))
    lines = publish(
        kafka_bootstrap, "--prefix", topic_prefix, "--request-id", "req", "--tenant", "acme", *files
    )
    assert lines == [f"{file}\treq-{n}\tresp_0001" for n, file in enumerate(files, 1)]
    records = [out for _, out in read_topic(kafka_bootstrap, settings.events_topic)]
    for number in range(1, len(files) + 1):
        mine = [out for out in records if decode_call_key(out.key).request_id == f"req-{number}"]
        texts = {name: only_completed([o]).arguments.decode() for name, o in folded(mine).items()}
        assert texts == ARGUMENTS


def test_one_file_keeps_the_request_id(
    kafka_bootstrap: str, topic_prefix: str, tmp_path: Path
) -> None:
    """A number is added only when there are several."""
    settings = new_topics(kafka_bootstrap, topic_prefix)
    path = tmp_path / "capture.sse"
    path.write_text(FORMS["sse"](interleaved()), encoding="utf-8")
    publish(
        kafka_bootstrap, "--topic", settings.events_topic, "--prefix", topic_prefix,
        "--request-id", "req_1", str(path),
    )  # fmt: skip
    records = [out for _, out in read_topic(kafka_bootstrap, settings.events_topic)]
    keys = {decode_call_key(out.key)[:2] for out in records}
    assert keys == {("local", "req_1")}


def test_a_broker_out_of_reach_is_a_named_error(tmp_path: Path) -> None:
    """After the time that Kafka may take, naming request and topic."""
    path = tmp_path / "capture.sse"
    path.write_text(FORMS["sse"](interleaved()), encoding="utf-8")
    # On a busy machine the command line may be told of it before the stream is.
    with pytest.raises((DeliveryFailed, Undelivered), match="req_1"):
        publish(unused_address(), "--request-id", "req_1", "--timeout-s", "0.5", str(path))


def test_a_file_that_is_no_stream_of_the_dialect_is_named(tmp_path: Path) -> None:
    """Nothing of the file is quoted."""
    path = tmp_path / "capture.jsonl"
    path.write_text('{"sk-canary": 1}\n', encoding="utf-8")
    with pytest.raises(ChunkRefused) as caught:
        publish(unused_address(), "--request-id", "req_1", str(path))
    assert "sk-canary" not in str(caught.value)


def test_a_missing_file_is_named() -> None:
    """Before anything of it is published."""
    with pytest.raises(Misuse, match="no-such-file"):
        publish(unused_address(), "--request-id", "req_1", "no-such-file")
