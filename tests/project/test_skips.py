"""A test that is skipped says what is missing."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest

from dlc.target import CPU_LEVELS, host_flags
from tests import conftest, targets


def test_room_for_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/full")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=conftest.ROOM - 1))
    with pytest.raises(pytest.skip.Exception, match="/full has 511 MB left, tests need 512: name a larger folder in TMPDIR"):
        conftest.pytest_runtest_setup()
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=conftest.ROOM))
    conftest.pytest_runtest_setup()


def test_features_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = host_flags()
    monkeypatch.setattr("dlc.target.host_flags", lambda: flags - {"avx512f", "avx512_vnni"})
    (mark,) = targets.level("cpu:avx512").marks
    assert mark.args == (True,) and "avx512f" in mark.kwargs["reason"]
    (mark,) = targets.level("cpu:generic", CPU_LEVELS["cpu:generic"]).marks
    assert mark.args == (False,)
