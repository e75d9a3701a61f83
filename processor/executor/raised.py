"""What an exception of a tool is called in the ledger and in the log: type and place, no message."""

import re
import traceback
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z0-9_]{1,64}")
_FILE: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def why_raised(error: BaseException, function: Callable[..., object]) -> str:
    """`raised:ValueError my_tools.py:12`: the type, and the last line of the tool's own file."""
    name = type(error).__name__
    word = f"raised:{name if _NAME.fullmatch(name) else 'exception'}"
    code = getattr(function, "__code__", None)
    own_file = code.co_filename if isinstance(code, CodeType) else None
    place = place_of(error, inside=own_file) or place_of(error)
    return word if place is None else f"{word} {place}"


def place_of(error: BaseException, inside: str | None = None) -> str | None:
    """`file.py:line` of the innermost frame, or of the innermost one in the file `inside`."""
    frames = list(traceback.walk_tb(error.__traceback__))
    if inside is not None:
        frames = [f for f in frames if f[0].f_code.co_filename == inside]
    if not frames:
        return None
    frame, line = frames[-1]
    name = Path(frame.f_code.co_filename).name
    return f"{name if _FILE.fullmatch(name) else 'file'}:{line}"
