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
from processor.executor.invoke import EventLoop
from processor.executor.tools import ToolDeclaration, ToolSet
from processor.policy.catalogue import (
    CONCURRENCY_DEFAULT,
    MAX_ATTEMPTS_DEFAULT,
    REDRIVE_WINDOW_S_DEFAULT,
    TIMEOUT_S_DEFAULT,
    Catalogue,
    CatalogueTool,
)
from processor.policy.schema import compile_schema
from processor.policy.transports import ABSENT_AFTER_S_DEFAULT

Check = Callable[[object], str | None]

_DEPTH_MAX: Final = Limits().depth_max


@record
class Lookup:
    """Whom to ask what became of a call in doubt; see `executor.reconcile`. Seconds.

    A coroutine function runs on `loop`; None is the loop of all.
    """

    function: Callable[..., object]
    absent_after_s: float
    is_async: bool
    loop: EventLoop | None = None


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
    lookup: Lookup | None = None


def serve(
    tools: ToolSet,
    catalogue: Catalogue | None = None,
    lookups: Mapping[str, Lookup] | None = None,
) -> dict[str, ServedTool]:
    """Join each tool with its catalogue entry; `lookups` are those that the catalogue states.

    Raises: `Misuse` where the two contradict.
    """
    known = lookups or {}
    return {d.name: _served(d, catalogue, known.get(d.name)) for d in tools}


def _served(
    declaration: ToolDeclaration, catalogue: Catalogue | None, lookup: Lookup | None
) -> ServedTool:
    name = declaration.name
    listed = catalogue.tool(name) if catalogue else None
    stated = declaration.effect_class
    if listed and listed.remote and declaration.loop is None:
        raise Misuse(
            f"tool {name}: the catalogue says where it is, and there is a function as well"
        )
    if lookup and declaration.reconcile:
        raise Misuse(f"tool {name}: function and catalogue both say whom to ask (reconcile)")
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
        lookup=lookup or _own_lookup(declaration, listed),
    )


def _own_lookup(declaration: ToolDeclaration, listed: CatalogueTool | None) -> Lookup | None:
    function = declaration.reconcile
    if function is None:
        return None
    stated = declaration.effect_class or (listed.effect_class if listed else None)
    if stated != "reconcilable":
        raise Misuse(f"tool {declaration.name}: reconcile needs effect_class reconcilable")
    return Lookup(function, ABSENT_AFTER_S_DEFAULT, inspect.iscoroutinefunction(function))


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
    served: ServedTool, arguments: object, exact: bytes, context: ToolContext
) -> Mapping[str, object]:
    """The keyword arguments of the function for one call; `exact` is the text of `arguments`."""
    if served.declaration.exact_bytes:
        return {"arguments": exact, "context": context}
    parameters = served.declaration.parameters
    if "arguments" in parameters:
        keywords: dict[str, object] = {"arguments": arguments}
    else:
        # A signature check stands before: what comes here is an object.
        keywords = dict(cast("dict[str, object]", arguments))
    if "context" in parameters:
        keywords["context"] = context
    return keywords
