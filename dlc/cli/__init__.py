"""The command line: `dlc` with its subcommands, and `compile-model`.

Exit status: 0 on success, 1 for a fault in the model or an input, 2 for wrong usage, 130 after Ctrl-C. Results go to standard
output; progress and errors go to standard error. Progress is shown on a terminal only.
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

from dlc.machine.garbage_collection import infrequent_collection


class CommandEntry(NamedTuple):
    """A command: the module that defines it and the first line of its help.

    Attributes:
        uses_blas: Whether it may compute large matrix products with NumPy.
    """

    module: str
    help: str
    uses_blas: bool = True

    def short_help(self, room: int = 45) -> str:
        """Return the help shortened to `room` columns."""
        return click.Command(None, help=self.help).get_short_help_str(room)


# The commands as `dlc --help` lists them. A command's module is imported only when the command runs: importing all modules
# takes seconds, and `dlc opt` needs neither onnx nor LLVM.
SECTIONS = {
    "Models": {
        "check": CommandEntry("dlc.cli.inspect", "Lists everything in a model that dlc does not support."),
        "info": CommandEntry("dlc.cli.info", "Describes a compiled model: signature, target, memory."),
        "run": CommandEntry("dlc.cli.run", "Runs a model and prints or saves its outputs."),
        "compile": CommandEntry("dlc.cli.compile", "Compiles a model to native code (ahead-of-time compilation)."),
        "train": CommandEntry("dlc.cli.train", "Trains the weights of an ONNX model on examples."),
        "quantize": CommandEntry("dlc.cli.quantize", "Quantizes an ONNX model to int8."),
        "serve": CommandEntry("dlc.cli.serve", "Serves models over HTTP: KServe v2 protocol, OpenAI's API."),
        "generate": CommandEntry("dlc.cli.generate", "Continues a prompt with a language model.", uses_blas=False),
        "header": CommandEntry("dlc.cli.header", "Prints dlc.h, the C header for running compiled models."),
    },
    "Performance, memory and wrong results": {
        "bench": CommandEntry("dlc.cli.bench", "Measures a model's latency and profiles its kernels."),
        "explore": CommandEntry("dlc.cli.explore", "Writes an HTML page: graph, passes, kernels, memory, time."),
        "diff": CommandEntry("dlc.cli.diff", "Finds the first value in which two programs differ."),
        "bisect": CommandEntry("dlc.cli.bisect", "Finds the pass or kernel that makes a model's results wrong."),
        "reduce": CommandEntry("dlc.cli.reduce", "Reduces a failing model to a minimal failing program."),
    },
    "Several processes": {
        "explain-sharding": CommandEntry("dlc.cli.explain_sharding", "Explains how a mesh partitions a model."),
    },
    "Compiler and machine": {
        "opt": CommandEntry("dlc.cli.opt", "Runs passes on an IR module and prints the result."),
        "passes": CommandEntry("dlc.cli.opt", "Lists the passes by stage, with their options."),
        "plugins": CommandEntry("dlc.cli.plugins", "Lists the plug-ins, where they are from, and their failures."),
        "targets": CommandEntry("dlc.cli.inspect", "Lists the targets and marks those that run on this machine."),
        "cache": CommandEntry("dlc.cli.cache", "Lists, clears or explains the cache of compiled models."),
        "doctor": CommandEntry("dlc.cli.doctor", "Checks this machine: CPU, OpenCL devices, packages, cache."),
        "completion": CommandEntry("dlc.cli.completion", "Prints the shell completion script for dlc."),
    },
}
COMMANDS = {name: entry for section in SECTIONS.values() for name, entry in section.items()}
# The exit status after Ctrl-C: 128 + SIGINT, the convention of shells.
INTERRUPTED_STATUS = 130
CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"]}


class _Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _command(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, entries in SECTIONS.items():
            room = formatter.width - 6 - max(map(len, entries))
            with formatter.section(title):
                formatter.write_dl([(name, entry.short_help(room)) for name, entry in entries.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [
            CompletionItem(name, help=entry.short_help()) for name, entry in COMMANDS.items() if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> object:
        _skip_final_collection()
        _escape_unprintable()
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            ctx.exit(INTERRUPTED_STATUS)


def _skip_final_collection() -> None:
    """Skip the garbage collection at exit, which takes a tenth of the run time for a large graph."""
    atexit.register(gc.freeze)


def _escape_unprintable() -> None:
    """Print characters that the encoding of standard output lacks as escapes.

    Strings in models and file names can hold any bytes.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _command(name: str) -> click.Command:
    if not COMMANDS[name].uses_blas:
        # Imported here because `dlc --help` needs no options.
        from dlc.options import use_one_blas_thread

        use_one_blas_thread()
    # Imports create little garbage: collections would take 3 % of the time until a small model has run.
    with infrequent_collection():
        return getattr(import_module(COMMANDS[name].module), f"{name.replace('-', '_')}_command")


@click.command(cls=_Commands, context_settings=CONTEXT_SETTINGS)
@click.version_option(package_name="dlc")
def main() -> None:
    """Compiles deep-learning models to native code for CPUs and OpenCL devices.

    `dlc COMMAND --help` lists the options of a command, with an example. A model is an ONNX or TFLite file, a PyTorch program
    saved with torch.export.save (.pt2), or an MLIR module (.mlir): StableHLO, or one that --dump-ir wrote.
    """


def compile_model_command() -> None:
    """Run the program `compile-model`, which is `dlc compile`."""
    _skip_final_collection()
    _escape_unprintable()
    click.version_option(package_name="dlc")(_command("compile"))(prog_name="compile-model", **CONTEXT_SETTINGS)
