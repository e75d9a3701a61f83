"""Tools: your Python functions, declared once and handed to the executor in a `ToolSet`.

Example:
    from processor.executor import ToolContext, tool

    @tool(effect_class="idempotent", timeout_s=10)
    def refund(order: str, amount_cents: int, context: ToolContext) -> dict[str, str]:
        return payments.refund(order, amount_cents, key=context.idempotency_key)

Rules:
    The members of the arguments object are passed as keyword arguments; a parameter named `arguments`
    takes the whole object instead, and a free-text tool takes its text there.
    A parameter named `context` takes the `ToolContext`.
    There is no hidden registry: a decorated function only carries its declaration.
"""

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Final, TypeVar

from processor.core._record import field, record
from processor.core.errors import Misuse
from processor.core.events import ArgumentsFormat
from processor.core.outcomes import EffectClass
from processor.executor.invoke import EventLoop
from processor.executor.raised import place_of

F = TypeVar("F", bound=Callable[..., object])

_DECLARATION: Final = "__toolcalls_declaration__"


@record
class ToolDeclaration:
    """What a function states about itself. None means: as the catalogue says, else the default.

    `schema` is checked just before execution, besides the catalogue's. `timeout_s` is the time limit
    of one attempt. With `decimals`, numbers with a fraction arrive as `Decimal`, every digit kept; with
    `exact_bytes`, `arguments` is the checked text itself. `reconcile` is asked what became of a call in
    doubt (see `executor.reconcile`). A coroutine function runs on `loop`; None is the loop of all.
    """

    name: str
    function: Callable[..., object]
    effect_class: EffectClass | None = None
    schema: dict[str, object] | None = None
    timeout_s: float | None = None
    arguments: ArgumentsFormat = "json"
    decimals: bool = False
    parameters: frozenset[str] = field(default_factory=frozenset[str])
    reconcile: Callable[..., object] | None = None
    exact_bytes: bool = False
    loop: EventLoop | None = None


def tool(
    undeclared: None = None,
    /,
    *,
    name: str | None = None,
    effect_class: EffectClass | None = None,
    schema: dict[str, object] | None = None,
    timeout_s: float | None = None,
    arguments: ArgumentsFormat = "json",
    decimals: bool = False,
    reconcile: Callable[..., object] | None = None,
) -> Callable[[F], F]:
    """Declare a function, sync or async, as the tool `name` (by default the function's own name).

    Raises: `Misuse` for `@tool` without parentheses.
    """
    _refuse_bare(undeclared)

    def declare(function: F) -> F:
        declaration = _declared(
            function,
            name=name,
            effect_class=effect_class,
            schema=schema,
            timeout_s=timeout_s,
            arguments=arguments,
            decimals=decimals,
            reconcile=reconcile,
        )
        setattr(function, _DECLARATION, declaration)
        return function

    return declare


def _declared(
    function: Callable[..., object],
    *,
    name: str | None,
    effect_class: EffectClass | None,
    schema: dict[str, object] | None,
    timeout_s: float | None,
    arguments: ArgumentsFormat,
    decimals: bool,
    reconcile: Callable[..., object] | None,
) -> ToolDeclaration:
    return ToolDeclaration(
        name=name or function.__name__,
        function=function,
        effect_class=effect_class,
        schema=schema,
        timeout_s=timeout_s,
        arguments=arguments,
        decimals=decimals,
        parameters=frozenset(inspect.signature(function).parameters),
        reconcile=reconcile,
    )


class ToolSet:
    """The tools that one executor serves, by name."""

    def __init__(self, declarations: Iterable[ToolDeclaration] = ()) -> None:
        self._declarations: dict[str, ToolDeclaration] = {}
        for declaration in declarations:
            self.add(declaration)

    def __iter__(self) -> Iterator[ToolDeclaration]:
        return iter(self._declarations.values())

    def __len__(self) -> int:
        return len(self._declarations)

    def add(self, declaration: ToolDeclaration) -> None:
        """Serve one more tool. Raises: `Misuse` for a name that is taken or a wrong declaration."""
        if declaration.name in self._declarations:
            raise Misuse(f"two tools are named {declaration.name}")
        _check(declaration)
        self._declarations[declaration.name] = declaration

    def tool(
        self,
        undeclared: None = None,
        /,
        *,
        name: str | None = None,
        effect_class: EffectClass | None = None,
        schema: dict[str, object] | None = None,
        timeout_s: float | None = None,
        arguments: ArgumentsFormat = "json",
        decimals: bool = False,
        reconcile: Callable[..., object] | None = None,
    ) -> Callable[[F], F]:
        """As the function `tool`, and serve it. Raises, when applied: as `add`."""
        _refuse_bare(undeclared)

        def declare(function: F) -> F:
            declaration = _declared(
                function,
                name=name,
                effect_class=effect_class,
                schema=schema,
                timeout_s=timeout_s,
                arguments=arguments,
                decimals=decimals,
                reconcile=reconcile,
            )
            self.add(declaration)
            return function

        return declare

    @classmethod
    def from_module(cls, module: str) -> "ToolSet":
        """Collect the declared functions and tool sets of a module: `package.module` or `path.py`.

        Raises: `Misuse` when it cannot be imported or declares no tool.
        """
        loaded = _load(module)
        found: dict[str, ToolDeclaration] = {}
        for value in vars(loaded).values():
            declared = (
                list(value) if isinstance(value, cls) else [getattr(value, _DECLARATION, None)]
            )
            for declaration in declared:
                if not isinstance(declaration, ToolDeclaration):
                    continue
                known = found.setdefault(declaration.name, declaration)
                if known.function is not declaration.function:
                    raise Misuse(f"{module}: two tools are named {declaration.name}")
        if not found:
            raise Misuse(f"{module} declares no tool: decorate a function with @tool(...)")
        return cls(found.values())


def _refuse_bare(undeclared: object) -> None:
    if undeclared is not None:
        name = getattr(undeclared, "__name__", "a function")
        raise Misuse(f"{name}: write @tool() with parentheses, for example @tool(timeout_s=10)")


def _check(declaration: ToolDeclaration) -> None:
    name = declaration.name
    if declaration.timeout_s is not None and not 0 < declaration.timeout_s <= 86_400:
        raise Misuse(f"tool {name}: timeout_s must be above 0 and at most 86400")
    if declaration.arguments == "text":
        if declaration.schema is not None:
            raise Misuse(f"tool {name}: free text has no schema")
        if "arguments" not in declaration.parameters:
            raise Misuse(f"tool {name}: a free-text tool needs a parameter named arguments")
    if declaration.reconcile is not None and declaration.effect_class not in {None, "reconcilable"}:
        raise Misuse(f"tool {name}: only a tool of effect_class reconcilable has reconcile")
    if declaration.reconcile is not None and not _takes_context(declaration.reconcile):
        raise Misuse(f"tool {name}: reconcile is a function with one parameter, named context")
    if declaration.effect_class == "transactional":
        if inspect.iscoroutinefunction(declaration.function):
            raise Misuse(f"tool {name}: a transactional tool must be a plain function")
        if "context" not in declaration.parameters:
            raise Misuse(f"tool {name}: a transactional tool needs a parameter named context")


def _takes_context(function: Callable[..., object]) -> bool:
    try:
        inspect.signature(function).bind(context=None)
    except TypeError:
        return False
    return True


def _load(module: str) -> ModuleType:
    path = Path(module)
    try:
        if module.endswith(".py"):
            return _load_file(path)
        # As `python -m` does: what lies in the current directory is found.
        folder = str(Path.cwd())
        if folder not in sys.path:
            sys.path.insert(0, folder)
        return importlib.import_module(module)
    except Misuse:
        raise
    except BaseException as e:  # noqa: BLE001 - importing runs the user's own code
        raise Misuse(_not_imported(module, e)) from None


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise Misuse(f"{path} is not a file")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise Misuse(f"{path} cannot be loaded as a module")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def _not_imported(module: str, error: BaseException) -> str:
    """Type and place; the message of somebody else's exception may quote a secret."""
    kind = type(error).__name__
    if isinstance(error, ModuleNotFoundError) and error.name == module:
        return f"there is no module {module}: name a file, for example --tools {module}.py"
    if isinstance(error, SyntaxError):
        return f"{Path(error.filename or module).name}:{error.lineno} raised {kind}"
    place = place_of(error, inside=str(Path(module))) or place_of(error) or module
    missing = f" for {error.name}" if isinstance(error, ImportError) and error.name else ""
    return f"{place} raised {kind}{missing}"
