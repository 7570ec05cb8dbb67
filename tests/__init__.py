"""Tests; shared records are in `tests.ops`."""
