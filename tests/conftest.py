"""Tests verify every module after every pass."""

import os

os.environ["DLC_VERIFY"] = "1"
