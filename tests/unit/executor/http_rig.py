"""A runner whose one tool is an HTTP endpoint of a catalogue."""

from collections.abc import Generator
from contextlib import contextmanager

from processor.core.outcomes import EffectClass
from processor.executor.remote import RemoteTools
from processor.executor.tools import ToolSet
from processor.policy.catalogue import parse_catalogue
from tests.unit.executor.runner_rig import Rig

ENVIRONMENT = {"PAY_TOKEN": "CANARY-token"}


def catalogue_text(url: str, effect_class: EffectClass, more: str = "", tool: str = "") -> str:
    """A catalogue with the tool refund at `url`."""
    return f"""
version: 1
tools:
  refund:
    effect_class: {effect_class}
    timeout_s: 5
    {tool}
    http: {{url: "{url}", headers: {{Authorization: "Bearer ${{PAY_TOKEN}}"}}{more}}}
"""


@contextmanager
def remote_rig(text: str) -> Generator[Rig]:
    """The runner of this catalogue; its connections are closed at the end."""
    catalogue = parse_catalogue(text)
    remote = RemoteTools(catalogue, ENVIRONMENT)
    rig = Rig(ToolSet(remote.declarations), catalogue=catalogue, lookups=remote.lookups)
    try:
        yield rig
    finally:
        remote.close()
