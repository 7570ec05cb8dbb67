"""An on-disk cache, shared by all processes of a user.

    <folder>/<kind>/<key>.cached/    entry    the cached file
                                   about    metadata of the entry, as JSON
                                   hits     one byte per hit; its modification time is the time of the last use
    <folder>/new/*.cached/           entries that are being written or removed
    <folder>/locks/*.cached          one lock file per entry that is being created

The folder may contain other files: the cache removes only files with its own suffix. Entries contain native code, which is
executed by the process that loads it. So the folder must be private to its owner, and an entry that other users have written
or may write to is ignored.

The *kind* of an entry ("model", "opencl") defines its file format. Its *key* identifies everything that the file depends on:
two files of the same kind and key are interchangeable. Keys are used as folder names.

    path = cache.lookup("opencl", key)                       returns the file, or None; counts as a hit
    path = cache.store("opencl", key, write, metadata)       calls write(path of a new file); None if it was not stored
    with cache.lock("opencl", key): ...                      excludes other processes and threads
    cache.read("opencl", key, read)                          returns read(path), or None; removes invalid entries
    cache.fetch("opencl", key, read, create, write, metadata)  reads the entry, or creates it in one process

Entries appear atomically: they are written to a temporary folder and renamed. The operating system releases the locks of
processes that die. An unusable folder is reported once, and caching is disabled in this process. When the capacity is
exceeded, the least recently used entries are removed; files that are open or mapped stay readable.

This module logs to `dlc.caching.cache`: warnings by default, removals and their reasons at level INFO.
"""

from __future__ import annotations

import errno
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

_ENTRY, _METADATA, _HITS = "entry", "about", "hits"
_STAGING, _LOCKS = "new", "locks"
# The suffix of everything that the cache creates and may remove.
_SUFFIX = ".cached"
# Temporary files older than this belong to processes that died, and are removed.
_STALE_SECONDS = 3600.0
# The timeout for another process that creates the same entry, and the polling interval.
_LOCK_TIMEOUT_SECONDS, _POLL_SECONDS = 600.0, 0.02
# Folders that this process has reported as unusable.
_unusable: set[Path] = set()


@dataclass(frozen=True)
class CacheEntry:
    """An entry on disk; times are in seconds since 1970."""

    kind: str
    key: str
    path: Path
    bytes: int
    created: float
    used: float
    hits: int

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata of the entry; empty if it cannot be read: it is for display only."""
        try:
            return json.loads((self.path.parent / _METADATA).read_text())
        except (OSError, ValueError):
            return {}


class Cache:
    """The entries in `folder`, up to `capacity` bytes; without a folder nothing is cached."""

    def __init__(self, folder: Path | None, capacity: int = 4 << 30) -> None:
        self.folder = folder
        self.capacity = capacity

    @staticmethod
    def standard() -> Cache:
        """Return the cache that the environment variables select."""
        environment = Environment.read()
        return Cache(environment.cache_folder if environment.cache else None, environment.cache_bytes)

    def lookup(self, kind: str, key: str) -> Path | None:
        """Return the file of an entry; None if there is none."""
        if self.folder is None:
            return None
        folder = self._entry_folder(kind, key)
        if not all(is_private(path) for path in (self.folder, folder, folder / _ENTRY)) or not (folder / _ENTRY).is_file():
            return None
        # The folder may be read-only: then hits are not counted.
        with suppress(OSError), (folder / _HITS).open("ab") as hits:
            hits.write(b".")
        return folder / _ENTRY

    def store(self, kind: str, key: str, write: Callable[[Path], object], metadata: Mapping[str, Any]) -> Path | None:
        """Store the file that `write(path)` creates, replacing an entry with this key; return the file of the entry.

        Log a message and return None if there is no usable folder or no space, or if the entry alone exceeds the capacity. The
        other entries then remain.
        """
        if self.folder is None or self.folder in _unusable:
            return None
        folder = self._entry_folder(kind, key)
        try:
            new = self._new_folder()
            try:
                write(new / _ENTRY)
                if (size := (new / _ENTRY).stat().st_size) > self.capacity:
                    message = "dlc: not cached: %d bytes exceed the cache's capacity of %d; raise it by DLC_CACHE_SIZE=%dG"
                    log.warning(message, size, self.capacity, 2 * size // (1 << 30) + 1)
                    return None
                (new / _ENTRY).chmod(0o600)
                (new / _METADATA).write_text(json.dumps(metadata))
                (new / _HITS).touch()
                folder.parent.mkdir(exist_ok=True)
                self.remove(kind, key)
                _rename(new, folder)
            finally:
                shutil.rmtree(new, ignore_errors=True)
            self._evict()
        except (OSError, DlcError) as error:
            self._warn(error)
            return None
        return folder / _ENTRY if _exists(folder) else None

    def fetch(
        self,
        kind: str,
        key: str,
        read: Callable[[Path], T],
        create: Callable[[], T],
        write: Callable[[T, Path], object],
        metadata: Mapping[str, Any],
    ) -> tuple[T, bool]:
        """Return the cached value, as `read` returns it, and True; or store and return the result of `create`, and False.

        While one process creates the entry, others wait and then read it.
        """
        cached = self.read(kind, key, read)
        if cached is not None:
            return cached, True
        with self.lock(kind, key):
            cached = self.read(kind, key, read)
            if cached is not None:
                return cached, True
            result = create()
            self.store(kind, key, lambda path: write(result, path), metadata)
            return result, False

    def read(self, kind: str, key: str, read: Callable[[Path], T]) -> T | None:
        """Return `read(path)` for the file of an entry; None without an entry.

        If `read` raises DlcError or OSError, the entry is damaged and is removed, unless another process has removed it
        meanwhile.
        """
        path = self.lookup(kind, key)
        if path is None:
            return None
        try:
            return read(path)
        except (DlcError, OSError) as error:
            if not _exists(path):
                return None
            log.info("removing damaged entry %s: %s", path.parent, error)
            self.remove(kind, key)
            return None

    @contextmanager
    def lock(self, kind: str, key: str) -> Generator[None]:
        """Exclude other holders of the same lock, in this process and in others, during the block.

        After ten minutes it continues without the lock: the holder is stuck, and doing the same work twice is harmless.
        """
        path, descriptor = None, None
        if self.folder is not None and self.folder not in _unusable:
            path = self.folder / _LOCKS / f"{kind}-{key}{_SUFFIX}"
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
                # Remove the file while it is locked: processes that wait for it notice that it is no longer the current one.
                with suppress(OSError):
                    path.unlink()
                os.close(descriptor)

    def remove(self, kind: str, key: str) -> bool:
        """Remove an entry atomically, if it exists; return whether it did."""
        if self.folder is None:
            return False
        folder = self._entry_folder(kind, key)
        if not _exists(folder):
            return False
        try:
            trash = self._new_folder()
            os.rename(folder, trash)
        except OSError:
            return False
        shutil.rmtree(trash, ignore_errors=True)
        return True

    def clear(self) -> list[CacheEntry]:
        """Remove all entries and return them."""
        return [e for e in self.entries() if self.remove(e.kind, e.key)]

    def entries(self, kind: str = "*") -> list[CacheEntry]:
        """Return the entries of a kind, or all of them, most recently used first."""
        if self.folder is None or not os.path.isdir(self.folder):
            return []
        folders = [path.parent for path in self.folder.glob(f"{kind}/*{_SUFFIX}/{_ENTRY}") if path.parts[-3] != _STAGING]
        return sorted((e for folder in folders if (e := _entry(folder)) is not None), key=lambda e: -e.used)

    def problem(self) -> str | None:
        """Return the reason why nothing can be cached, and a fix; None if caching works or is turned off."""
        if self.folder is None:
            return None
        try:
            shutil.rmtree(self._new_folder(), ignore_errors=True)
        except (OSError, DlcError) as error:
            return self._unusable_message(error)
        return None

    def _entry_folder(self, kind: str, key: str) -> Path:
        assert self.folder is not None
        return self.folder / kind / f"{key}{_SUFFIX}"

    def _new_folder(self) -> Path:
        """Create a temporary folder on the same disk; remove those that dead processes left."""
        assert self.folder is not None
        make_private(self.folder)
        for name in (_STAGING, _LOCKS):
            parent = self.folder / name
            parent.mkdir(exist_ok=True)
            _remove_stale(parent)
        return Path(tempfile.mkdtemp(_SUFFIX, dir=self.folder / _STAGING))

    def _evict(self) -> None:
        entries = self.entries()
        total = sum(e.bytes for e in entries)
        while total > self.capacity:
            oldest = entries.pop()
            log.info("evicting %s: the cache has %d bytes, its capacity is %d", oldest.path.parent, total, self.capacity)
            self.remove(oldest.kind, oldest.key)
            total -= oldest.bytes

    def _warn(self, error: Exception) -> None:
        assert self.folder is not None
        if self.folder not in _unusable:
            _unusable.add(self.folder)
            log.warning("dlc: %s", self._unusable_message(error))

    def _unusable_message(self, error: Exception) -> str:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        return f"nothing is cached: {self.folder}: {reason}; set DLC_CACHE_DIR to another folder, or DLC_CACHE=0"


def _entry(folder: Path) -> CacheEntry | None:
    """Return the entry in a folder; None for one that is being removed."""
    try:
        entry, hits = (folder / _ENTRY).stat(), (folder / _HITS).stat()
    except OSError:
        return None
    size = entry.st_size + hits.st_size
    return CacheEntry(
        folder.parent.name,
        folder.name.removesuffix(_SUFFIX),
        folder / _ENTRY,
        size,
        entry.st_mtime,
        hits.st_mtime,
        hits.st_size,
    )


def _exists(path: Path) -> bool:
    """Return whether a file or folder exists and is accessible; `Path.exists` raises below a folder without permission."""
    return os.path.exists(path)


def _rename(new: Path, folder: Path) -> None:
    try:
        os.rename(new, folder)
    except OSError as error:
        # Another process, which stored without the lock, was faster; its entry is equivalent, even if a third one removes it.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise


def _acquire(path: Path) -> int | None:
    """Return a descriptor of the locked file; None if the lock was not available in time."""
    end = time.monotonic() + _LOCK_TIMEOUT_SECONDS
    is_logged = False
    while time.monotonic() < end:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except BlockingIOError:
            if not is_logged:
                log.info("%s: waiting for another process that creates this entry", path.name)
                is_logged = True
            time.sleep(_POLL_SECONDS)
        except FileNotFoundError:
            pass  # Removed by its last holder.
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    log.info("%s: locked for %d seconds; continuing without the lock", path, _LOCK_TIMEOUT_SECONDS)
    return None


def _remove_stale(folder: Path) -> None:
    for path in folder.glob(f"*{_SUFFIX}"):
        with suppress(OSError):
            if time.time() - path.stat().st_mtime <= _STALE_SECONDS:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
