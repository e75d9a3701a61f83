"""An MCP server written with the official SDK; tests start it as a child process and kill it.

Usage: mcp_program.py LEDGER_FILE [PORT]. With a port it speaks streamable HTTP, else stdio. Each effect is a
line of the file: the idempotency key from `_meta`, and the arguments.
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp_types import ToolAnnotations

NOTES = Path(sys.argv[1])
server = MCPServer("bank", log_level="ERROR")


def _note(context: Context, order: str) -> str:
    meta = dict(context.request_context.meta or {})
    line = json.dumps(
        {
            "key": meta.get("idempotencyKey"),
            "trace": meta.get("traceparent"),
            "order": order,
            "pid": os.getpid(),
        }
    )
    with NOTES.open("a") as notes:
        notes.write(line + "\n")
    return line


@server.tool(annotations=ToolAnnotations(read_only_hint=False, idempotent_hint=False))
def refund(order: str, context: Context) -> dict[str, str]:
    """Pay back."""
    _note(context, order)
    return {"refunded": order}


@server.tool()
def declined(order: str, context: Context) -> str:
    """Say no."""
    raise ValueError(f"the order {order} cannot be refunded")


@server.tool()
def dies(order: str, context: Context) -> str:
    """Have the effect, then be killed."""
    _note(context, order)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@server.tool()
def hangs(order: str, context: Context) -> str:
    """Have the effect, and never answer."""
    _note(context, order)
    threading.Event().wait()
    return "never"


@server.tool()
def environment(order: str, context: Context) -> list[str]:
    """Names of the variables that this process was given."""
    return sorted(os.environ)


def main() -> None:
    """Serve until the pipe closes or the process is killed."""
    if len(sys.argv) > 2:
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run("stdio")


if __name__ == "__main__":
    main()
