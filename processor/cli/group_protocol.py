"""The option that chooses the group protocol, for the verbs that run the exactly-once loop."""

from typing import Annotated

import typer

GroupProtocolOption = Annotated[
    str | None,
    typer.Option(help="Group protocol: classic, or consumer (KIP-848); one for the whole group."),
]
