"""Skipped tests say what is missing."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest

from dlc.target import CPU_LEVELS, host_flags
from tests import conftest, targets


def test_disk_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/full")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=conftest.REQUIRED_FREE_BYTES - 1))
    with pytest.raises(pytest.skip.Exception, match="/full has 511 MB left, tests need 512: set TMPDIR to a larger folder"):
        conftest.pytest_runtest_setup()
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=conftest.REQUIRED_FREE_BYTES))
    conftest.pytest_runtest_setup()


def test_processor_features(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = host_flags()
    monkeypatch.setattr("dlc.target.host_flags", lambda: flags - {"avx512f", "avx512_vnni"})
    (mark,) = targets.level("cpu:avx512").marks
    assert mark.args == (True,) and "avx512f" in mark.kwargs["reason"]
    (mark,) = targets.level("cpu:generic", CPU_LEVELS["cpu:generic"]).marks
    assert mark.args == (False,)
