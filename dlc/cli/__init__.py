"""The command line: `dlc` with its subcommands, and `compile-model`.

Exit status 0 on success, 1 when the model or an input is at fault, 2 for usage, 130 after
Ctrl-C. Results go to standard output, progress and
errors to standard error; progress is shown on a terminal only.
"""

from __future__ import annotations

import atexit
import gc
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import NamedTuple

import click
from click.shell_completion import CompletionItem


class Entry(NamedTuple):
    """A command: the module that holds it, and the first line of its help."""

    module: str
    help: str

    def shown(self, room: int = 45) -> str:
        """The help in so many columns."""
        return click.Command(None, help=self.help).get_short_help_str(room)


# The commands as `dlc --help` lists them. Their modules are imported when asked for: all of them are seconds of work, and
# `dlc opt` needs neither onnx nor LLVM.
SECTIONS = {
    "Models": {
        "check": Entry("dlc.cli.inspect", "Lists all in a model that dlc does not support."),
        "run": Entry("dlc.cli.run", "Runs a model, and prints or saves its outputs."),
        "compile": Entry("dlc.cli.compile", "Compiles a model to native code, or to the text of a stage."),
        "train": Entry("dlc.cli.train", "Tunes the weights of an ONNX model to examples."),
        "quantize": Entry("dlc.cli.quantize", "Makes a model of 8-bit integers of an ONNX model in floats."),
        "header": Entry("dlc.cli.header", "Prints dlc.h, which C programs run compiled models with."),
    },
    "Why is it slow, large or wrong": {
        "bench": Entry("dlc.cli.bench", "Measures how long a call of a model takes."),
        "explore": Entry("dlc.cli.explore", "Writes a page that shows what the compiler made of a model."),
        "diff": Entry("dlc.cli.diff", "Finds the first value in which two programs differ."),
        "bisect": Entry("dlc.cli.bisect", "Finds what makes the numbers of a model wrong."),
        "reduce": Entry("dlc.cli.reduce", "Writes the smallest part of a model that still goes wrong."),
    },
    "The compiler and this machine": {
        "opt": Entry("dlc.cli.opt", "Runs passes on the text of a module, and prints the result."),
        "passes": Entry("dlc.cli.opt", "Lists the passes by stage, with their options."),
        "targets": Entry("dlc.cli.inspect", "Lists the targets, and which of them this machine can run."),
        "cache": Entry("dlc.cli.cache", "Lists what was compiled before and is kept."),
        "doctor": Entry("dlc.cli.doctor", "Says what this machine has, and what is missing."),
        "completion": Entry("dlc.cli.completion", "Prints what a shell needs to complete dlc's commands."),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
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
        for title, entries in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, entry.shown(room)) for name, entry in entries.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [CompletionItem(name, help=entry.shown()) for name, entry in COMMANDS.items() if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> object:
        _end_at_once()
        _print_everything()
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED)


def _end_at_once() -> None:
    """Lets the process end without a last look for garbage, which takes a tenth of the time of a large graph."""
    atexit.register(gc.freeze)


def _print_everything() -> None:
    """Lets standard output show what its encoding lacks as escapes: text of models, and names of files, which are any bytes."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _command(name: str) -> click.Command:
    return getattr(import_module(COMMANDS[name].module), f"{name}_command")


@click.command(cls=_Commands, context_settings=SETTINGS)
@click.version_option(package_name="dlc")
def main() -> None:
    """Compiles models to native code; every step can be read, run and cut short.

    `dlc COMMAND --help` says what a command takes. A model is an ONNX or TFLite file, what torch.export.save wrote (.pt2), or
    a module of StableHLO or of a dump (.mlir).
    """


def compile_model_command() -> None:
    """The program `compile-model`."""
    _end_at_once()
    _print_everything()
    click.version_option(package_name="dlc")(_command("compile"))(prog_name="compile-model", **SETTINGS)
