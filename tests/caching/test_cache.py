"""The cache: entries are atomic, found again, and evicted at capacity; errors never stop the caller."""

from __future__ import annotations

import errno
import logging
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dlc.caching.cache import Cache
from dlc.errors import ModelError
from dlc.options import Environment


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def writes(text: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(text)


def files(cache: Cache) -> list[str]:
    assert cache.folder is not None
    return sorted(str(p.relative_to(cache.folder)) for p in cache.folder.rglob("*") if p.is_file())


def test_a_stored_entry_is_found(cache: Cache) -> None:
    assert cache.lookup("text", "a") is None
    path = cache.store("text", "a", writes("one"), {"by": "me"})
    assert path is not None and path.read_text() == "one"
    assert cache.lookup("text", "a") == path and cache.lookup("text", "b") is None and cache.lookup("other", "a") is None
    (entry,) = cache.entries()
    assert (entry.kind, entry.key, entry.hits, entry.metadata) == ("text", "a", 1, {"by": "me"})
    assert files(cache) == ["text/a.cached/about", "text/a.cached/entry", "text/a.cached/hits"]


def test_an_entry_is_replaced_and_removed(cache: Cache) -> None:
    cache.store("text", "a", writes("one"), {})
    path = cache.store("text", "a", writes("two"), {})
    assert path is not None and path.read_text() == "two"
    assert cache.remove("text", "a") and not cache.remove("text", "a")
    cache.store("text", "b", writes("three"), {})
    assert [e.key for e in cache.clear()] == ["b"]
    assert files(cache) == []


def test_an_entry_that_another_process_stores_and_removes_meanwhile(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def rename(source: Path, target: Path) -> None:
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(source), None, str(target))

    with monkeypatch.context() as patched:
        patched.setattr("dlc.caching.cache.os.rename", rename)
        assert cache.store("text", "a", writes("one"), {}) is None
    assert cache.store("text", "a", writes("two"), {}) is not None and not caplog.records


def test_an_entry_that_another_process_removes_meanwhile_is_not_damaged(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    def read(path: Path) -> str:
        cache.remove("text", "a")
        return path.read_text()

    cache.store("text", "a", writes("one"), {})
    assert cache.read("text", "a", read) is None and not caplog.records


def test_the_least_recently_used_entries_are_evicted_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, capacity=250)
    for k, key in enumerate("abc"):
        cache.store("text", key, writes("x" * 80), {})
        os.utime(tmp_path / "text" / f"{key}.cached" / "hits", (k, k))
    cache.lookup("text", "a")
    cache.store("text", "d", writes("x" * 80), {})
    assert {e.key for e in cache.entries()} == {"a", "c", "d"}
    assert cache.store("text", "large", writes("x" * 300), {}) is None


def test_a_damaged_entry_is_recreated(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    def read(path: Path) -> str:
        if "damaged" in path.read_text():
            raise ModelError(f"{path}: damaged")
        return path.read_text()

    def fetch() -> tuple[str, bool]:
        return cache.fetch("text", "a", read, lambda: "one", lambda value, path: path.write_text(value), {})

    assert fetch() == ("one", False)
    assert fetch() == ("one", True)
    path = cache.lookup("text", "a")
    assert path is not None
    path.write_text("damaged")
    with caplog.at_level(logging.INFO, "dlc.caching.cache"):
        assert fetch() == ("one", False)
    assert "removing damaged entry" in caplog.text
    assert fetch() == ("one", True)


def test_one_process_creates_an_entry_and_others_wait(cache: Cache) -> None:
    made: list[int] = []

    def make() -> str:
        made.append(1)
        time.sleep(0.1)
        return "one"

    results: list[tuple[str, bool]] = []

    def work() -> None:
        results.append(cache.fetch("text", "a", Path.read_text, make, lambda value, path: path.write_text(value), {}))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(made) == 1 and len(results) == 8 and {value for value, _ in results} == {"one"}
    assert files(cache) == ["text/a.cached/about", "text/a.cached/entry", "text/a.cached/hits"]


def test_a_dead_process_holds_no_lock(cache: Cache) -> None:
    script = (
        "import os, sys; from pathlib import Path; from dlc.caching.cache import Cache\n"
        "with Cache(Path(sys.argv[1])).lock('text', 'a'): print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(cache.folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    holder.kill()
    holder.communicate()
    with cache.lock("text", "a"):
        assert files(cache) == ["locks/text-a.cached"]
    assert files(cache) == []


def test_a_stuck_lock_holder_does_not_block_others(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlc.caching.cache._LOCK_TIMEOUT_SECONDS", 0.1)
    with cache.lock("text", "a"):
        assert cache.fetch("text", "a", Path.read_text, lambda: "one", lambda v, p: p.write_text(v), {}) == ("one", False)
    assert files(cache) == ["text/a.cached/about", "text/a.cached/entry", "text/a.cached/hits"]


def test_files_of_dead_processes_are_removed(cache: Cache) -> None:
    assert cache.folder is not None
    for name, age in (("old.cached", 7200), ("fresh.cached", 60), ("mine", 7200)):
        left = cache.folder / "new" / name
        left.mkdir(parents=True)
        (left / "entry").write_text("half")
        os.utime(left, (time.time() - age,) * 2)
        lock = cache.folder / "locks" / name
        lock.parent.mkdir(exist_ok=True)
        lock.touch()
        os.utime(lock, (time.time() - age,) * 2)
    assert cache.entries() == []
    cache.store("text", "a", writes("one"), {})
    assert [sorted(p.name for p in (cache.folder / kind).iterdir()) for kind in ("new", "locks")] == [
        ["fresh.cached", "mine"]
    ] * 2


def test_foreign_files_in_the_folder_are_not_removed(cache: Cache) -> None:
    assert cache.folder is not None
    for name in ("text/b", "new/b", "plans/c"):
        (cache.folder / name).mkdir(parents=True)
        for file in ("entry", "about", "hits"):
            (cache.folder / name / file).write_text("a person's")
            os.utime(cache.folder / name / file, (0, 0))
        os.utime(cache.folder / name, (0, 0))
    before = files(cache)
    cache.store("text", "a", writes("one"), {})
    assert [e.key for e in cache.clear()] == ["a"]
    Cache(cache.folder, capacity=0).store("text", "a", writes("one"), {})
    assert files(cache) == before


def test_an_entry_above_the_capacity_leaves_the_others(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    cache.store("text", "a", writes("one"), {})
    assert Cache(cache.folder, capacity=200).store("text", "b", writes("1" * 300), {}) is None
    assert "300 bytes exceed the cache's capacity of 200; raise it by DLC_CACHE_SIZE" in caplog.text
    assert [e.key for e in cache.entries()] == ["a"]


def test_the_folder_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        cache = Cache(tmp_path / "home" / "cache")
        path = cache.store("text", "a", writes("one"), {})
    finally:
        os.umask(before)
    assert path is not None and cache.folder is not None
    assert [stat.S_IMODE(p.stat().st_mode) for p in (cache.folder, cache.folder.parent)] == [0o700] * 2
    assert cache.lookup("text", "a") == path
    path.chmod(0o666)
    assert cache.lookup("text", "a") is None
    path.chmod(0o600)
    cache.folder.chmod(0o777)
    assert cache.lookup("text", "a") is None
    assert cache.store("text", "b", writes("two"), {}) is not None  # which made it private again
    assert stat.S_IMODE(cache.folder.stat().st_mode) == 0o755 and cache.lookup("text", "a") == path


def test_a_world_writable_folder_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    cache = Cache(tmp_path / "open" / "cache")
    assert cache.store("text", "a", writes("one"), {}) is None
    assert "any user may write" in caplog.text and "DLC_CACHE_DIR" in caplog.text
    (tmp_path / "open").chmod(0o1777)
    sticky = Cache(tmp_path / "open" / "other")
    assert sticky.store("text", "a", writes("one"), {}) is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_entries_of_another_owner_are_not_loaded(cache: Cache) -> None:
    path = cache.store("text", "a", writes("one"), {})
    assert path is not None
    os.chown(path, 65534, 65534)
    assert cache.lookup("text", "a") is None
    os.chown(path, 0, 0)
    assert cache.lookup("text", "a") == path
    assert cache.folder is not None
    os.chown(cache.folder, 65534, 65534)
    assert cache.lookup("text", "a") is None and cache.store("text", "b", writes("two"), {}) is None


def test_a_failed_write_leaves_nothing(cache: Cache) -> None:
    def write(path: Path) -> None:
        path.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.store("text", "a", write, {})
    assert files(cache) == []


@pytest.mark.parametrize("kind", ["behind a closed folder", "in one of everybody's", "of a name that no disk takes"])
def test_an_inaccessible_folder_disables_the_cache(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    around = tmp_path / "around"
    (around / "cache").mkdir(parents=True)
    around.chmod({"behind a closed folder": 0, "in one of everybody's": 0o777}.get(kind, 0o700))
    cache = Cache(around / ("c" * 300 if kind == "of a name that no disk takes" else "cache"))
    try:
        for _ in range(2):
            made, _ = cache.fetch("text", "a", Path.read_text, lambda: "one", lambda v, p: p.write_text(v), {})
            assert made == "one"
        # Nothing is closed to root.
        if kind != "behind a closed folder" or not os.access(around, os.X_OK):
            assert (cache.lookup("text", "a"), cache.remove("text", "a"), cache.entries()) == (None, False, [])
            assert caplog.text.count("nothing is cached") == 1
    finally:
        around.chmod(0o700)


def test_an_unusable_folder_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = Cache(tmp_path / "file" / "cache")
    for _ in range(3):
        assert cache.fetch("text", "a", Path.read_text, lambda: "one", lambda v, p: p.write_text(v), {}) == ("one", False)
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "nothing is cached" in caplog.text and "DLC_CACHE_DIR" in caplog.text
    assert (problem := cache.problem()) is not None and problem in caplog.text
    assert Cache(tmp_path / "another").problem() is None and Cache(None).problem() is None


def test_a_full_disk_is_reported_once(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    def full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    assert cache.store("text", "a", full, {}) is None and cache.store("text", "a", full, {}) is None
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "No space left" in caplog.text and files(cache) == []


def test_environment_variables_select_the_cache(tmp_path: Path) -> None:
    def read(**variables: str) -> tuple[bool, Path | None, int]:
        e = Environment.read({"XDG_CACHE_HOME": str(tmp_path), **variables})
        return e.cache, e.cache_folder, e.cache_bytes

    assert read() == (True, tmp_path / "dlc", 4 << 30)
    assert read(DLC_CACHE_DIR=str(tmp_path / "c"), DLC_CACHE_SIZE="500M") == (True, tmp_path / "c", 500 << 20)
    assert read(DLC_CACHE="0", DLC_CACHE_SIZE="0") == (False, tmp_path / "dlc", 0)
    assert read(XDG_CACHE_HOME="relative")[1] is None


def test_without_a_folder_nothing_is_cached() -> None:
    cache = Cache(None)
    assert cache.fetch("text", "a", Path.read_text, lambda: "one", lambda v, p: p.write_text(v), {}) == ("one", False)
    assert cache.entries() == [] and cache.clear() == []
