"""The command line: `dlc` with its subcommands, and `compile-model`.

Exit status 0 on success, 1 when the model or an input is at fault, 2 for usage, 130 after
Ctrl-C. Results go to standard output, progress and
errors to standard error; progress is shown on a terminal only.
"""

from __future__ import annotations

from importlib import import_module

import click

# The commands, and the modules that hold them: imported when asked for, since `dlc opt` needs neither onnx nor LLVM.
COMMANDS = {
    "compile": "dlc.cli.compile",
    "run": "dlc.cli.run",
    "train": "dlc.cli.train",
    "quantize": "dlc.cli.quantize",
    "check": "dlc.cli.inspect",
    "bench": "dlc.cli.bench",
    "explore": "dlc.cli.explore",
    "diff": "dlc.cli.diff",
    "bisect": "dlc.cli.bisect",
    "reduce": "dlc.cli.reduce",
    "header": "dlc.cli.header",
    "opt": "dlc.cli.opt",
    "passes": "dlc.cli.opt",
    "targets": "dlc.cli.inspect",
    "cache": "dlc.cli.cache",
    "doctor": "dlc.cli.doctor",
    "completion": "dlc.cli.completion",
}
# The exit status of what Ctrl-C ends, as shells give it.
INTERRUPTED = 130
SETTINGS = {"help_option_names": ["-h", "--help"]}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _command(cmd_name) if cmd_name in COMMANDS else None

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


def _command(name: str) -> click.Command:
    return getattr(import_module(COMMANDS[name]), f"{name}_command")


@click.command(cls=_Commands, context_settings=SETTINGS)
@click.version_option(package_name="dlc")
def main() -> None:
    """Compiles ONNX models to native code; every step can be read, run and cut short."""


def compile_model_command() -> None:
    """The program `compile-model`."""
    click.version_option(package_name="dlc")(_command("compile"))(prog_name="compile-model", **SETTINGS)
