"""Digests of files: those of large files are stored in the cache while the files are unchanged."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from dlc.caching import digests
from dlc.caching.cache import Cache
from dlc.caching.digests import DIGEST_KIND, file_digest


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file whose digest is stored, although it is small and new."""
    monkeypatch.setenv("DLC_CACHE", "1")
    monkeypatch.setenv("DLC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(digests, "_MIN_STORED_BYTES", 1)
    monkeypatch.setattr(digests, "MIN_AGE_SECONDS", -60.0)
    path = tmp_path / "model.gguf"
    path.write_bytes(np.random.default_rng(0).bytes(5 << 20))
    return path


def stored() -> int:
    return len(Cache.standard().entries(DIGEST_KIND))


def test_an_unchanged_file_is_read_once(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = file_digest(large)
    monkeypatch.setattr(digests, "_content_digest", lambda *_: pytest.fail("the file is read again"))
    assert file_digest(large) == first and stored() == 1


def test_a_changed_file_has_another_digest(large: Path) -> None:
    """A change that keeps the size, the modification time and all samples is noticed."""
    first, status = file_digest(large), large.stat()
    with large.open("r+b") as file:
        file.seek(5000)
        file.write(b"changed")
    os.utime(large, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert file_digest(large) != first
    # The content alone determines it.
    copy = large.with_name("copy")
    copy.write_bytes(large.read_bytes())
    assert file_digest(copy) == file_digest(large)


def test_samples_distinguish_files_of_equal_times(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status, first = large.stat(), file_digest(large)
    large.write_bytes(np.random.default_rng(1).bytes(5 << 20))
    monkeypatch.setattr(digests.os, "fstat", lambda _: status)
    assert file_digest(large) != first


def test_digests_of_new_files_are_not_stored(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may change within the resolution of its times."""
    monkeypatch.setattr(digests, "MIN_AGE_SECONDS", 60.0)
    file_digest(large)
    assert stored() == 0


def test_damaged_entries_are_ignored(large: Path) -> None:
    first = file_digest(large)
    (entry,) = Cache.standard().entries(DIGEST_KIND)
    entry.path.write_text("other")
    assert file_digest(large) == first
