"""Locations in the user's source: the innermost frame that is neither in dlc, in NumPy, nor the start of a thread."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from pathlib import Path
from traceback import walk_tb
from types import FrameType

import numpy as np

_LIBRARIES = (
    *(str(folder) + os.sep for folder in (Path(__file__).parent, Path(np.__file__).parent)),
    contextlib.__file__,
    threading.__file__,
)


def is_user_frame(frame: FrameType) -> bool:
    """Return whether a frame runs user code."""
    return not frame.f_code.co_filename.startswith(_LIBRARIES)


def find_user_line() -> tuple[str, int] | None:
    """Return the file and line number of the innermost user frame; None if there is none."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and not is_user_frame(frame):
        frame = frame.f_back
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def format_line(file: str, line: int) -> str:
    """Format a line for messages: `step.py:12`."""
    return f"{Path(file).name}:{line}"


def format_error_line(error: BaseException) -> str:
    """Return the innermost user line in an error's traceback; empty if there is none."""
    lines = [(f.f_code.co_filename, n) for f, n in walk_tb(error.__traceback__) if is_user_frame(f)]
    return format_line(*lines[-1]) if lines else ""
