"""The command line: `dlc` with its subcommands, and `compile-model`.

Exit status 0 on success, 1 when the model or an input is at fault, 2 for usage. Results go to standard output, progress and
errors to standard error; progress is shown on a terminal only.
"""

from __future__ import annotations

import click

from dlc.cli.compile import compile_command
from dlc.cli.inspect import check_command, targets_command
from dlc.cli.opt import opt_command, passes_command
from dlc.cli.run import bench_command, run_command

__all__ = ["compile_model_command", "main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dlc")
def main() -> None:
    """Compiles ONNX models to native code; every step can be read, run and cut short."""


for _command in (
    compile_command,
    run_command,
    check_command,
    bench_command,
    opt_command,
    passes_command,
    targets_command,
):
    main.add_command(_command)

compile_model_command = compile_command
