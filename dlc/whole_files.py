"""Files that are never half there: a new one is written beside its place and then put in it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import time
from typing import IO

from dlc.errors import DlcError

# The end of the names of files that are being written; whoever still writes one after this long is dead.
_PARTIAL = ".dlc-partial"
_STALE_SECONDS = 3600.0


@contextmanager
def written_whole(path: Path) -> Generator[IO[bytes]]:
    """A file to write to, which takes the place of `path` at the end; if anything goes wrong, `path` is what it was before.

    What is no regular file, such as /dev/null, is written to as it is. Raises DlcError when it cannot be written.
    """
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                yield file
            return
        _remove_stale(path)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", suffix=_PARTIAL, delete=False) as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                os.chmod(file.name, 0o644)
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        raise DlcError(f"{path}: cannot be written: {error.strerror}") from error


def require_writable(path: Path) -> None:
    """Raises DlcError where `written_whole` could not begin, so that no work is done for nothing."""
    folder = path.parent
    if not folder.is_dir():
        raise DlcError(f"{path}: cannot be written: there is no folder {folder}")
    if not os.access(folder, os.W_OK | os.X_OK) or path.is_dir():
        raise DlcError(f"{path}: cannot be written: {'it is a folder' if path.is_dir() else f'{folder} is not writable'}")


def _remove_stale(path: Path) -> None:
    """Removes what processes that died left of files that were to become `path`."""
    for other in path.parent.iterdir():
        if other.name.startswith(f".{path.name}.") and other.name.endswith(_PARTIAL):
            with suppress(FileNotFoundError):
                if time() - other.stat().st_mtime > _STALE_SECONDS:
                    other.unlink()
