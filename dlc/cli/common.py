"""Shared by all commands: error reporting, progress, options and inputs."""

from __future__ import annotations

import functools
import logging
import sys
import tempfile
import traceback
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from math import isfinite, isnan
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from dlc.errors import DeviceError, DlcError, UnsupportedError
from dlc.instrument.report import Progress
from dlc.target import CPU_LEVELS, OpenCLName, custom_target_location, is_opencl, resolve

P = ParamSpec("P")
T = TypeVar("T")

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
    # Imported here because most commands print no error: the console takes as long to import as a small model to load.
    from rich.markup import escape

    from dlc.cli.console import err

    err.print(f"[bold red]error:[/] {escape(message)}")
    raise click.exceptions.Exit(1)


def progress_display() -> AbstractContextManager[Progress | None]:
    """Show progress on a terminal; the context value is None if there is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        return nullcontext()
    # Imported here because only terminals need the console.
    from dlc.cli.console import err
    from dlc.models.progress import progress_on

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
