"""What the commands share: errors as one message, progress, and the options for shapes."""

from __future__ import annotations

import functools
import tempfile
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import NoReturn, ParamSpec, TypeVar

import click
from rich.console import Console

from dlc.errors import DlcError
from dlc.instrument.manager import Progress

P = ParamSpec("P")
T = TypeVar("T")

out = Console(soft_wrap=True, highlight=False)
err = Console(stderr=True, soft_wrap=True, highlight=False)


def reports_errors(command: Callable[P, T]) -> Callable[P, T]:
    """Turns errors into one message and exit status 1; click's own usage errors keep their status 2."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except DlcError as error:
            fail(str(error))
        except OSError as error:
            fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            with tempfile.NamedTemporaryFile("w", prefix="dlc-error-", suffix=".txt", delete=False) as file:
                file.write(traceback.format_exc())
            first = str(error).partition("\n")[0]
            fail(f"{type(error).__name__}: {first}\nThis is a bug of dlc; where it happened is in {file.name}")

    return run


def fail(message: str) -> NoReturn:
    """Prints the message and ends with status 1."""
    err.print(f"[bold red]error:[/] {_escaped(message)}")
    raise click.exceptions.Exit(1)


def _escaped(text: str) -> str:
    return text.replace("[", "\\[")


@contextmanager
def shown_progress() -> Generator[Progress | None]:
    """Shows on a terminal what is being done; gives None where there is no terminal."""
    if not err.is_terminal:
        yield None
        return
    with err.status("starting") as status:
        yield lambda phase, step: status.update(f"{phase}: {step}" if step else phase)


def parse_shapes(values: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
    """`("x=1,3,224,224",)` as shapes by input name; `x=` is a scalar."""
    shapes: dict[str, tuple[int, ...]] = {}
    for value in values:
        name, separator, sizes = value.rpartition("=")
        try:
            shape = tuple(int(s) for s in sizes.split(",")) if sizes else ()
        except ValueError:
            shape = (-1,)
        if not separator or not name or any(s < 0 for s in shape):
            raise click.BadParameter(f"{value!r}: write NAME=SIZE,SIZE,…, such as x=1,3,224,224", param_hint="--shape")
        shapes[name] = shape
    return shapes
