"""A program that runs one call under a crash point; the crash tests kill it and start it again.

Usage: executor_child.py DATABASE_URL EFFECT_CLASS. Prints the disposition and the word of the ledger.
"""

import os
import secrets
import sys
from typing import cast

import psycopg

from processor.core.outcomes import EffectClass
from processor.executor import ToolContext, ToolSet
from processor.executor.crash_points import crash_point_of
from processor.executor.ports import AllowAll, Silent, SystemClock
from processor.executor.runner import CallRunner, RunnerSettings
from processor.executor.served import serve
from processor.ledger.port import Source
from processor.ledger.postgres import PostgresLedger, PostgresSettings
from tests.unit.executor.calls import completed_call


def tools_of(database_url: str, effect_class: EffectClass) -> ToolSet:
    """One tool that leaves a row for every effect, as its class does."""
    tools = ToolSet()

    @tools.tool(name="refund", effect_class=effect_class, timeout_s=20)
    def refund(order: str, context: ToolContext) -> dict[str, str]:
        row = (context.idempotency_key, context.fence)
        if effect_class == "transactional":
            connection = cast("psycopg.Connection", context.connection)
            connection.execute("INSERT INTO effect (key, fence) VALUES (%s, %s)", row)
            return {"order": order}
        with psycopg.connect(database_url) as connection:
            # A downstream system that dedupes by the key keeps the first effect only.
            once = effect_class == "idempotent"
            connection.execute(
                "INSERT INTO effect (key, fence) SELECT %s, %s"
                " WHERE NOT %s OR NOT EXISTS (SELECT 1 FROM effect WHERE key = %s)",
                (*row, once, context.idempotency_key),
            )
        return {"order": order}

    return tools


def main() -> None:
    """Run the call."""
    database_url, effect_class = sys.argv[1], cast("EffectClass", sys.argv[2])
    clock = SystemClock()
    with PostgresLedger(PostgresSettings(database_url)) as ledger:
        runner = CallRunner(
            ledger,
            serve(tools_of(database_url, effect_class)),
            owner=f"child-{secrets.token_hex(4)}",
            settings=RunnerSettings(),
            clock=clock,
            authoriser=AllowAll(),
            observer=Silent(),
            crash_point=crash_point_of(os.environ),
        )
        ran = runner.run(
            completed_call(effect_class=effect_class),
            Source("toolcalls.completed.v1", 0, 0),
            {},
        )
    sys.stdout.write(f"{ran.disposition} {ran.word}\n")


if __name__ == "__main__":
    main()
