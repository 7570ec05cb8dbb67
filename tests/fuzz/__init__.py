"""Fuzzers, run by `python -m tests.fuzz`: random programs, graphs and files (docs/fuzzing.md)."""
