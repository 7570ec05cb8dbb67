"""Tests verify every module after every pass, and compile what they compile: those of the cache have one of their own.

They write to the folder of temporary files, and are skipped while it has too little room.
"""

import locale
import os
import shutil
import tempfile

import pytest

os.environ["DLC_VERIFY"] = "1"
os.environ["DLC_CACHE"] = "0"
os.environ.setdefault("DLC_WORKERS", "1")  # the processors are busy with other tests; tests of several say how many
os.environ["DLC_CACHE_DIR"] = os.path.join(tempfile.gettempdir(), f"dlc-tests-{os.getpid()}")  # never the user's
os.environ.pop("COLUMNS", None)  # tables are as wide as they are where there is no terminal
os.environ.setdefault("POCL_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"dlc-tests-pocl-{os.getuid()}"))

# The stages of a ResNet-50; and where no room is left for its kernels, PoCL ends the process.
ROOM = 512 << 20


def pytest_configure() -> None:
    if (encoding := locale.getpreferredencoding(False)).lower().replace("-", "") != "utf8":
        raise pytest.UsageError(f"tests read and print UTF-8, and this locale's encoding is {encoding}: set PYTHONUTF8=1")


def pytest_runtest_setup() -> None:
    folder = os.environ.get("TMPDIR") or tempfile.gettempdir()  # which takes another one where that is full
    if (free := shutil.disk_usage(folder).free) < ROOM:
        pytest.skip(f"{folder} has {free >> 20} MB left, tests need {ROOM >> 20}: name a larger folder in TMPDIR")
