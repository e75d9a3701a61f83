"""Arguments that arrive as leaves: a JSON path and a typed value each, strings also in pieces.

Rules (Vertex AI `PartialArg`: oneof of string, number, bool and null; paths of RFC 9535):
    A leaf is set once. Only a string may announce more of itself; its pieces join in order.
    Members stand in the order of arrival, elements at the place that their path names.
    A path that is not `$` and names or positions, that contradicts another one, a missing element
    and a string that still announces more when the call ends: all refuse the call.
    An empty object or array has no leaf, so there is none.
    A number that another decoder made a float of, as Google's SDK does of every one, is written as
    an integer when it is one: most often it was, and its value is the same.
"""

import json
import re
from typing import Final

import jiter

from processor.dialects.fields import Chunk, is_number
from processor.dialects.object_text import DEPTH_MAX, FLOAT_INTEGER_MAX, Unwritable

_STEP: Final = re.compile(
    r"""\.([^.\[\]'"*\s\x00-\x1f]+)"""  # .name
    r"""|\[(0|[1-9][0-9]{0,8})\]"""  # [0]
    r"""|\['((?:[^'\\]|\\.)*)'\]"""  # ['name']
    r"""|\["((?:[^"\\]|\\.)*)"\]"""  # ["name"]
)
_VALUES: Final = ("stringValue", "numberValue", "boolValue", "nullValue")
_NULLS: Final = (None, "NULL_VALUE")


class _Text:
    """A string that may still grow."""

    __slots__ = ("goes_on", "pieces")

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.goes_on = True


class _Node:
    """An object or an array that has at least one leaf. All its steps are of one kind."""

    __slots__ = ("inner",)

    def __init__(self) -> None:
        self.inner: dict[str | int, object] = {}


class PartialArguments:
    """The leaves of one call. Cost: linear in the paths and texts given."""

    def __init__(self) -> None:
        self._root = _Node()
        #: Objects and arrays inside of the whole, which are made as paths need them.
        self.nodes_count = 0

    def add(self, leaf: Chunk) -> None:
        """One leaf, or the next piece of one. Raises: `Unwritable`."""
        path, goes_on = leaf.get("jsonPath"), leaf.get("willContinue")
        if not isinstance(path, str) or not (goes_on is None or isinstance(goes_on, bool)):
            raise Unwritable("malformed_event")
        node, step = self._place(_steps(path))
        before = node.inner.get(step)
        if isinstance(before, _Text) and before.goes_on:
            before.pieces.append(_piece(leaf))
            before.goes_on = bool(goes_on)
        elif step in node.inner:
            raise Unwritable("duplicate_member")
        else:
            node.inner[step] = _first(leaf, goes_on=bool(goes_on))

    def value(self) -> object:
        """The whole object, once nothing more is to come. Raises: `Unwritable`."""
        return _built(self._root)

    def _place(self, steps: list[str | int]) -> tuple[_Node, str | int]:
        """The container that a path leads to, made on the way, and the leaf's place in it."""
        node = self._root
        for step, following in zip(steps, [*steps[1:], None], strict=True):
            first = next(iter(node.inner), None)
            is_other_kind = first is not None and isinstance(first, int) != isinstance(step, int)
            if is_other_kind or (node is self._root and isinstance(step, int)):
                break
            if following is None:
                return node, step
            inner = node.inner.get(step)
            if inner is None and step not in node.inner:
                inner = node.inner[step] = _Node()
                self.nodes_count += 1
            if not isinstance(inner, _Node):
                break
            node = inner
        raise Unwritable("malformed_event")


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    at = 1
    while path.startswith("$") and at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            raise Unwritable("malformed_event")
        if len(steps) >= DEPTH_MAX:
            raise Unwritable("too_deep")
        plain, position, single, double = found.groups()
        if plain is not None:
            steps.append(plain)
        elif position is not None:
            steps.append(int(position))
        else:
            steps.append(_unescaped(single, double))
        at = found.end()
    if not steps:
        raise Unwritable("malformed_event")
    return steps


def _unescaped(single: str | None, double: str | None) -> str:
    """A quoted name. The escapes are those of JSON, and the quote of the other kind is plain."""
    if double is None:
        double = (single or "").replace('"', '\\"').replace("\\'", "'")
    try:
        return str(json.loads(f'"{double}"'))
    except ValueError:
        raise Unwritable("malformed_event") from None


def _first(leaf: Chunk, *, goes_on: bool) -> object:
    """The value of a leaf that is new; a text as one that may grow."""
    kind = _kind(leaf)
    value = None if kind is None else leaf.get(kind)
    if kind == "stringValue":
        text = _Text()
        text.pieces.append(_piece(leaf))
        text.goes_on = goes_on
        return text
    is_boolean = kind == "boolValue" and isinstance(value, bool)
    is_null = kind == "nullValue" and value in _NULLS
    is_numeric = kind == "numberValue" and (
        is_number(value) or isinstance(value, float | jiter.LosslessFloat)
    )
    if goes_on or not (is_boolean or is_null or is_numeric):
        raise Unwritable("malformed_event")
    if isinstance(value, float) and value.is_integer() and abs(value) < FLOAT_INTEGER_MAX:
        return int(value)
    return None if is_null else value


def _piece(leaf: Chunk) -> str:
    """The next piece of a text; a leaf without any value adds nothing to it."""
    text = leaf.get("stringValue")
    if _kind(leaf) not in (None, "stringValue") or not isinstance(text, str | None):
        raise Unwritable("malformed_event")
    return text or ""


def _kind(leaf: Chunk) -> str | None:
    """Which of the four values a leaf has; a null is one if there is no other."""
    given = [name for name in _VALUES if leaf.get(name) is not None]
    if len(given) > 1:
        raise Unwritable("malformed_event")
    if given:
        return given[0]
    return "nullValue" if "nullValue" in leaf else None


def _built(node: object) -> object:
    """The plain value of a node. Raises: `Unwritable` when something of it is missing."""
    if isinstance(node, _Text):
        if node.goes_on:
            raise Unwritable("malformed_event")
        return "".join(node.pieces)
    if not isinstance(node, _Node):
        return node
    inner = node.inner
    if not isinstance(next(iter(inner), ""), int):
        return {name: _built(member) for name, member in inner.items()}
    if any(position not in inner for position in range(len(inner))):
        raise Unwritable("malformed_event")
    return [_built(inner[position]) for position in range(len(inner))]
