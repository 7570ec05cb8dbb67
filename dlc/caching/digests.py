"""Digests of files for cache keys.

Reading a large file takes longer than loading its programs. So the digest of a large file is stored in the cache under the
state of the file: its device, inode, size and times, and samples of its content. The samples distinguish files of read-only
images, whose inodes and times may repeat.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

from dlc.caching.cache import Cache
from dlc.errors import ModelError
from dlc.machine.cpus import usable_cpus
from dlc.machine.threads import ThreadPool

# The kind of the entries of digests.
DIGEST_KIND = "digest"
# Files are hashed in chunks, in parallel; the digest of a file is the hash of the hashes of its chunks.
_CHUNK_BYTES = 2 << 20
_DIGEST_BYTES = 20
# Smaller files are hashed in less time than it takes to read an entry of the cache and samples.
_MIN_STORED_BYTES = 16 << 20
_NUM_SAMPLES, _SAMPLE_BYTES = 64, 4096
# A file that changed more recently may change again without a change of its times, whose resolution is up to 2 s.
MIN_AGE_SECONDS = 3.0


def digest(data: bytes) -> str:
    """Return a hash of bytes."""
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()


def file_digest(path: Path) -> str:
    """Return a hash of a file's content. Raises OSError if it cannot be read.

    Names and times do not affect it, since copies and archives change them.
    """
    with path.open("rb") as file:
        descriptor, status = file.fileno(), os.fstat(file.fileno())
        if status.st_size < _MIN_STORED_BYTES:
            return _content_digest(descriptor, status.st_size)
        cache, key = Cache.standard(), _state_digest(descriptor, status)
        if (stored := cache.read(DIGEST_KIND, key, read_digest)) is not None:
            return stored
        age_seconds = time.time() - max(status.st_mtime, status.st_ctime)
        content = _content_digest(descriptor, status.st_size)
        if age_seconds > MIN_AGE_SECONDS and _state_digest(descriptor, os.fstat(descriptor)) == key:
            cache.store(DIGEST_KIND, key, lambda entry: entry.write_text(content), {"file": str(path.resolve())})
        return content


def _content_digest(descriptor: int, size: int) -> str:
    def chunk_digest(start: int) -> bytes:
        # Not memory-mapped: if the file were truncated meanwhile, the process would receive SIGBUS.
        return hashlib.blake2b(os.pread(descriptor, _CHUNK_BYTES, start)).digest()

    with ThreadPool(usable_cpus()) as workers:
        return digest(b"".join(workers.map(chunk_digest, range(0, size, _CHUNK_BYTES))))


def _state_digest(descriptor: int, status: os.stat_result) -> str:
    """Return a hash of the state of a file, which changes whenever the file is written."""
    fields = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    starts = range(0, status.st_size, -(-status.st_size // _NUM_SAMPLES))
    return digest(repr(fields).encode() + b"".join(os.pread(descriptor, _SAMPLE_BYTES, start) for start in starts))


def read_digest(entry: Path) -> str:
    """Read an entry of the cache. Raises ModelError for anything but a digest."""
    text = entry.read_text(errors="replace")
    if len(text) != 2 * _DIGEST_BYTES or not set(text) <= set("0123456789abcdef"):
        raise ModelError(f"{entry}: damaged")
    return text
