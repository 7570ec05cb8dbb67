"""Write files atomically; errors name the file."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from time import time
from typing import IO, cast

from dlc.errors import DlcError

# The suffix of files that are being written; older ones belong to processes that died.
_PARTIAL_SUFFIX = ".dlc-partial"
_STALE_SECONDS = 3600.0


def to_path(value: object) -> Path:
    """Return the path of a file or folder. Raises DlcError for a value that is not a path."""
    if not isinstance(value, str | os.PathLike):
        raise DlcError(f"expected a path, as a str or a pathlib.Path; got {type(value).__name__}")
    return Path(os.fsdecode(cast("str | os.PathLike[str]", value)))


@contextmanager
def atomic_write(path: Path) -> Generator[IO[bytes]]:
    """Yield a file that replaces `path` at the end; if anything fails, `path` is unchanged.

    Devices such as /dev/null are written to directly. Raises DlcError if the file cannot be written.
    """
    with _errors_with_path(path):
        if path.exists() and not path.is_file():
            # Formats such as zip need to seek, which devices and pipes do not support.
            with tempfile.TemporaryFile() as file, path.open("wb") as device:
                yield file
                file.seek(0)
                shutil.copyfileobj(file, device)
            return
        _remove_stale(path)
        partial = path.with_name(f".{path.name}.{token_hex(8)}{_PARTIAL_SUFFIX}")
        with partial.open("x+b") as file:
            try:
                # Keep the permissions of an existing file; a new one has those of the umask.
                if path.exists():
                    shutil.copymode(path, partial)
                yield file
                file.flush()
                os.fsync(file.fileno())
                os.replace(partial, path)
            except BaseException:
                partial.unlink()
                raise


def atomic_write_text(path: Path, text: str) -> None:
    """Write a text file atomically. Raises DlcError if it cannot be written."""
    with atomic_write(path) as file:
        file.write(text.encode(errors="replace"))


def write_text(path: Path, text: str, append: bool = False) -> None:
    """Write or append to a text file, not atomically; used for dump folders.

    Raises DlcError if it cannot be written.
    """
    with _errors_with_path(path), path.open("a" if append else "w", encoding="utf-8", errors="replace") as file:
        file.write(text)


def require_writable(path: Path) -> None:
    """Raise DlcError if `atomic_write` would fail; call it before long computations."""
    folder = path.parent
    if path.exists() and not path.is_file() and not path.is_dir():
        if not os.access(path, os.W_OK):
            raise DlcError(f"{path}: cannot be written: it is not writable")
        return
    if not folder.is_dir():
        raise DlcError(f"{path}: cannot be written: there is no folder {folder}")
    if not os.access(folder, os.W_OK | os.X_OK) or path.is_dir():
        raise DlcError(f"{path}: cannot be written: {'it is a folder' if path.is_dir() else f'{folder} is not writable'}")


@contextmanager
def _errors_with_path(path: Path) -> Generator[None]:
    """Convert OSError to DlcError with the path, which OSError does not always contain."""
    try:
        yield
    except OSError as error:
        raise DlcError(f"{path}: cannot be written: {error.strerror}") from error


def _remove_stale(path: Path) -> None:
    """Remove partial files of `path` that dead processes left, as far as permissions allow."""
    with suppress(OSError):
        for other in path.parent.iterdir():
            if other.name.startswith(f".{path.name}.") and other.name.endswith(_PARTIAL_SUFFIX):
                with suppress(OSError):
                    if time() - other.stat().st_mtime > _STALE_SECONDS:
                        other.unlink()
