"""What the commands share: errors as one message, progress, options, inputs."""

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
from click.shell_completion import CompletionItem
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape

from dlc.arrays import TensorInfo, read_npy, read_npz
from dlc.cli.formed import assembled, form_given, is_named, tensors_given
from dlc.dims import bind_sizes, is_static, substitute
from dlc.errors import DeviceError, DlcError, DTypeError, ModelError, ShapeError
from dlc.forms import OBJECTS
from dlc.instrument.report import Progress
from dlc.options import MOST_THREADS, NUMERICS, PRECISIONS, WEIGHTS, columns
from dlc.progress import shown_on
from dlc.target import CPU_LEVELS, OpenCLName, is_opencl, place_of, resolve

P = ParamSpec("P")
T = TypeVar("T")

# Where neither a terminal nor COLUMNS bounds a table, it is as wide as this at most.
# Names are printed as they are: `grad:x: float32[4]` has no picture in it.
# A process may have been started without a standard output.
_is_terminal = sys.stdout is not None and sys.stdout.isatty()  # pyright: ignore[reportUnnecessaryComparison]
out = Console(soft_wrap=True, highlight=False, emoji=False, width=None if _is_terminal else columns() or 160)
err = Console(stderr=True, soft_wrap=True, highlight=False, emoji=False)
# How the names of compiled models end.
ARTIFACT_SUFFIX = ".dlc"
MODEL = click.Path(exists=True, dir_okay=False, path_type=Path)


class Numbers(click.FloatRange):
    """A range of numbers, in which NaN is not; click compares it with the ends of its own and finds it outside of neither."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if isnan(number):
            self.fail("nan is no number", param, ctx)
        return number


def reports_errors(command: Callable[P, T]) -> Callable[P, T]:
    """Turns errors into one message and exit status 1; click's own usage errors keep their status 2."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except DlcError as error:
            fail(str(error))
        except KeyboardInterrupt:
            raise click.exceptions.Exit(130) from None
        except BrokenPipeError:
            raise  # click ends quietly when what reads the output has gone, such as `head`
        except OSError as error:
            fail(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))
        except MemoryError as error:
            fail(f"not enough memory: {error}" if str(error) else "not enough memory")
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            where = _kept(traceback.format_exc())
            first = ", ".join([str(error).partition("\n")[0], *getattr(error, "__notes__", ())])
            fail(f"{type(error).__name__}: {first}\nThis is a bug of dlc; {where}")

    return run


def _kept(report: str) -> str:
    """Where a report of a fault is: in a file, or here where no disk takes one."""
    try:
        with tempfile.NamedTemporaryFile(prefix="dlc-error-", suffix=".txt", delete=False) as file:
            file.write(report.encode(errors="replace"))
    except OSError:
        return f"where it happened:\n{report}"
    return f"where it happened is in {file.name}"


def fail(message: str) -> NoReturn:
    """Prints the message and ends with status 1."""
    err.print(f"[bold red]error:[/] {escape(message)}")
    raise click.exceptions.Exit(1)


def shown_progress() -> AbstractContextManager[Progress | None]:
    """Shows on a terminal what is being done; gives None where there is no terminal."""
    return shown_on(err)


def show_log() -> None:
    """Shows on standard error what dlc's parts log, as far as it is of interest to who asked for more."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("dlc").setLevel(logging.INFO)


@reports_errors
def named_target(context: click.Context, option: click.Parameter, value: str) -> str:
    """A target's name; whether an OpenCL device of that name is there is seen when it is used."""
    try:
        if is_opencl(value):
            OpenCLName.parse(value)
        elif place_of(value) is not None:
            # Of dlc's own targets no compiler need be there.
            from dlc.backends.registry import backend_of

            backend_of(value)
        else:
            resolve(value)
    except DeviceError as error:
        raise click.BadParameter(str(error)) from error
    return value


def _targets(context: click.Context, option: click.Parameter, beginning: str) -> list[CompletionItem]:
    """The targets that a shell may complete a beginning to; a target of one's own is a file."""
    names = [name for name in ("cpu", *CPU_LEVELS, "opencl", "reference") if name.startswith(beginning)]
    return [CompletionItem(name) for name in dict.fromkeys(names)] or [CompletionItem(beginning, type="file")]


model_argument = click.argument("model", type=MODEL)
target_option = click.option(
    "--target",
    callback=named_target,
    shell_complete=_targets,
    default="cpu",
    show_default=True,
    metavar="TARGET",
    help="What runs the model: cpu, reference, opencl, opencl:0:1, FILE.py:NAME …; `dlc targets` lists them.",
)
tolerance_option = click.option(
    "--tolerance", type=Numbers(0), help="Largest difference, of the largest magnitude; by default that of the dtypes."
)
threads_option = click.option(
    "--num-threads", type=click.IntRange(1, MOST_THREADS), help="Threads; by default all usable processors."
)
no_cache_option = click.option("--no-cache", is_flag=True, help="Compile anew: neither look in the cache nor keep the result.")
check_option = click.option(
    "--check-each-pass", is_flag=True, help="Check what the model computes after each pass; name the first that is wrong."
)
numerics_option = click.option(
    "--numerics",
    type=click.Choice(NUMERICS),
    default="default",
    show_default=True,
    help="strict: nothing is folded across linear operations, functions are rounded once.",
)
precision_option = click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    default="f32",
    show_default=True,
    help="Round what contractions with weights multiply to 16 bits; sums stay f32.",
)


def weights_options(command: Callable[..., T]) -> Callable[..., T]:
    """What large weights of products are kept as."""
    kinds = click.option(
        "--weights",
        type=click.Choice(WEIGHTS),
        default="float",
        show_default=True,
        help="Keep large weights of products as integers of 8 or 4 bits: less memory, and results that differ.",
    )
    group = click.option(
        "--group", type=click.IntRange(8), default=32, show_default=True, help="How many of these weights share a scale."
    )
    return kinds(group(command))


def json_number(number: float) -> float | None:
    """A number as JSON has it, which knows no infinity and no NaN."""
    return number if isfinite(number) else None


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def read_array(file: Path) -> NDArray[Any]:
    """The array in an `.npy` file; raises ModelError for a file that is none."""
    try:
        return read_npy(file)
    except ValueError as error:
        raise ModelError(f"{file}: not an .npy file of numbers: {error}") from error


def read_arrays(file: Path) -> dict[str, NDArray[Any]]:
    """The arrays in an `.npz` file by name; raises ModelError for a file that is none."""
    try:
        return read_npz(file)
    except (ValueError, OSError) as error:
        raise ModelError(f"{file}: not an .npz file of numbers: {error}") from error


def make_inputs(
    infos: tuple[TensorInfo, ...],
    given: tuple[str, ...],
    seed: int,
    optional: Collection[str] = (),
    planned: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, Any]:
    """What each input is: from a `.npy` file, or random (the default) where all sizes are known, or follow from a file's.

    `given` holds `NAME=FILE.npy`, `NAME=random`, folders in which inputs are called `NAME.npy`, and `.npz` files; the elements
    of a list are called `NAME[0]`, `NAME[1]`, …. Of those that are `optional` there is none unless it is given. `planned` are
    sizes for those that nothing else says.
    """
    names = [info.name for info in infos]
    values: dict[str, str] = {}
    packed: dict[str, NDArray[Any]] = {}
    for text in given:
        name, separator, value = text.rpartition("=")
        if Path(text).is_dir():
            inside = [path.stem for path in Path(text).glob("*[[]*[]].npy") if is_named(path.stem, infos)]
            found = {n: str(Path(text) / f"{n}.npy") for n in (*names, *inside) if (Path(text) / f"{n}.npy").exists()}
            if not found:
                wanted = ", ".join(f"{n}.npy" for n in names)
                raise click.BadParameter(f"the folder {text} has none of the inputs: {wanted}", param_hint="--input")
            values |= found
        elif separator and name:
            values[name] = value
        elif Path(text).suffix == ".npz":
            packed |= read_arrays(Path(text))
        else:
            expected = "NAME=FILE.npy, NAME=random, FILE.npz or a folder"
            raise click.BadParameter(f"{text!r}: write {expected}", param_hint="--input")
    unknown = [name for name in (*values, *packed) if not is_named(name, infos)]
    if unknown:
        raise click.BadParameter(
            f"no input is called {', '.join(unknown)}; the inputs are {', '.join(map(str, infos))}", param_hint="--input"
        )
    generator = np.random.default_rng(seed)
    wanted = [info for info in infos if info.name in values or info.name in packed or info.name not in optional]
    forms = {info.name: form_given(info, {*values, *packed}) for info in wanted}
    read = packed | {name: read_array(Path(file)) for name, file in values.items() if file != "random"}
    tensors = [tensor for name, form in forms.items() for tensor in tensors_given(name, form, read)]
    sizes: dict[str, int] = {}
    for info in tensors:
        if info.name in read and read[info.name].ndim == len(info.shape):
            bind_sizes(info.shape, read[info.name].shape, sizes)
    sizes = {**planned, **sizes}
    arrays = {info.name: read[info.name] if info.name in read else _random(info, sizes, generator) for info in tensors}
    return {name: assembled(name, form, arrays) for name, form in forms.items()}


def _random(info: TensorInfo, sizes: Mapping[str, int], generator: np.random.Generator) -> NDArray[Any]:
    known = tuple(substitute(size, sizes) for size in info.shape)
    if not is_static(known):
        raise ShapeError(f"input {info}: its sizes are open; give all of them with --shape '{info.name}=…', or an array")
    shape = tuple(int(s) for s in known)
    if info.dtype == OBJECTS:
        raise DTypeError(f"input {info}: text is not drawn at random; give an array of it, --input {info.name}=FILE.npy")
    if info.dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(info.dtype)
    if info.dtype.kind in "iu":
        # Small numbers: integers are mostly indices or bytes.
        return generator.integers(0, 2, shape, info.dtype)
    return generator.standard_normal(shape).astype(info.dtype)
