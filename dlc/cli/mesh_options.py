"""Command-line options of meshes: `--mesh data=4,model=2` and `--shard NAME=SPEC`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, TypeAlias, TypeVar

import click

from dlc.arrays import TensorInfo
from dlc.runtime.collectives.mesh import Mesh

Command = TypeVar("Command", bound=Callable[..., Any])
# The mesh axes of each axis of an array; None leaves an axis to propagation.
InputSpec: TypeAlias = "tuple[tuple[str, ...] | None, ...]"
# The mesh axis that splits batches unless --shard says otherwise.
_BATCH_AXIS = "data"


def _parse_mesh(context: click.Context, option: click.Parameter, text: str | None) -> Mesh | None:
    if text is None:
        return None
    pairs = [entry.strip().partition("=") for entry in text.split(",")]
    sizes = {name: int(size) for name, _, size in pairs if name.isidentifier() and size.isdecimal() and int(size) > 0}
    if len(sizes) < len(pairs):
        raise click.BadParameter(f"{text!r}: expected axes and their sizes, such as data=4,model=2")
    return Mesh.of(sizes)


def _parse_specs(context: click.Context, option: click.Parameter, values: tuple[str, ...]) -> dict[str, InputSpec]:
    specs: dict[str, InputSpec] = {}
    for value in values:
        name, separator, text = value.rpartition("=")
        entries = [entry.strip() for entry in text.split(",")]
        if not separator or not name or not all(re.fullmatch(r"\?|(\w+(\+\w+)*)?", entry) for entry in entries):
            raise click.BadParameter(f"{value!r}: expected NAME=AXIS,AXIS,…, such as x=data or w=,model")
        specs[name] = tuple(None if entry == "?" else tuple(filter(None, entry.split("+"))) for entry in entries)
    return specs


def mesh_options(required: bool) -> Callable[[Command], Command]:
    """Return a decorator that adds the options `--mesh` and `--shard`."""
    mesh_option = click.option(
        "--mesh",
        callback=_parse_mesh,
        required=required,
        metavar="AXIS=SIZE,…",
        help="Partition over a mesh of ranks, such as data=4,model=2.",
    )
    shard_option = click.option(
        "--shard",
        "specs",
        multiple=True,
        callback=_parse_specs,
        metavar="NAME=AXIS,…",
        help="Split axes of an input over mesh axes: x=data splits axis 0, w=,model axis 1; a+b splits over both, ? leaves an "
        "axis to propagation, and omitted axes are replicated. Patterns such as 'layer*.w' match several inputs. Default: axis "
        "0 of required inputs over `data`. Repeatable.",
    )
    return lambda command: mesh_option(shard_option(command))


def input_specs(
    mesh: Mesh,
    specs: Mapping[str, InputSpec],
    inputs: Sequence[TensorInfo],
    optional: Mapping[str, object],
    stored: Sequence[object],
) -> list[InputSpec | None]:
    """Return the annotation of each input; None leaves an input to its annotation in the model, else to propagation.

    `stored` are the annotations in the model. Without any, axis 0 of each required input is split over the mesh axis `data`.

    Raises BadParameter for a name or pattern that matches no input.
    """
    unknown = [name for name in specs if not any(fnmatchcase(info.name, name) for info in inputs)]
    if unknown:
        names = ", ".join(info.name for info in inputs)
        raise click.BadParameter(f"no input matches {', '.join(unknown)}; the inputs are {names}", param_hint="--shard")

    def spec_of(info: TensorInfo) -> InputSpec | None:
        for name, spec in specs.items():
            if fnmatchcase(info.name, name):
                return (*spec, *(() for _ in info.shape[len(spec) :]))
        is_batch = bool(info.shape) and info.name not in optional and _BATCH_AXIS in mesh.sizes and not any(stored)
        return ((_BATCH_AXIS,), *(None for _ in info.shape[1:])) if is_batch else None

    return [spec_of(info) for info in inputs]
