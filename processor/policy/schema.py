"""JSON Schema, draft 2020-12, compiled once per tool; its answers never quote what was checked.

Rules:
    The answer is a JSON pointer and a keyword, such as `/amount: type`. A step of the pointer that the
    schema does not name came from the checked text, so it is shown as `*`.
    Nothing is fetched: a reference to another document is refused when the schema is compiled.
    Patterns run on an engine with linear time; look-around and back references are refused.
    `format` is asserted, not only annotated.
"""

from collections.abc import Callable
from typing import Final, cast

import jsonschema_rs

from processor.core.errors import Misuse

#: Keywords whose members are names of the checked object's members.
_NAMING: Final = frozenset({"properties", "dependentSchemas", "dependentRequired"})


def compile_schema(schema: dict[str, object], where: str) -> Callable[[object], str | None]:
    """Compile `schema` into a check: parsed arguments -> None, or a detail without content.

    `where` names the schema in errors (file, line, field). Cost of a check: a few microseconds.

    Raises: `Misuse` when the text is no schema of the draft, or refers to another document.
    """
    try:
        validator = jsonschema_rs.Draft202012Validator(
            schema,
            validate_formats=True,
            offline=True,
            pattern_options=jsonschema_rs.RegexOptions(),
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as e:
        raise Misuse(f"{where}: not a JSON Schema of draft 2020-12{_place(e)}") from None
    names = frozenset(_member_names(schema))

    def check(arguments: object) -> str | None:
        error = next(validator.iter_errors(arguments), None)
        if error is None:
            return None
        return f"{_pointer(arguments, error.instance_path, names)}: {error.kind.name}"

    return check


def _place(error: Exception) -> str:
    """Where in the schema; the schema is the platform team's own text, so its names may be shown."""
    if isinstance(error, jsonschema_rs.ValidationError) and error.instance_path:
        return ", at /" + "/".join(str(step) for step in error.instance_path)
    return " (references to other documents are not followed)"


def _member_names(schema: object) -> list[str]:
    found: list[str] = []
    todo = [schema]
    while todo:
        node = todo.pop()
        if isinstance(node, list):
            todo.extend(cast("list[object]", node))
        elif isinstance(node, dict):
            for keyword, value in cast("dict[str, object]", node).items():
                todo.append(value)
                if keyword in _NAMING and isinstance(value, dict):
                    found.extend(cast("dict[str, object]", value))
    return found


def _pointer(arguments: object, path: list[str | int], names: frozenset[str]) -> str:
    """The path as a JSON pointer; a step is a number only where the arguments have an array.

    The validator gives the member name "007" as the number 7, so its types cannot be believed.
    """
    node, steps = arguments, [""]
    for step in path:
        if isinstance(node, list) and isinstance(step, int):
            steps.append(str(step))
            node = cast("list[object]", node)[step]
            continue
        name = str(step)
        steps.append(name.replace("~", "~0").replace("/", "~1") if name in names else "*")
        node = cast("dict[str, object]", node).get(name) if isinstance(node, dict) else None
    return "/".join(steps) if path else "/"
