"""Fuzzing: `python -m tests.fuzz programs` and `python -m tests.fuzz files`; docs/fuzzing.md says what both do."""
