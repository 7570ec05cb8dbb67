"""The digest of dlc's own sources, for cache keys.

Hashing all sources takes longer than loading a small model. So their digest is stored in the cache under their state: the
names, inodes, sizes and times of the files, as for large model files (digests.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from dlc.caching.cache import Cache
from dlc.caching.digests import DIGEST_KIND, MIN_AGE_SECONDS, digest, read_digest

_ROOT = os.path.dirname(os.path.dirname(__file__))
_SUFFIXES = (".py", ".ll")


def sources_changed() -> bool:
    """Return whether dlc's sources changed since this module was imported: this process then runs a mix of both versions."""
    return _state() != _IMPORTED_STATE


@lru_cache(maxsize=1)
def source_digest() -> str:
    """Return a hash of the sources that this process imported.

    If they changed since then, it is unique to their earlier state.
    """
    # Images of read-only file systems may differ although the inodes and times of their files are equal.
    cache = Cache(None) if os.statvfs(_ROOT).f_flag & os.ST_RDONLY else Cache.standard()
    if (stored := cache.read(DIGEST_KIND, _IMPORTED_STATE, read_digest)) is not None:
        return stored
    content = _content_digest()
    if sources_changed():
        return _IMPORTED_STATE
    if time.time() - _last_change_seconds() > MIN_AGE_SECONDS:
        cache.store(DIGEST_KIND, _IMPORTED_STATE, lambda entry: entry.write_text(content), {"file": _ROOT})
    return content


def _state() -> str:
    """Return a hash of the state of the sources, which changes whenever one is written."""
    states: list[str] = []
    for file in _sources(_ROOT):
        status = file.stat()
        identity = f"{status.st_dev} {status.st_ino} {status.st_size}"
        states.append(f"{file.path} {identity} {status.st_mtime_ns} {status.st_ctime_ns}\n")
    return digest("".join(sorted(states)).encode())


def _last_change_seconds() -> float:
    return max((max(status.st_mtime, status.st_ctime) for file in _sources(_ROOT) for status in [file.stat()]), default=0.0)


def _content_digest() -> str:
    contents = [f"{os.path.relpath(file.path, _ROOT)} {digest(Path(file.path).read_bytes())}\n" for file in _sources(_ROOT)]
    return digest("".join(sorted(contents)).encode())


def _sources(folder: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(_SUFFIXES):
                yield entry
            elif entry.name != "__pycache__" and entry.is_dir():
                yield from _sources(entry.path)


_IMPORTED_STATE = _state()
