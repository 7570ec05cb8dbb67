"""Training data: arrays by name with examples along axis 0, from an `.npz` file or a folder."""

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
    """Arrays with the same number of examples, and their source."""

    source: str
    arrays: Mapping[str, NDArray[Any]]

    @staticmethod
    def read(path: Path, names: Sequence[str]) -> Examples:
        """Read the named arrays from an `.npz` file (numpy.savez), or memory-map NAME.npy in a folder.

        Raises ModelError for a missing or invalid file or array, and ShapeError if the numbers of examples differ or are zero.
        """
        arrays = _memory_map_folder(path, names) if path.is_dir() else _load_npz(path)
        if missing := [name for name in names if name not in arrays]:
            array_shapes = ", ".join(f"{n} {list(a.shape)}" for n, a in arrays.items()) or "nothing"
            raise ModelError(
                f"{path}: expected arrays named {', '.join(names)}; missing {', '.join(missing)}; found {array_shapes}"
            )
        counts = {name: len(arrays[name]) if arrays[name].ndim else 0 for name in names}
        if len(set(counts.values())) != 1 or 0 in counts.values():
            text = ", ".join(f"{name}: {count}" for name, count in counts.items())
            raise ShapeError(
                f"{path}: expected the same number of examples along axis 0 of each array, at least one; got {text}"
            )
        return Examples(str(path), {name: arrays[name] for name in names})

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def require_matching_inputs(self, infos: Sequence[TensorInfo]) -> None:
        """Raise DTypeError for an array whose dtype cannot be cast to the dtype of its input.

        Integers are cast to floats and floats to other floats, but not floats to integers.
        """
        for info in infos:
            if not np.can_cast(self.arrays[info.name].dtype, info.dtype, "same_kind"):
                raise DTypeError(f"{self.source}: expected {info}, got dtype {self.arrays[info.name].dtype}")

    def batches(self, infos: Sequence[TensorInfo], size: int, generator: np.random.Generator) -> Iterator[Batch]:
        """Yield all examples in random order in batches of `size`; an incomplete last batch is dropped."""
        order = generator.permutation(len(self))
        for start in range(0, len(order) - size + 1, size):
            # Sorted, so that memory-mapped files are read sequentially.
            batch_indices = np.sort(order[start : start + size])
            yield {info.name: np.ascontiguousarray(self.arrays[info.name][batch_indices], info.dtype) for info in infos}


def _memory_map_folder(folder: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    files = {name: folder / f"{name}.npy" for name in names}
    try:
        return {name: read_npy(file, mapped=True) for name, file in files.items() if file.exists()}
    except ValueError as error:
        raise ModelError(f"{folder}: {error}") from error


def _load_npz(path: Path) -> dict[str, NDArray[Any]]:
    try:
        return read_npz(path)
    except ValueError as error:
        raise ModelError(f"{path}: not an .npz file of numeric arrays (numpy.savez): {error}") from error
