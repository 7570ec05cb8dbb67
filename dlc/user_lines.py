"""Where the user's code is: the innermost line that is neither dlc's nor NumPy's."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from traceback import walk_tb
from types import FrameType

import numpy as np

_LIBRARIES = tuple(str(folder) + os.sep for folder in (Path(__file__).parent, Path(np.__file__).parent))


def is_users(frame: FrameType) -> bool:
    """Whether a frame runs code of the user's."""
    name = frame.f_code.co_filename
    return not name.startswith(_LIBRARIES) and "contextlib" not in name


def is_asked_by_user() -> bool:
    """Whether the function that calls this one was called by the user's code, not by dlc's or by what is generated for it."""
    frame = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]
    return is_users(frame) and str(frame.f_globals.get("__name__")).partition(".")[0] not in ("dlc", "xdsl")


def user_line() -> tuple[str, int] | None:
    """The file and the number of the innermost line of the user's."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and not is_users(frame):
        frame = frame.f_back
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def shown_line(file: str, line: int) -> str:
    """A line as messages show it: `step.py:12`."""
    return f"{Path(file).name}:{line}"


def place_of_line(error: BaseException) -> str:
    """The innermost line of the user's that raised an error."""
    lines = [(f.f_code.co_filename, n) for f, n in walk_tb(error.__traceback__) if is_users(f)]
    return shown_line(*lines[-1]) if lines else ""
