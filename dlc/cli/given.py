"""What a command line says of a model's inputs: shapes, and values of those that are to be constants."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click

from dlc.given_shapes import GivenShape

# The shapes of inputs as `--shape` gives them.
Shapes: TypeAlias = "dict[str, GivenShape]"
T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])
# Names, and what is said of each.
_Pairs: TypeAlias = "list[tuple[str, T]]"

# A number; or a name, and the range of the sizes that it stands for.
_SIZE = re.compile(r"\d+|([A-Za-z_]\w*:)?\d*\.\.\d*|[A-Za-z_]\w*")


def _once(pairs: _Pairs[T]) -> dict[str, T]:
    """What is said of each name, once."""
    for name, count in Counter(name for name, _ in pairs).items():
        if count > 1:
            raise click.BadParameter(f"{name!r} is given {count} times: only `dlc compile` makes a program for each")
    return dict(pairs)


def _each(pairs: _Pairs[T]) -> list[dict[str, T]]:
    """What is said of names, for each way to take one thing of what is said of each."""
    by_name: dict[str, list[T]] = {}
    for name, said in pairs:
        by_name.setdefault(name, []).append(said)
    return [dict(zip(by_name, chosen, strict=True)) for chosen in product(*by_name.values())]


def _read_shapes(values: tuple[str, ...]) -> _Pairs[Any]:
    shapes: _Pairs[Any] = []
    for value in values:
        name, separator, sizes = value.rpartition("=")
        try:
            # What stands behind the last semicolon of a list is nothing.
            shape = None if sizes == "none" else [*map(_shape, sizes.split(";"))] if ";" in sizes else _shape(sizes)
        except ValueError:
            separator = shape = None
        if not separator or not name:
            raise click.BadParameter(
                f"{value!r}: write NAME=SIZE,SIZE,…, such as x=1,3,224,224 or x=N:1..32,3,224,224, or a size: batch=8; for a "
                "list with a semicolon behind each element, x=64,64;32,32, and x=none for None"
            )
        elements = shape if isinstance(shape, list) else None
        last = None if sizes.rpartition(";")[2] else -1
        shapes.append((name, shape if elements is None else tuple(elements[:last])))
    return shapes


def _shape(text: str) -> tuple[int | str, ...]:
    """Sizes as they are written. Raises ValueError for what are none."""
    entries = [entry.strip() for entry in text.split(",")] if text else []
    if not all(map(_SIZE.fullmatch, entries)):
        raise ValueError(text)
    return tuple(int(entry) if entry.isdecimal() else entry for entry in entries)


def _read_values(values: tuple[str, ...]) -> _Pairs[Path]:
    files: _Pairs[Path] = []
    for value in values:
        name, separator, file = value.rpartition("=")
        if not separator or not name:
            raise click.BadParameter(f"{value!r}: write NAME=FILE.npy")
        files.append((name, Path(file)))
    return files


def _shape_option(join: Callable[[_Pairs[Any]], Any], more: str = "") -> Callable[[Command], Command]:
    def read(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> Any:
        return join(_read_shapes(values))

    help = (
        f"The shape of an input, or a size by its name; repeatable{more}. Sizes may be open: x=N:1..32,3,224,224; a list has a "
        "shape for each element: x=64,64;32,32."
    )
    return click.option("--shape", "shapes", multiple=True, callback=read, metavar="NAME=SIZE,…", help=help)


def _value_option(join: Callable[[_Pairs[Any]], Any], more: str = "") -> Callable[[Command], Command]:
    def read(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> Any:
        return join(_read_values(values))

    help = f"Make an input a constant; repeatable{more}."
    return click.option("--value", "values", multiple=True, callback=read, metavar="NAME=FILE.npy", help=help)


_FOR_EACH = ", and of one name makes a program for each"
shape_option, value_option = _shape_option(_once), _value_option(_once)
each_shape_option, each_value_option = _shape_option(_each, _FOR_EACH), _value_option(_each, _FOR_EACH)
