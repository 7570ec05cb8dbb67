"""Tests verify every module after every pass, and compile what they compile: those of the cache have one of their own."""

import os
import tempfile

os.environ["DLC_VERIFY"] = "1"
os.environ["DLC_CACHE"] = "0"
os.environ.setdefault("DLC_WORKERS", "1")  # the processors are busy with other tests; tests of several say how many
os.environ["DLC_CACHE_DIR"] = os.path.join(tempfile.gettempdir(), f"dlc-tests-{os.getpid()}")  # never the user's
os.environ.setdefault("POCL_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"dlc-tests-pocl-{os.getuid()}"))
