"""Instrumentation of the pass manager: verification, timing, IR dumps, numerical checks and reproducers."""
