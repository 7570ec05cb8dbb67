"""`python -m dlc` is the command line."""

from __future__ import annotations

from dlc.cli import main

main(prog_name="dlc")
