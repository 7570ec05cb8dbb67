"""`python -m dlc` is the command line."""

from __future__ import annotations

from dlc.cli import main

if __name__ == "__main__":
    main(prog_name="dlc")
