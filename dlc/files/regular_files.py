"""Open and read regular files: opening a pipe would wait for a writer, and a device may be endless."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from dlc.errors import ModelError


def open_regular_file(path: Path) -> int:
    """Return a descriptor to read a file. Raises OSError if it cannot be opened, or is not a regular file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return descriptor


def read_model_file(path: Path) -> bytes:
    """Return the content of a file of a model. Raises ModelError if it cannot be read."""
    try:
        with os.fdopen(open_regular_file(path), "rb") as file:
            return file.read()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from error


def read_model_text(path: Path) -> str:
    """Return the text of a file of a model. Raises ModelError if it cannot be read, or is not UTF-8."""
    try:
        return read_model_file(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path}: not UTF-8 text: {error.reason} at byte {error.start}") from error
