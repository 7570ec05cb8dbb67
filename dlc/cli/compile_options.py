"""Command-line options of compilation: a command receives them as keywords of `Options.of`."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from dlc.cli.common import MODEL, NonNanFloatRange
from dlc.options import INTER_OP_MODES, MAX_THREADS, NUMERICS, PRECISIONS, WEIGHTS

Command = TypeVar("Command", bound=Callable[..., Any])


def _parse_cpus(context: click.Context, option: click.Parameter, value: str | None) -> list[int] | None:
    """Return the processors of a list of numbers and ranges, in the syntax of `taskset --cpu-list`."""
    if value is None:
        return None
    cpus: list[int] = []
    for part in value.split(","):
        match = re.fullmatch(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", part)
        numbers = range(int(match[1]), int(match[2] or match[1]) + 1) if match else ()
        if not numbers:
            raise click.BadParameter(f"{value}: expected numbers and ranges of processors, such as 0-3,8")
        cpus += numbers
    return cpus


def _parse_replacements(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for value in values:
        name, separator, file = value.partition("=")
        if not separator or not name or not Path(file).is_file():
            raise click.BadParameter(f"{value!r}: expected NAME=FILE with an existing file", context, option)
        files[name] = Path(file)
    return files


def _parse_no_cache(context: click.Context, option: click.Parameter, is_set: bool) -> bool | None:
    return False if is_set else None


# By field of `Options`, in the order of the help.
_OPTIONS = {
    "num_threads": click.option(
        "--num-threads", type=click.IntRange(1, MAX_THREADS), help="Number of threads; default: all usable CPU cores."
    ),
    "cpus": click.option(
        "--cpus",
        metavar="0-3,8",
        callback=_parse_cpus,
        help="Run the threads on these processors; default: all that the process may use.",
    ),
    "inter_op": click.option(
        "--inter-op",
        type=click.Choice(INTER_OP_MODES),
        default="auto",
        show_default=True,
        help="Run independent small kernels concurrently: auto, where that is expected to be faster.",
    ),
    "numerics": click.option(
        "--numerics",
        type=click.Choice(NUMERICS),
        default="default",
        show_default=True,
        help="strict: no folding across linear operations; each function is rounded once.",
    ),
    "precision": click.option(
        "--precision",
        type=click.Choice(PRECISIONS),
        default="f32",
        show_default=True,
        help="Mixed precision: round operands of contractions with weights to bf16 or f16; sums stay f32.",
    ),
    "weights": click.option(
        "--weights",
        type=click.Choice(WEIGHTS),
        default="float",
        show_default=True,
        help="Weight-only quantization of large MatMul weights: less memory, lower accuracy.",
    ),
    "group": click.option(
        "--group", type=click.IntRange(8), default=32, show_default=True, help="Weights per scale, with --weights int8 or int4."
    ),
    "tune": click.option(
        "--tune",
        type=NonNanFloatRange(0),
        default=0,
        metavar="SECONDS",
        help="Autotune: measure tile plans for up to this long.",
    ),
    "cache": click.option(
        "--no-cache", "cache", is_flag=True, callback=_parse_no_cache, help="Recompile: neither read nor write the cache."
    ),
    "pipeline": click.option(
        "--pipeline", metavar="PASSES", help='Run these passes instead of the target\'s, such as "a,b{k=1}".'
    ),
    "dump_ir": click.option(
        "--dump-ir", type=click.Path(file_okay=False, path_type=Path), help="Write the IR after every pass to this folder."
    ),
    "check_each_pass": click.option(
        "--check-each-pass",
        is_flag=True,
        help="Evaluate the model after each pass; report the first pass that changes results.",
    ),
    "replaced_kernels": click.option(
        "--replace-kernel",
        "replaced_kernels",
        multiple=True,
        metavar="NAME=FILE.mlir",
        callback=_parse_replacements,
        help="Use an edited kernel from ir/kernels/ of --dump-ir in place of the kernel NAME. Repeatable.",
    ),
    "plan": click.option("--plan", type=MODEL, metavar="FILE.toml", help="Use the tile plans of this file."),
    "write_plan": click.option(
        "--write-plan",
        type=click.Path(dir_okay=False, path_type=Path),
        metavar="FILE.toml",
        help="Write the tile plans of all kernels to this file.",
    ),
}

# The options that change the results of a program.
NUMERIC_OPTIONS = ("numerics", "precision", "weights", "group")
# The options that select, show and check passes.
IR_OPTIONS = ("pipeline", "dump_ir", "check_each_pass")
PLAN_OPTIONS = ("replaced_kernels", "plan", "write_plan")
# Options that apply to compiled models too. The others, and the target, need a compilation.
_RUN_TIME_OPTIONS = ("num_threads", "cpus", "cache")
COMPILATION_PARAMETERS = ("target", *(name for name in _OPTIONS if name not in _RUN_TIME_OPTIONS))


def compile_options(*names: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of these fields of `Options` to a command.

    The command receives their values as `compile_settings`, the keywords of `Options.of`.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(**parameters: Any) -> Any:
            return command(compile_settings={name: parameters.pop(name) for name in names}, **parameters)

        decorated_command: Any = run
        for name in reversed([name for name in _OPTIONS if name in names]):
            decorated_command = _OPTIONS[name](decorated_command)
        return decorated_command

    return decorate


def command_line(compile_settings: Mapping[str, Any]) -> list[str]:
    """Return the command-line arguments for the scalar `compile_settings` that differ from their defaults."""
    arguments: list[str] = []
    for parameter in click.get_current_context().command.params:
        value = compile_settings.get(str(parameter.name))
        if isinstance(value, str | int | float) and value != parameter.default:
            arguments += [max(parameter.opts, key=len), str(value)]
    return arguments
