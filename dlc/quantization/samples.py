"""Calibration data: sets of inputs, read one at a time from a folder, a file or whatever Python gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import TensorInfo, read_npy, read_npz
from dlc.errors import DTypeError, ModelError, ShapeError

Inputs = dict[str, NDArray[Any]]
# Examples of a set that is cut from an array of many, where the model leaves the batch open.
_BATCH = 8


@dataclass(frozen=True)
class Samples:
    """Sets of inputs that fit a model, and where they are from; iterated more than once, each time read anew."""

    source: str
    readers: Sequence[Callable[[], Inputs]]

    def __len__(self) -> int:
        return len(self.readers)

    def __iter__(self) -> Iterator[Inputs]:
        return (read() for read in self.readers)

    def some(self, count: int) -> Samples:
        """At most so many of them, from all over."""
        return Samples(self.source, [self.readers[k] for k in self.places(count)])

    def places(self, count: int) -> list[int]:
        """The places of at most so many of them, from all over."""
        return np.unique(np.linspace(0, len(self) - 1, min(count, len(self))).astype(int)).tolist()

    @staticmethod
    def given(sets: Iterable[Mapping[str, Any] | Any], inputs: Sequence[TensorInfo]) -> Samples:
        """Sets that Python gives: a dict each from names of inputs to arrays, or of a model with one input the array."""
        found: list[Inputs] = []
        for k, one in enumerate(sets):
            named = cast("Mapping[str, Any]", one) if isinstance(one, Mapping) else {inputs[0].name: one}
            where = f"calibration sample {k}"
            found.append(_fitting(inputs, {name: np.asarray(array) for name, array in named.items()}, where))
        if not found:
            raise ModelError(
                "calibration: no samples are given; some dozens of sets of inputs that are like those in use will do"
            )
        return Samples("samples", [lambda one=one: one for one in found])

    @staticmethod
    def read(path: Path, inputs: Sequence[TensorInfo]) -> Samples:
        """Those of a folder, or of an `.npz` file with an array of many examples for each input.

        A folder has, for each input, NAME.npy with many examples along its first axis, or a folder NAME of `.npy` files, one
        set each, in the order of their names; or `.npz` files with an array for each input, one set each; or, for a model of
        one input, `.npy` files of any name, one set each. Raises ModelError where there is none of it, ShapeError and
        DTypeError for an array that is not what an input takes.
        """
        if not path.exists():
            raise ModelError(f"{path}: no such file or folder of samples")
        if not path.is_dir():
            return _stacked(str(path), _loaded(path), inputs)
        names = [info.name for info in inputs]
        files = sorted(path.iterdir())
        if all((path / f"{name}.npy").is_file() for name in names):
            arrays = {name: _array(path / f"{name}.npy") for name in names}
            return _stacked(str(path), arrays, inputs)
        if all((path / name).is_dir() for name in names):
            return _parallel(path, inputs)
        sets = [file for file in files if file.suffix == ".npz"]
        if sets:
            return Samples(str(path), [lambda f=f: _fitting(inputs, _loaded(f), str(f)) for f in sets])
        single = [file for file in files if file.suffix == ".npy"]
        if single and len(inputs) == 1:
            return Samples(str(path), [lambda f=f: _fitting(inputs, {names[0]: _array(f)}, str(f)) for f in single])
        raise ModelError(_nothing(path, files, inputs))


def _nothing(path: Path, files: Sequence[Path], inputs: Sequence[TensorInfo]) -> str:
    """Why a folder has no calibration data."""
    there = "it is empty" if not files else "it has " + ", ".join(f.name for f in files[:6]) + " …" * (len(files) > 6)
    wanted = ", ".join(f"{info.name}.npy" for info in inputs)
    alone = ", or .npy files of one set each" if len(inputs) == 1 else ""
    return (
        f"{path}: no calibration data: {there}; expected {wanted} with many examples along axis 0{alone}, or .npz files of "
        f"one set each; the inputs are {', '.join(map(str, inputs))}"
    )


def _parallel(path: Path, inputs: Sequence[TensorInfo]) -> Samples:
    files = {info.name: sorted((path / info.name).glob("*.npy")) for info in inputs}
    counts = {name: len(found) for name, found in files.items()}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        text = ", ".join(f"{name}/: {count}" for name, count in counts.items())
        raise ModelError(f"{path}: expected as many .npy files for each input, and at least one; got {text}")

    def read(k: int) -> Inputs:
        return _fitting(inputs, {name: _array(found[k]) for name, found in files.items()}, f"{path}, set {k}")

    return Samples(str(path), [lambda k=k: read(k) for k in range(next(iter(counts.values())))])


def _stacked(source: str, arrays: Mapping[str, NDArray[Any]], inputs: Sequence[TensorInfo]) -> Samples:
    """Sets cut from arrays of many examples along axis 0, as many as the model takes at a time."""
    _require_names(inputs, arrays, source)
    counts = {info.name: len(arrays[info.name]) if arrays[info.name].ndim else 0 for info in inputs}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        text = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise ShapeError(f"{source}: expected as many examples in each array along axis 0, and at least one; got {text}")
    count = next(iter(counts.values()))
    fixed = {int(info.shape[0]) for info in inputs if info.shape and isinstance(info.shape[0], int)}
    size = min(fixed) if fixed else min(_BATCH, count)
    if not 0 < size <= count:
        raise ShapeError(f"{source}: the model takes {size} examples at a time, the data has {count}")

    def read(start: int) -> Inputs:
        part = {info.name: np.asarray(arrays[info.name][start : start + size]) for info in inputs}
        return _fitting(inputs, part, source)

    # What is left over is a smaller set where the model takes any number.
    end = count - count % size if fixed else count
    return Samples(source, [lambda s=s: read(s) for s in range(0, end, size)])


def _fitting(inputs: Sequence[TensorInfo], arrays: Mapping[str, NDArray[Any]], where: str) -> Inputs:
    """Arrays as inputs take them: of their dtype; one that lacks an axis of one example gets it."""
    _require_names(inputs, arrays, where)
    found: Inputs = {}
    for info in inputs:
        array = arrays[info.name]
        if not np.can_cast(array.dtype, info.dtype, "same_kind"):
            raise DTypeError(f"{where}: {info.name} is of {array.dtype}; the model takes {info}")
        if array.ndim == len(info.shape) - 1 and (not isinstance(info.shape[0], int) or info.shape[0] == 1):
            array = array[None]
        fits = array.ndim == len(info.shape) and all(
            not isinstance(size, int) or size == actual for size, actual in zip(info.shape, array.shape, strict=True)
        )
        if not fits:
            raise ShapeError(f"{where}: {info.name} has the shape {list(array.shape)}; the model takes {info}")
        found[info.name] = np.asarray(array, info.dtype, order="C")
    return found


def _require_names(inputs: Sequence[TensorInfo], arrays: Mapping[str, NDArray[Any]], where: str) -> None:
    if missing := [str(info) for info in inputs if info.name not in arrays]:
        there = ", ".join(arrays) or "nothing"
        raise ModelError(f"{where}: no array for input {', '.join(missing)}; it has {there}")


def _array(path: Path) -> NDArray[Any]:
    try:
        return read_npy(path, mapped=True)
    except ValueError as error:
        raise ModelError(f"{path}: not an .npy file of numbers: {error}") from error


def _loaded(path: Path) -> dict[str, NDArray[Any]]:
    try:
        return read_npz(path)
    except ValueError as error:
        raise ModelError(f"{path}: not an .npz file of arrays of numbers, as numpy.savez writes it: {error}") from error
