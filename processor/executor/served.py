"""A tool as it is served: the function's declaration and the catalogue's entry made one.

Rules:
    What both state must agree, otherwise the executor does not start.
    Both schemas are checked; the signature of the function is checked like a schema.
    The arguments that a tool gets are parsed from the exact bytes of the record.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Final, cast

from processor.core._record import record
from processor.core.canonical import sha256
from processor.core.errors import Misuse
from processor.core.limits import Limits
from processor.core.outcomes import CallCompleted, EffectClass
from processor.core.strict_json import Fault, parse_strict
from processor.executor.context import ToolContext
from processor.executor.tools import ToolDeclaration, ToolSet
from processor.policy.catalogue import (
    CONCURRENCY_DEFAULT,
    MAX_ATTEMPTS_DEFAULT,
    REDRIVE_WINDOW_S_DEFAULT,
    TIMEOUT_S_DEFAULT,
    Catalogue,
)
from processor.policy.schema import compile_schema

Check = Callable[[object], str | None]

_DEPTH_MAX: Final = Limits().depth_max


@record
class ServedTool:
    """One tool, ready to run. `effect_class` None: nobody here states it, the record does."""

    name: str
    declaration: ToolDeclaration
    effect_class: EffectClass | None
    checks: tuple[Check, ...]
    timeout_s: float
    max_attempts: int
    concurrency: int
    redrive_window_s: float
    is_async: bool


def serve(tools: ToolSet, catalogue: Catalogue | None = None) -> dict[str, ServedTool]:
    """Join each tool with its catalogue entry. Raises: `Misuse` where the two contradict."""
    return {declaration.name: _served(declaration, catalogue) for declaration in tools}


def _served(declaration: ToolDeclaration, catalogue: Catalogue | None) -> ServedTool:
    name = declaration.name
    listed = catalogue.tool(name) if catalogue else None
    stated = declaration.effect_class
    if listed and stated and listed.effect_class != stated:
        raise Misuse(
            f"tool {name}: the function says {stated}, the catalogue {listed.effect_class}"
        )
    if listed and listed.arguments != declaration.arguments:
        raise Misuse(f"tool {name}: function and catalogue disagree about `arguments`")
    checks: list[Check] = []
    if listed and listed.validate:
        checks.append(listed.validate)
    if declaration.schema is not None:
        checks.append(compile_schema(declaration.schema, f"tool {name}: schema"))
    if "arguments" not in declaration.parameters:
        checks.append(_signature_check(declaration))
    return ServedTool(
        name=name,
        declaration=declaration,
        effect_class=stated or (listed.effect_class if listed else None),
        checks=tuple(checks),
        timeout_s=declaration.timeout_s or (listed.timeout_s if listed else TIMEOUT_S_DEFAULT),
        max_attempts=listed.max_attempts if listed else MAX_ATTEMPTS_DEFAULT,
        concurrency=listed.concurrency if listed else CONCURRENCY_DEFAULT,
        redrive_window_s=listed.redrive_window_s if listed else REDRIVE_WINDOW_S_DEFAULT,
        is_async=inspect.iscoroutinefunction(declaration.function),
    )


def _signature_check(declaration: ToolDeclaration) -> Check:
    """The function's parameters as a schema; otherwise a wrong member would end in doubt."""
    signature = inspect.signature(declaration.function)
    wants_context = "context" in declaration.parameters

    def check(arguments: object) -> str | None:
        if not isinstance(arguments, dict):
            return "/: type"
        given = dict(cast("dict[str, object]", arguments))
        if wants_context:
            if "context" in given:
                return "/context: reserved name"
            given["context"] = None
        try:
            signature.bind(**given)
        except TypeError:
            return "/: members do not fit the function's parameters"
        return None

    return check


def prepare(served: ServedTool, call: CallCompleted) -> object | Fault:
    """The arguments to run with, parsed from the record's bytes, or why they are refused."""
    declaration = served.declaration
    if sha256(call.arguments) != call.arguments_sha256:
        return Fault("invalid_json", "the digest of the arguments does not match")
    if call.arguments_format != declaration.arguments:
        return Fault("unsupported_call_type", f"the tool takes {declaration.arguments}")
    if call.arguments_format == "text":
        return _text(call.arguments)
    parsed = parse_strict(call.arguments, depth_max=_DEPTH_MAX, decimals=declaration.decimals)
    if isinstance(parsed, Fault):
        return parsed
    for check in served.checks:
        mismatch = check(parsed.value)
        if mismatch is not None:
            return Fault("schema_mismatch", mismatch)
    return parsed.value


def _text(arguments: bytes) -> str | Fault:
    try:
        return arguments.decode()
    except UnicodeDecodeError as e:
        return Fault("invalid_utf8", f"byte {e.start} of {len(arguments)}")


def keywords_of(
    served: ServedTool, arguments: object, context: ToolContext
) -> Mapping[str, object]:
    """The keyword arguments of the function for one call."""
    parameters = served.declaration.parameters
    if "arguments" in parameters:
        keywords: dict[str, object] = {"arguments": arguments}
    else:
        # A signature check stands before: what comes here is an object.
        keywords = dict(cast("dict[str, object]", arguments))
    if "context" in parameters:
        keywords["context"] = context
    return keywords
