"""What was made once and is used again, on disk, shared by all processes of a user.

    <folder>/<kind>/<key>.kept/    entry    what `write` wrote
                                   about    what the maker says of it, as JSON
                                   hits     a byte per hit; when it was last written is when the entry was last used
    <folder>/new/*.kept/           entries that are being written, and what is being removed
    <folder>/locks/*.kept          a file per entry that is being made

The folder may be one in which a person keeps other things: nothing is removed but what the ending marks as the cache's own.
Entries hold native code, which runs in the process that loads it: the folder is private to its owner, one that others may
write to is not used, and an entry that somebody else has written, or may write, is not there.

An entry is of a *kind* ("model", "opencl"), which says what its file is, and has a *key*, which names everything that the file
depends on: two of one kind and key are alike, so that it does not matter whose is kept. Keys become names of folders.

    path = cache.lookup("opencl", key)               the file, or None; counts as a use of the entry
    path = cache.store("opencl", key, write, about)  calls write(path of a new file); None if it could not be kept
    with cache.lock("opencl", key): ...              one process and thread at a time
    cache.read("opencl", key, read)                  read(path), or None; what cannot be read is removed
    cache.fetch("opencl", key, read, make, write, about)     all of it: made by one process, read by the others

An entry appears whole or not at all, whatever kills its maker: it is written elsewhere and renamed. The system lets go of a
dead process's lock. A folder that cannot be used is warned of once, and nothing is kept from then on. Beyond the capacity the
entries go that were not used for longest; a file that is open or mapped stays readable for who has it.

Functions here log to `dlc.caching.cache`: warnings by default, what is removed and why at the level INFO.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from dlc.errors import DlcError
from dlc.files.private_folder import is_private, make_private
from dlc.options import Environment

T = TypeVar("T")

log = logging.getLogger(__name__)

_ENTRY, _ABOUT, _HITS = "entry", "about", "hits"
_NEW, _LOCKS = "new", "locks"
# How the names end of what the cache has made, and may remove.
_MARK = ".kept"
# Whoever still writes after this long is dead: its files are removed.
_STALE_SECONDS = 3600.0
# How long to wait for another process that makes the same entry, and how often to look.
_PATIENCE_SECONDS, _POLL_SECONDS = 600.0, 0.02
# Folders that this process has warned of.
_unusable: set[Path] = set()


@dataclass(frozen=True)
class Entry:
    """An entry as it is on disk; times are seconds since 1970."""

    kind: str
    key: str
    path: Path
    bytes: int
    made: float
    used: float
    hits: int

    @property
    def about(self) -> dict[str, Any]:
        """What its maker said of it; nothing if that cannot be read, as it is for people to read."""
        try:
            return json.loads((self.path.parent / _ABOUT).read_text())
        except (OSError, ValueError):
            return {}


class Cache:
    """The entries in `folder`, of `capacity` bytes at most; without a folder nothing is kept."""

    def __init__(self, folder: Path | None, capacity: int = 4 << 30) -> None:
        self.folder = folder
        self.capacity = capacity

    @staticmethod
    def standard() -> Cache:
        """The cache that the environment chooses."""
        environment = Environment.read()
        return Cache(environment.cache_folder if environment.cache else None, environment.cache_bytes)

    def lookup(self, kind: str, key: str) -> Path | None:
        """The file of an entry; None when there is none."""
        if self.folder is None:
            return None
        place = self._place(kind, key)
        if not all(is_private(path) for path in (self.folder, place, place / _ENTRY)) or not (place / _ENTRY).is_file():
            return None
        # The folder may be read-only: what cannot be counted can still be used.
        with suppress(OSError), (place / _HITS).open("ab") as hits:
            hits.write(b".")
        return place / _ENTRY

    def store(self, kind: str, key: str, write: Callable[[Path], object], about: Mapping[str, Any]) -> Path | None:
        """Keeps what `write` writes to the path it is given, in place of an entry of this key; gives its file.

        None when it was not kept: for want of a folder or of room, which is warned of, or because it alone exceeds the
        capacity.
        """
        if self.folder is None or self.folder in _unusable:
            return None
        place = self._place(kind, key)
        try:
            new = self._new()
            try:
                write(new / _ENTRY)
                (new / _ENTRY).chmod(0o600)
                (new / _ABOUT).write_text(json.dumps(about))
                (new / _HITS).touch()
                place.parent.mkdir(exist_ok=True)
                self.remove(kind, key)
                _rename(new, place)
            finally:
                shutil.rmtree(new, ignore_errors=True)
            self._trim()
        except (OSError, DlcError) as error:
            self._warn(error)
            return None
        return place / _ENTRY if _exists(place) else None

    def fetch(
        self,
        kind: str,
        key: str,
        read: Callable[[Path], T],
        make: Callable[[], T],
        write: Callable[[T, Path], object],
        about: Mapping[str, Any],
    ) -> tuple[T, bool]:
        """What `read` makes of the entry, and True; or what `make` makes, which is kept, and False.

        While one process makes it others wait, and read.
        """
        found = self.read(kind, key, read)
        if found is not None:
            return found, True
        with self.lock(kind, key):
            found = self.read(kind, key, read)
            if found is not None:
                return found, True
            made = make()
            self.store(kind, key, lambda path: write(made, path), about)
            return made, False

    def read(self, kind: str, key: str, read: Callable[[Path], T]) -> T | None:
        """What `read` makes of an entry's file; an entry that it raises DlcError or OSError for is removed: it is damaged."""
        path = self.lookup(kind, key)
        if path is None:
            return None
        try:
            return read(path)
        except (DlcError, OSError) as error:
            log.info("%s is removed, to be made again: %s", path.parent, error)
            self.remove(kind, key)
            return None

    @contextmanager
    def lock(self, kind: str, key: str) -> Generator[None]:
        """Excludes other holders of the same lock, in this process and in others, for as long as the block takes.

        After ten minutes it goes on without: whoever holds it is stuck, and the same work twice does no harm.
        """
        path, descriptor = None, None
        if self.folder is not None and self.folder not in _unusable:
            path = self.folder / _LOCKS / f"{kind}-{key}{_MARK}"
            try:
                make_private(self.folder)
                path.parent.mkdir(exist_ok=True)
                descriptor = _acquire(path)
            except (OSError, DlcError) as error:
                self._warn(error)
        try:
            yield
        finally:
            if path is not None and descriptor is not None:
                # Removed while it is held: who waits for this file finds that it is no longer the one of that name.
                with suppress(OSError):
                    path.unlink()
                os.close(descriptor)

    def remove(self, kind: str, key: str) -> bool:
        """Removes an entry at once, if it is there."""
        if self.folder is None:
            return False
        place = self._place(kind, key)
        if not _exists(place):
            return False
        try:
            aside = self._new()
            os.rename(place, aside)
        except OSError:
            return False
        shutil.rmtree(aside, ignore_errors=True)
        return True

    def clear(self) -> list[Entry]:
        """Removes every entry; gives those that were there."""
        return [e for e in self.entries() if self.remove(e.kind, e.key)]

    def entries(self, kind: str = "*") -> list[Entry]:
        """The entries of a kind, or all of them, the one used last first."""
        if self.folder is None or not os.path.isdir(self.folder):
            return []
        places = [path.parent for path in self.folder.glob(f"{kind}/*{_MARK}/{_ENTRY}") if path.parts[-3] != _NEW]
        return sorted((e for place in places if (e := _entry(place)) is not None), key=lambda e: -e.used)

    def problem(self) -> str | None:
        """Why nothing can be kept, and what to do; None where something can, or there is no folder."""
        if self.folder is None:
            return None
        try:
            shutil.rmtree(self._new(), ignore_errors=True)
        except (OSError, DlcError) as error:
            return self._nothing_kept(error)
        return None

    def _place(self, kind: str, key: str) -> Path:
        assert self.folder is not None
        return self.folder / kind / f"{key}{_MARK}"

    def _new(self) -> Path:
        """A new folder on the same disk; what dead processes left is removed."""
        assert self.folder is not None
        make_private(self.folder)
        for name in (_NEW, _LOCKS):
            parent = self.folder / name
            parent.mkdir(exist_ok=True)
            _remove_stale(parent)
        return Path(tempfile.mkdtemp(_MARK, dir=self.folder / _NEW))

    def _trim(self) -> None:
        entries = self.entries()
        total = sum(e.bytes for e in entries)
        while total > self.capacity:
            oldest = entries.pop()
            log.info("%s is removed: %d bytes are kept, %d may be", oldest.path.parent, total, self.capacity)
            self.remove(oldest.kind, oldest.key)
            total -= oldest.bytes

    def _warn(self, error: Exception) -> None:
        assert self.folder is not None
        if self.folder not in _unusable:
            _unusable.add(self.folder)
            log.warning("dlc: %s", self._nothing_kept(error))

    def _nothing_kept(self, error: Exception) -> str:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        return f"nothing is cached: {self.folder}: {reason}; set DLC_CACHE_DIR to another folder, or DLC_CACHE=0"


def _entry(place: Path) -> Entry | None:
    """What an entry's folder says; None for one that is being removed."""
    try:
        entry, hits = (place / _ENTRY).stat(), (place / _HITS).stat()
    except OSError:
        return None
    size = entry.st_size + hits.st_size
    return Entry(
        place.parent.name, place.name.removesuffix(_MARK), place / _ENTRY, size, entry.st_mtime, hits.st_mtime, hits.st_size
    )


def _exists(path: Path) -> bool:
    """Whether a file or folder is there and can be reached; of one behind a closed folder `Path.exists` raises."""
    return os.path.exists(path)


def _rename(new: Path, place: Path) -> None:
    try:
        os.rename(new, place)
    except OSError:
        if not _exists(place):
            raise
        # Another process, which did not wait for the lock, was faster; its entry is alike.


def _acquire(path: Path) -> int | None:
    """A descriptor of the locked file of this name; None if it was not to be had in time."""
    end = time.monotonic() + _PATIENCE_SECONDS
    told = False
    while time.monotonic() < end:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except BlockingIOError:
            if not told:
                log.info("%s: another process makes this entry; waiting for it", path.name)
                told = True
            time.sleep(_POLL_SECONDS)
        except FileNotFoundError:
            pass  # removed by its last holder
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    log.info("%s: held for %d seconds; going on without it", path, _PATIENCE_SECONDS)
    return None


def _remove_stale(folder: Path) -> None:
    for path in folder.glob(f"*{_MARK}"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime <= _STALE_SECONDS:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
