"""The digest of dlc's sources: it depends on their content, and is stored while they are unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlc.caching import source_digest as module
from dlc.caching.cache import Cache
from dlc.caching.digests import DIGEST_KIND
from dlc.caching.source_digest import source_digest


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder of sources, which this process has imported."""
    monkeypatch.setenv("DLC_CACHE", "1")
    monkeypatch.setenv("DLC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "MIN_AGE_SECONDS", -60.0)
    root = tmp_path / "dlc"
    (root / "passes").mkdir(parents=True)
    (root / "passes" / "fold.py").write_text("x = 1\n")
    monkeypatch.setattr(module, "_ROOT", str(root))
    restart(monkeypatch)
    return root


def restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Import the sources anew."""
    monkeypatch.setattr(module, "_IMPORTED_STATE", module._state())
    source_digest.cache_clear()


@pytest.fixture(autouse=True)
def own_digest() -> object:
    """Compute the digest of dlc itself anew after a test."""
    yield
    source_digest.cache_clear()


def test_unchanged_sources_are_read_once(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = source_digest()
    monkeypatch.setattr(module, "_content_digest", lambda: pytest.fail("the sources are read again"))
    restart(monkeypatch)
    assert source_digest() == first


def test_every_change_changes_the_digest(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digests = {source_digest()}
    file = sources / "passes" / "fold.py"
    for change in (
        lambda: file.write_text("x = 2\n"),
        lambda: file.rename(file.with_name("split.py")),
        lambda: (sources / "runtime.ll").write_text(""),
    ):
        change()
        restart(monkeypatch)
        digests.add(source_digest())
    assert len(digests) == 4


def test_the_place_of_the_sources_does_not_matter(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = source_digest()
    sources.rename(sources.with_name("installed"))
    monkeypatch.setattr(module, "_ROOT", str(sources.with_name("installed")))
    restart(monkeypatch)
    assert source_digest() == first


def test_sources_that_change_after_the_import_are_not_stored(sources: Path) -> None:
    (sources / "passes" / "fold.py").write_text("x = 2\n")
    assert module.sources_changed()
    assert source_digest() == module._IMPORTED_STATE
    assert not Cache.standard().entries(DIGEST_KIND)


def test_digests_of_read_only_images_are_not_stored(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two images may have files with equal inodes and times."""
    read_only = type("Status", (), {"f_flag": module.os.ST_RDONLY})
    monkeypatch.setattr(module.os, "statvfs", lambda _: read_only)
    source_digest()
    assert not Cache.standard().entries(DIGEST_KIND)
