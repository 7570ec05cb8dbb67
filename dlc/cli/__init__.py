"""The command line: `dlc` with its subcommands, and `compile-model`.

Exit status 0 on success, 1 when the model or an input is at fault, 2 for usage, 130 after
Ctrl-C. Results go to standard output, progress and
errors to standard error; progress is shown on a terminal only.
"""

from __future__ import annotations

from importlib import import_module

import click

# The commands as `dlc --help` lists them, and the modules that hold them: imported when asked for, since `dlc opt` needs
# neither onnx nor LLVM.
SECTIONS = {
    "Models": {
        "check": "dlc.cli.inspect",
        "run": "dlc.cli.run",
        "compile": "dlc.cli.compile",
        "train": "dlc.cli.train",
        "quantize": "dlc.cli.quantize",
        "header": "dlc.cli.header",
    },
    "Why is it slow, large or wrong": {
        "bench": "dlc.cli.bench",
        "explore": "dlc.cli.explore",
        "diff": "dlc.cli.diff",
        "bisect": "dlc.cli.bisect",
        "reduce": "dlc.cli.reduce",
    },
    "The compiler and this machine": {
        "opt": "dlc.cli.opt",
        "passes": "dlc.cli.opt",
        "targets": "dlc.cli.inspect",
        "cache": "dlc.cli.cache",
        "doctor": "dlc.cli.doctor",
        "completion": "dlc.cli.completion",
    },
}
COMMANDS = {name: module for section in SECTIONS.values() for name, module in section.items()}
# The exit status of what Ctrl-C ends, as shells give it.
INTERRUPTED = 130
SETTINGS = {"help_option_names": ["-h", "--help"]}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _command(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        room = formatter.width - 6 - max(map(len, COMMANDS))
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, _command(name).get_short_help_str(room)) for name in names])

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
    """Compiles models to native code; every step can be read, run and cut short.

    `dlc COMMAND --help` says what a command takes. A model is an ONNX or TFLite file, what torch.export.save wrote (.pt2), or
    a module of StableHLO or of a dump (.mlir).
    """


def compile_model_command() -> None:
    """The program `compile-model`."""
    click.version_option(package_name="dlc")(_command("compile"))(prog_name="compile-model", **SETTINGS)
