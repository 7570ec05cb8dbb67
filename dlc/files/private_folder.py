"""Private folders and files, which no other user may write to, so that code in them may be executed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from dlc.errors import DlcError

_OTHERS_WRITE_MODE = stat.S_IWGRP | stat.S_IWOTH


def is_private(path: Path) -> bool:
    """Return whether a file or folder belongs to this user or root, and no other user may write to it."""
    try:
        status = path.stat()
    except OSError:
        return False
    return status.st_uid in (os.geteuid(), 0) and not status.st_mode & _OTHERS_WRITE_MODE


def make_private(folder: Path) -> None:
    """Create a folder, with its parents, for this user only; remove other users' write permission from an existing one.

    Raises DlcError for a folder of another user, and for one below a folder in which any user may replace it. Raises OSError if
    it cannot be created.
    """
    folder = Path(os.path.abspath(folder))
    for parent in reversed(folder.parents):
        _make_folder(parent)
        mode = parent.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise DlcError(f"any user may write to {parent}")
    _make_folder(folder)
    status = folder.stat()
    if status.st_uid not in (os.geteuid(), 0):
        raise DlcError(f"it belongs to the user {status.st_uid}")
    if status.st_mode & _OTHERS_WRITE_MODE:
        folder.chmod(stat.S_IMODE(status.st_mode) & ~_OTHERS_WRITE_MODE)


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(mode=0o700, exist_ok=True)
