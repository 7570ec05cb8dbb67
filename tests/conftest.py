"""Tests verify every module after every pass, and compile what they compile: those of the cache have one of their own."""

import os

os.environ["DLC_VERIFY"] = "1"
os.environ["DLC_CACHE"] = "0"
