"""Shared by all commands: error reporting, progress, options and inputs."""

from __future__ import annotations

import functools
import logging
import sys
import tempfile
import traceback
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from math import isfinite, isnan
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn, ParamSpec, TypeVar

import click
import numpy as np
from click.core import ParameterSource
from click.shell_completion import CompletionItem
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape

from dlc.arrays import TensorInfo, read_npy, read_npz
from dlc.cli.structured_values import assemble_value, infer_value_type, is_input_name, tensor_infos
from dlc.errors import DeviceError, DlcError, DTypeError, ModelError, ShapeError, UnsupportedError
from dlc.instrument.report import Progress
from dlc.models.progress import progress_on
from dlc.options import columns
from dlc.shapes.dims import is_static, substitute
from dlc.shapes.input_sizes import bind_sizes
from dlc.target import CPU_LEVELS, OpenCLName, custom_target_location, is_opencl, resolve
from dlc.value_types import OBJECT_DTYPE

P = ParamSpec("P")
T = TypeVar("T")

# Tables are at most 160 columns wide if there is neither a terminal nor COLUMNS.
# Emoji codes are off, so that names such as `grad:x: float32[4]` are printed unchanged.
# sys.stdout is None if the process was started without a standard output.
_is_terminal = sys.stdout is not None and sys.stdout.isatty()  # pyright: ignore[reportUnnecessaryComparison]
out = Console(soft_wrap=True, highlight=False, emoji=False, width=None if _is_terminal else columns() or 160)
err = Console(stderr=True, soft_wrap=True, highlight=False, emoji=False)
# The file suffix of compiled models.
ARTIFACT_SUFFIX = ".dlc"
MODEL = click.Path(exists=True, dir_okay=False, path_type=Path)


class NonNanFloatRange(click.FloatRange):
    """A float range that rejects NaN, which click's own range accepts because no comparison with NaN is true."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        converted: float = super().convert(value, param, ctx)
        if isnan(converted):
            self.fail("nan is not a number", param, ctx)
        return converted


def reports_errors(command: Callable[P, T]) -> Callable[P, T]:
    """Print an error as one message and exit with status 1; click's usage errors keep status 2."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except DlcError as error:
            fail(str(error))
        except KeyboardInterrupt:
            raise click.exceptions.Exit(130) from None
        except BrokenPipeError:
            raise  # click exits quietly if the reader of the output, such as `head`, has exited
        except OSError as error:
            fail(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))
        except MemoryError as error:
            fail(f"not enough memory: {error}" if str(error) else "not enough memory")
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            traceback_location = _save_traceback(traceback.format_exc())
            summary = ", ".join([str(error).partition("\n")[0], *getattr(error, "__notes__", ())])
            fail(f"{type(error).__name__}: {summary}\nThis is a bug of dlc; {traceback_location}")

    return run


def _save_traceback(report: str) -> str:
    """Write a traceback to a file and return a phrase with its path, or with the traceback if no file can be written."""
    try:
        with tempfile.NamedTemporaryFile(prefix="dlc-error-", suffix=".txt", delete=False) as file:
            file.write(report.encode(errors="replace"))
    except OSError:
        return f"the traceback is:\n{report}"
    return f"the traceback is in {file.name}"


def fail(message: str) -> NoReturn:
    """Print the message and exit with status 1."""
    err.print(f"[bold red]error:[/] {escape(message)}")
    raise click.exceptions.Exit(1)


def progress_display() -> AbstractContextManager[Progress | None]:
    """Show progress on a terminal; the context value is None if there is no terminal."""
    return progress_on(err)


def examples(*lines: str) -> str:
    """Return the epilog of a command's help that lists examples, one per line as given."""
    # "\b" keeps click from wrapping the paragraph.
    return "\n".join(["\b", f"Example{'s' * (len(lines) > 1)}:", *(f"  {line}" for line in lines)])


def show_log() -> None:
    """Print dlc's log messages of level INFO and above to standard error."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("dlc").setLevel(logging.INFO)


@reports_errors
def options_on_command_line(names: Collection[str]) -> list[str]:
    """Return the options of the parameters `names` that are on the command line."""
    context = click.get_current_context()
    parameters = (p for p in context.command.params if p.name in names)
    on_command_line = [p for p in parameters if context.get_parameter_source(str(p.name)) is ParameterSource.COMMANDLINE]
    return [max(option.opts, key=len) for option in on_command_line]


def named_target(context: click.Context, option: click.Parameter, value: str) -> str:
    """Check a target name and return it; whether an OpenCL device exists is checked when it is used."""
    try:
        if is_opencl(value):
            OpenCLName.parse(value)
        elif custom_target_location(value) is not None:
            # Imported here because built-in targets are checked without the compiler.
            from dlc.backends.registry import backend_of

            backend_of(value)
        else:
            resolve(value)
    except DeviceError as error:
        raise click.BadParameter(str(error)) from error
    except UnsupportedError as error:
        # An invalid environment variable is not a mistake in the option.
        fail(str(error))
    return value


def _complete_targets(context: click.Context, option: click.Parameter, beginning: str) -> list[CompletionItem]:
    """Return shell completions of a target name; custom targets complete as files."""
    names = [name for name in ("cpu", *CPU_LEVELS, "opencl", "reference") if name.startswith(beginning)]
    return [CompletionItem(name) for name in dict.fromkeys(names)] or [CompletionItem(beginning, type="file")]


model_argument = click.argument("model", type=MODEL)
target_option = click.option(
    "--target",
    callback=named_target,
    shell_complete=_complete_targets,
    default="cpu",
    show_default=True,
    metavar="TARGET",
    help="What to compile for: cpu, reference, opencl, opencl:0:1, FILE.py:NAME …; `dlc targets` lists them.",
)
tolerance_option = click.option(
    "--tolerance", type=NonNanFloatRange(0), help="Allowed deviation, relative to the largest magnitude; default: by dtype."
)


def json_number(number: float) -> float | None:
    """Return a number for JSON, which has no infinity and no NaN."""
    return number if isfinite(number) else None


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def read_array(file: Path) -> NDArray[Any]:
    """Read an `.npy` file. Raises ModelError for any other file."""
    try:
        return read_npy(file)
    except ValueError as error:
        raise ModelError(f"{file} is not an .npy file of numbers: {error}") from error


def read_arrays(file: Path) -> dict[str, NDArray[Any]]:
    """Read an `.npz` file as arrays by name. Raises ModelError for any other file."""
    try:
        return read_npz(file)
    except (ValueError, OSError) as error:
        raise ModelError(f"{file} is not an .npz file of numbers: {error}") from error


def make_inputs(
    infos: tuple[TensorInfo, ...],
    input_options: tuple[str, ...],
    seed: int,
    optional: Collection[str] = (),
    representative_sizes: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the inputs by name: arrays from files, or random arrays (the default) of static shapes.

    `input_options` holds `NAME=FILE.npy`, `NAME=random`, folders of `NAME.npy` files, and `.npz` files; the elements of a list
    are named `NAME[0]`, `NAME[1]`, …. An input in `optional` is omitted unless an option names it. Symbolic dimensions take
    their sizes from the arrays, else from `representative_sizes`.
    """
    names = [info.name for info in infos]
    values: dict[str, str] = {}
    npz_arrays: dict[str, NDArray[Any]] = {}
    for text in input_options:
        name, separator, value = text.rpartition("=")
        if Path(text).is_dir():
            element_names = [path.stem for path in Path(text).glob("*[[]*[]].npy") if is_input_name(path.stem, infos)]
            files = {n: str(Path(text) / f"{n}.npy") for n in (*names, *element_names) if (Path(text) / f"{n}.npy").exists()}
            if not files:
                file_names = ", ".join(f"{n}.npy" for n in names)
                raise click.BadParameter(f"{text}: the folder contains none of the inputs: {file_names}", param_hint="--input")
            values |= files
        elif separator and name:
            if Path(value).suffix == ".npz":
                expected = f"an .npz file has the inputs by name: give it as --input {value}"
                raise click.BadParameter(f"{text!r}: {expected}", param_hint="--input")
            values[name] = value
        elif Path(text).suffix == ".npz":
            npz_arrays |= read_arrays(Path(text))
        else:
            expected = "NAME=FILE.npy, NAME=random, FILE.npz or a folder"
            raise click.BadParameter(f"{text!r}: expected {expected}", param_hint="--input")
    unknown = [name for name in (*values, *npz_arrays) if not is_input_name(name, infos)]
    if unknown:
        raise click.BadParameter(
            f"no input is named {', '.join(unknown)}; the inputs are {', '.join(map(str, infos))}", param_hint="--input"
        )
    generator = np.random.default_rng(seed)
    input_infos = [info for info in infos if info.name in values or info.name in npz_arrays or info.name not in optional]
    value_types = {info.name: infer_value_type(info, {*values, *npz_arrays}) for info in input_infos}
    loaded_arrays = npz_arrays | {name: read_array(Path(file)) for name, file in values.items() if file != "random"}
    tensors = [tensor for name, value_type in value_types.items() for tensor in tensor_infos(name, value_type, loaded_arrays)]
    sizes: dict[str, int] = {}
    for info in tensors:
        if info.name in loaded_arrays and loaded_arrays[info.name].ndim == len(info.shape):
            bind_sizes(info.shape, loaded_arrays[info.name].shape, sizes)
    sizes = {**representative_sizes, **sizes}
    arrays = {
        info.name: loaded_arrays[info.name] if info.name in loaded_arrays else _random(info, sizes, generator)
        for info in tensors
    }
    return {name: assemble_value(name, value_type, arrays) for name, value_type in value_types.items()}


def _random(info: TensorInfo, sizes: Mapping[str, int], generator: np.random.Generator) -> NDArray[Any]:
    bound_shape = tuple(substitute(size, sizes) for size in info.shape)
    if not is_static(bound_shape):
        raise ShapeError(f"input {info}: a random input needs a static shape; give it with --shape '{info.name}=…'")
    shape = tuple(int(s) for s in bound_shape)
    if info.dtype == OBJECT_DTYPE:
        raise DTypeError(f"input {info}: strings have no random values; give an array: --input {info.name}=FILE.npy")
    if info.dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(info.dtype)
    if info.dtype.kind in "iu":
        # Small values, because integer inputs are mostly indices.
        return generator.integers(0, 2, shape, info.dtype)
    return generator.standard_normal(shape).astype(info.dtype)
