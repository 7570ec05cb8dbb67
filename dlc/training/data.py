"""Examples to train on: arrays by name, one example each along their first axis, in an `.npz` file or a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import TensorInfo, read_npy, read_npz
from dlc.errors import DTypeError, ModelError, ShapeError

Batch = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Examples:
    """Arrays with as many examples each, and where they are from."""

    source: str
    arrays: Mapping[str, NDArray[Any]]

    @staticmethod
    def read(path: Path, names: Sequence[str]) -> Examples:
        """The arrays of these names, in a file as NumPy's `savez` writes it, or NAME.npy in a folder, which are mapped.

        Raises ModelError for a file or an array that is not there or is none, and ShapeError where arrays have different
        numbers of examples, or none.
        """
        arrays = _mapped(path, names) if path.is_dir() else _loaded(path)
        if missing := [name for name in names if name not in arrays]:
            there = ", ".join(f"{n} {list(a.shape)}" for n, a in arrays.items()) or "nothing"
            raise ModelError(
                f"{path}: no array is called {', '.join(missing)}; a step takes {', '.join(names)}, the data has {there}"
            )
        counts = {name: len(arrays[name]) if arrays[name].ndim else 0 for name in names}
        if len(set(counts.values())) != 1 or 0 in counts.values():
            text = ", ".join(f"{name}: {count}" for name, count in counts.items())
            raise ShapeError(f"{path}: expected as many examples in each array along axis 0, and at least one; got {text}")
        return Examples(str(path), {name: arrays[name] for name in names})

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def require_fitting(self, infos: Sequence[TensorInfo]) -> None:
        """Raises DTypeError for an array that is not, and does not become, what an input of its name takes.

        Integers may become floats, floats other floats, but no integers.
        """
        for info in infos:
            if not np.can_cast(self.arrays[info.name].dtype, info.dtype, "same_kind"):
                raise DTypeError(f"{self.source}: {info.name} is of {self.arrays[info.name].dtype}; the model takes {info}")

    def batches(self, infos: Sequence[TensorInfo], size: int, generator: np.random.Generator) -> Iterator[Batch]:
        """All examples in a random order, `size` at a time; what is left over at the end is left out."""
        order = generator.permutation(len(self))
        for start in range(0, len(order) - size + 1, size):
            # In the order of the file, which is read where it is mapped.
            chosen = np.sort(order[start : start + size])
            yield {info.name: np.ascontiguousarray(self.arrays[info.name][chosen], info.dtype) for info in infos}


def _mapped(folder: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    files = {name: folder / f"{name}.npy" for name in names}
    try:
        return {name: read_npy(file, mapped=True) for name, file in files.items() if file.exists()}
    except ValueError as error:
        raise ModelError(f"{folder}: {error}") from error


def _loaded(path: Path) -> dict[str, NDArray[Any]]:
    try:
        return read_npz(path)
    except ValueError as error:
        raise ModelError(f"{path}: not an .npz file of arrays of numbers, as numpy.savez writes it: {error}") from error
