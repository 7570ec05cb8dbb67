"""Tests verify every module after every pass, and do not use the cache, except the tests of the cache.

They write to the temporary folder, and are skipped if it has too little space.
"""

import locale
import os
import shutil
import sys
import tempfile

import pytest

os.environ["DLC_VERIFY"] = "1"
os.environ["DLC_CACHE"] = "0"
os.environ.setdefault("DLC_WORKERS", "1")  # processors are shared with other tests; tests of worker processes set a number
os.environ["DLC_CACHE_DIR"] = os.path.join(tempfile.gettempdir(), f"dlc-tests-{os.getpid()}")  # not the user's cache
os.environ.pop("COLUMNS", None)  # print tables at the default width, as without a terminal
os.environ.setdefault("POCL_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"dlc-tests-pocl-{os.getuid()}"))

# Processes share bytecode, also where the environment says not to write it next to the sources: compiling them takes 2 s each.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.pycache_prefix = os.environ.setdefault(
    "PYTHONPYCACHEPREFIX", os.path.join(tempfile.gettempdir(), f"dlc-tests-bytecode-{os.getuid()}")
)

# Enough for the dumped stages of a ResNet-50; PoCL aborts the process if it cannot write its kernels.
REQUIRED_FREE_BYTES = 512 << 20


def pytest_configure() -> None:
    if (encoding := locale.getpreferredencoding(False)).lower().replace("-", "") != "utf8":
        raise pytest.UsageError(f"tests read and print UTF-8, and this locale's encoding is {encoding}: set PYTHONUTF8=1")


def pytest_unconfigure() -> None:
    shutil.rmtree(os.environ["DLC_CACHE_DIR"], ignore_errors=True)


def pytest_runtest_setup() -> None:
    folder = os.environ.get("TMPDIR") or tempfile.gettempdir()  # gettempdir may ignore a full TMPDIR
    if (free := shutil.disk_usage(folder).free) < REQUIRED_FREE_BYTES:
        pytest.skip(f"{folder} has {free >> 20} MB left, tests need {REQUIRED_FREE_BYTES >> 20}: set TMPDIR to a larger folder")
