"""An MCP server in plain Python, of the protocol's older revisions, that answers as it is told.

Usage: plain_mcp_program.py LEDGER_FILE MODE. The mode is what `tools/call` does after its effect.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

NOTES, MODE = Path(sys.argv[1]), sys.argv[2]
TOOL: dict[str, object] = {"name": "refund", "inputSchema": {"type": "object"}}
INITIALIZED: dict[str, object] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "plain", "version": "1"},
}


def say(message: dict[str, object]) -> None:
    """Write one line."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def result(content: object, **more: object) -> dict[str, object]:
    """A result of a tool."""
    return {"result": {"content": content, **more}}


def error(code: int) -> dict[str, object]:
    """A JSON-RPC error."""
    return {"error": {"code": code, "message": "CANARY in the message"}}


ANSWERS: dict[str, Callable[[], dict[str, object]]] = {
    "ok": lambda: result([{"type": "text", "text": "paid"}]),
    "noisy": lambda: result([{"type": "text", "text": "paid"}]),
    "not_a_result": lambda: {"result": {"content": "CANARY"}},
    "invalid_params": lambda: error(-32602),
    "no_such_method": lambda: error(-32601),
    "internal": lambda: error(-32603),
    "own_code": lambda: error(4711),
}


def call(identifier: object, params: dict[str, object]) -> None:
    """Have the effect, then answer as the mode says."""
    with NOTES.open("a") as notes:
        notes.write(json.dumps(params) + "\n")
    if MODE == "noisy":
        sys.stdout.write("CANARY: a line that is no message\n")
    if MODE == "closes":
        sys.stdout.close()
        sys.exit(0)
    say({"id": identifier, **ANSWERS[MODE]()})


def main() -> None:
    """Answer until the pipe closes."""
    for line in sys.stdin:
        message = json.loads(line)
        method, identifier = message.get("method"), message.get("id")
        if identifier is None:
            continue
        if method == "initialize":
            say({"id": identifier, "result": INITIALIZED})
        elif method == "tools/list":
            say({"id": identifier, "result": {"tools": [TOOL]}})
        elif method == "tools/call":
            call(identifier, message["params"])
        else:
            say({"id": identifier, **error(-32601)})


if __name__ == "__main__":
    main()
