"""`python -m dlc`: the command line."""

from dlc.cli import main

main(prog_name="dlc")
