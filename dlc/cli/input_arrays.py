"""Inputs of models on the command line: arrays from files, or random ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from dlc.arrays import TensorInfo, read_npy, read_npz
from dlc.cli.structured_values import assemble_value, infer_value_type, is_input_name, tensor_infos
from dlc.errors import DTypeError, ModelError, ShapeError
from dlc.shapes.dims import is_static, substitute
from dlc.shapes.input_sizes import bind_sizes
from dlc.value_types import OBJECT_DTYPE


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
