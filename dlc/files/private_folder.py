"""Folders and files that nobody else may write to: what is read from there may be run."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dlc.errors import DlcError

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def is_private(path: Path) -> bool:
    """Whether a file or folder belongs to this process's user, or to root, and nobody else may write to it."""
    try:
        status = path.stat()
    except OSError:
        return False
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & _OTHERS_WRITE


def make_private(folder: Path) -> None:
    """Makes a folder, and what is missing above it, for this user alone; others lose the right to write to one that is there.

    Raises DlcError for a folder of somebody else, and for one in a folder in which everybody may rename it: files can be
    put in its place there. Raises OSError when it cannot be made.
    """
    folder = Path(os.path.abspath(folder))
    for parent in reversed(folder.parents):
        _make(parent)
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise DlcError(f"everybody may write to {parent}")
    _make(folder)
    status = folder.stat()
    if status.st_uid not in (os.geteuid(), 0):
        raise DlcError(f"it belongs to the user {status.st_uid}")
    if status.st_mode & _OTHERS_WRITE:
        folder.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS_WRITE)


def _make(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(mode=0o700, exist_ok=True)
