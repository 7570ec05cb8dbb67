"""Files that dlc writes: they are never half there, and what goes wrong is told with their name."""

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

# The end of the names of files that are being written; whoever still writes one after this long is dead.
_PARTIAL = ".dlc-partial"
_STALE_SECONDS = 3600.0


def path_of(value: object) -> Path:
    """The path of a file or a folder, as somebody gave it. Raises DlcError for what is none."""
    if not isinstance(value, str | os.PathLike):
        raise DlcError(f"expected a path, as text or a pathlib.Path; got {type(value).__name__}")
    return Path(os.fsdecode(cast("str | os.PathLike[str]", value)))


@contextmanager
def written_whole(path: Path) -> Generator[IO[bytes]]:
    """A file to write to, which takes the place of `path` at the end; if anything goes wrong, `path` is what it was before.

    What is no regular file, such as /dev/null, is written to as it is. Raises DlcError when it cannot be written.
    """
    with _naming_errors(path):
        if path.exists() and not path.is_file():
            # Formats such as zip go back in what they write, which devices and pipes do not.
            with tempfile.TemporaryFile() as file, path.open("wb") as device:
                yield file
                file.seek(0)
                shutil.copyfileobj(file, device)
            return
        _remove_stale(path)
        partial = path.with_name(f".{path.name}.{token_hex(8)}{_PARTIAL}")
        with partial.open("x+b") as file:
            try:
                # Who may read it is what it was, and of a new file what the process's umask says.
                if path.exists():
                    shutil.copymode(path, partial)
                yield file
                file.flush()
                os.fsync(file.fileno())
                os.replace(partial, path)
            except BaseException:
                partial.unlink()
                raise


def write_whole_text(path: Path, text: str) -> None:
    """Writes a whole text file. Raises DlcError when it cannot be written."""
    with written_whole(path) as file:
        file.write(text.encode(errors="replace"))


def write_text(path: Path, text: str, append: bool = False) -> None:
    """Writes or lengthens a file that may be half there after a crash, as one of many in a folder of notes.

    Raises DlcError when it cannot be written.
    """
    with _naming_errors(path), path.open("a" if append else "w", encoding="utf-8", errors="replace") as file:
        file.write(text)


def require_writable(path: Path) -> None:
    """Raises DlcError where `written_whole` could not begin, so that no work is done for nothing."""
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
def _naming_errors(path: Path) -> Generator[None]:
    """Turns what the system says against writing a file into a DlcError with its name, which the system gives at times only."""
    try:
        yield
    except OSError as error:
        raise DlcError(f"{path}: cannot be written: {error.strerror}") from error


def _remove_stale(path: Path) -> None:
    """Removes what processes that died left of files that were to become `path`, as far as this user may."""
    with suppress(OSError):
        for other in path.parent.iterdir():
            if other.name.startswith(f".{path.name}.") and other.name.endswith(_PARTIAL):
                with suppress(OSError):
                    if time() - other.stat().st_mtime > _STALE_SECONDS:
                        other.unlink()
