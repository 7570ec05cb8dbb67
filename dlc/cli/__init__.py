"""The command line: `dlc` with its subcommands, and `compile-model`.

Exit status 0 on success, 1 when the model or an input is at fault, 2 for usage. Results go to standard output, progress and
errors to standard error; progress is shown on a terminal only.
"""

from __future__ import annotations

import click

from dlc.cli.opt import opt_command, passes_command

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Compiles ONNX models to native code; every step can be read, run and cut short."""


for _command in (opt_command, passes_command):
    main.add_command(_command)
