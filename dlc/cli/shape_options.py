"""The options `--shape` and `--value`: shapes of inputs, and values of inputs that become constants."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click

from dlc.shapes.shape_specs import ShapeSpec

# The shapes of inputs by name, from `--shape`.
Shapes: TypeAlias = "dict[str, ShapeSpec]"
T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])
# Pairs of an input name and its shape or value.
_Pairs: TypeAlias = "list[tuple[str, T]]"

# A static size `8`, a symbolic dimension `N`, or one with a range `N:1..32`.
_SIZE = re.compile(r"\d+|([A-Za-z_]\w*:)?\d*\.\.\d*|[A-Za-z_]\w*")


def _require_unique(pairs: _Pairs[T]) -> dict[str, T]:
    """Return the pairs as a dict. Raises BadParameter for a repeated name."""
    for name, count in Counter(name for name, _ in pairs).items():
        if count > 1:
            raise click.BadParameter(f"{name!r} is given {count} times; only `dlc compile` compiles one program per shape")
    return dict(pairs)


def _combinations(pairs: _Pairs[T]) -> list[dict[str, T]]:
    """Return the Cartesian product: one dict for each combination of the shapes or values of each name."""
    by_name: dict[str, list[T]] = {}
    for name, size in pairs:
        by_name.setdefault(name, []).append(size)
    return [dict(zip(by_name, sizes, strict=True)) for sizes in product(*by_name.values())]


def _read_shapes(values: tuple[str, ...]) -> _Pairs[Any]:
    shapes: _Pairs[Any] = []
    for value in values:
        name, separator, sizes = value.rpartition("=")
        try:
            # A list may end in a semicolon, which adds no element.
            shape = None if sizes == "none" else [*map(_shape, sizes.split(";"))] if ";" in sizes else _shape(sizes)
        except ValueError:
            separator = shape = None
        if not separator or not name:
            raise click.BadParameter(
                f"{value!r}: expected NAME=SIZE,SIZE,…, such as x=1,3,224,224 or x=N:1..32,3,224,224; a named dimension: "
                "batch=8; a list, with semicolons: x=64,64;32,32; or None: x=none"
            )
        elements = shape if isinstance(shape, list) else None
        last = None if sizes.rpartition(";")[2] else -1
        shapes.append((name, shape if elements is None else tuple(elements[:last])))
    return shapes


def _shape(text: str) -> tuple[int | str, ...]:
    """Parse comma-separated sizes. Raises ValueError for invalid ones."""
    entries = [entry.strip() for entry in text.split(",")] if text else []
    if not all(map(_SIZE.fullmatch, entries)):
        raise ValueError(text)
    return tuple(int(entry) if entry.isdecimal() else entry for entry in entries)


def _read_values(values: tuple[str, ...]) -> _Pairs[Path]:
    files: _Pairs[Path] = []
    for value in values:
        name, separator, file = value.rpartition("=")
        if not separator or not name:
            raise click.BadParameter(f"{value!r}: expected NAME=FILE.npy")
        files.append((name, Path(file)))
    return files


def _shape_option(join: Callable[[_Pairs[Any]], Any], more: str = "") -> Callable[[Command], Command]:
    def read(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> Any:
        return join(_read_shapes(values))

    help = (
        f"The shape of an input, or the size of a named dimension; repeatable{more}. Dynamic shapes: x=N:1..32,3,224,224; a "
        "list has one shape per element: x=64,64;32,32."
    )
    return click.option("--shape", "shapes", multiple=True, callback=read, metavar="NAME=SIZE,…", help=help)


def _value_option(join: Callable[[_Pairs[Any]], Any], more: str = "") -> Callable[[Command], Command]:
    def read(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> Any:
        return join(_read_values(values))

    help = f"Compile an input as a constant; repeatable{more}."
    return click.option("--value", "values", multiple=True, callback=read, metavar="NAME=FILE.npy", help=help)


_REPEATABLE_HELP = ", also for one name, which compiles one program per shape or value"
shape_option, value_option = _shape_option(_require_unique), _value_option(_require_unique)
each_shape_option, each_value_option = (
    _shape_option(_combinations, _REPEATABLE_HELP),
    _value_option(_combinations, _REPEATABLE_HELP),
)
