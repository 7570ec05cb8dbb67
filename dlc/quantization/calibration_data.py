"""Calibration data: sets of inputs, read one at a time from a folder, an `.npz` file or Python."""

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
# Examples per set for models with a symbolic batch dimension.
_DEFAULT_BATCH_SIZE = 8


@dataclass(frozen=True)
class CalibrationData:
    """Sets of inputs of a model, which can be iterated repeatedly; each iteration reads the files again.

    Attributes:
        source: The file, folder or object that the sets come from, for messages.
        loaders: Functions that load one set each.
    """

    source: str
    loaders: Sequence[Callable[[], Inputs]]

    def __len__(self) -> int:
        return len(self.loaders)

    def __iter__(self) -> Iterator[Inputs]:
        return (load() for load in self.loaders)

    def subset(self, count: int) -> CalibrationData:
        """Return at most `count` sets, evenly spaced."""
        return CalibrationData(self.source, [self.loaders[k] for k in self.subset_indices(count)])

    def subset_indices(self, count: int) -> list[int]:
        """Return the indices of at most `count` sets, evenly spaced."""
        return np.unique(np.linspace(0, len(self) - 1, min(count, len(self))).astype(int)).tolist()

    @staticmethod
    def from_iterable(sets: Iterable[Mapping[str, Any] | Any], inputs: Sequence[TensorInfo]) -> CalibrationData:
        """Return sets given in Python: dicts from input names to arrays, or arrays for a model with one input."""
        samples: list[Inputs] = []
        for k, sample in enumerate(sets):
            named_arrays = cast("Mapping[str, Any]", sample) if isinstance(sample, Mapping) else {inputs[0].name: sample}
            where = f"calibration sample {k}"
            samples.append(_convert_inputs(inputs, {name: np.asarray(array) for name, array in named_arrays.items()}, where))
        if not samples:
            raise ModelError("calibration: samples is empty; pass several dozen representative sets of inputs")
        return CalibrationData("samples", [lambda sample=sample: sample for sample in samples])

    @staticmethod
    def read(path: Path, inputs: Sequence[TensorInfo]) -> CalibrationData:
        """Read calibration data from a folder, or from an `.npz` file with one array of many examples per input.

        A folder contains one of: NAME.npy for each input, with many examples along axis 0; a folder NAME for each input, with
        one `.npy` file per set, sorted by name; or `.npz` files with one array per input, one file per set. For a model with
        one input it may contain `.npy` files of any name, one per set. Raises ModelError if there is no such data, ShapeError
        and DTypeError for an array that does not match its input.
        """
        if not path.exists():
            raise ModelError(f"{path}: no such file or folder of samples")
        if not path.is_dir():
            return _split_batches(str(path), _load_npz(path), inputs)
        names = [info.name for info in inputs]
        files = sorted(path.iterdir())
        if all((path / f"{name}.npy").is_file() for name in names):
            arrays = {name: _array(path / f"{name}.npy") for name in names}
            return _split_batches(str(path), arrays, inputs)
        if all((path / name).is_dir() for name in names):
            return _read_input_folders(path, inputs)
        sets = [file for file in files if file.suffix == ".npz"]
        if sets:
            return CalibrationData(str(path), [lambda f=f: _convert_inputs(inputs, _load_npz(f), str(f)) for f in sets])
        single = [file for file in files if file.suffix == ".npy"]
        if single and len(inputs) == 1:
            return CalibrationData(
                str(path), [lambda f=f: _convert_inputs(inputs, {names[0]: _array(f)}, str(f)) for f in single]
            )
        raise ModelError(_no_data_message(path, files, inputs))


def _no_data_message(path: Path, files: Sequence[Path], inputs: Sequence[TensorInfo]) -> str:
    """Return the message for a folder without calibration data."""
    folder_contents = (
        "the folder is empty" if not files else "found " + ", ".join(f.name for f in files[:6]) + " …" * (len(files) > 6)
    )
    file_names = ", ".join(f"{info.name}.npy" for info in inputs)
    single_input_hint = ", or .npy files of one set each" if len(inputs) == 1 else ""
    return (
        f"{path}: no calibration data: {folder_contents}; expected {file_names} with many examples along axis 0"
        f"{single_input_hint}, or .npz files of one set each; the inputs are {', '.join(map(str, inputs))}"
    )


def _read_input_folders(path: Path, inputs: Sequence[TensorInfo]) -> CalibrationData:
    files = {info.name: sorted((path / info.name).glob("*.npy")) for info in inputs}
    counts = {name: len(input_files) for name, input_files in files.items()}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        text = ", ".join(f"{name}/: {count}" for name, count in counts.items())
        raise ModelError(f"{path}: expected the same number of .npy files for each input, at least one; got {text}")

    def read(k: int) -> Inputs:
        return _convert_inputs(
            inputs, {name: _array(input_files[k]) for name, input_files in files.items()}, f"{path}, set {k}"
        )

    return CalibrationData(str(path), [lambda k=k: read(k) for k in range(next(iter(counts.values())))])


def _split_batches(source: str, arrays: Mapping[str, NDArray[Any]], inputs: Sequence[TensorInfo]) -> CalibrationData:
    """Split arrays of many examples along axis 0 into sets of the model's batch size."""
    _require_names(inputs, arrays, source)
    counts = {info.name: len(arrays[info.name]) if arrays[info.name].ndim else 0 for info in inputs}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        text = ", ".join(f"{name}: {count}" for name, count in counts.items())
        raise ShapeError(f"{source}: expected the same number of examples along axis 0 of each array, at least one; got {text}")
    count = next(iter(counts.values()))
    static_batch_sizes = {int(info.shape[0]) for info in inputs if info.shape and isinstance(info.shape[0], int)}
    size = min(static_batch_sizes) if static_batch_sizes else min(_DEFAULT_BATCH_SIZE, count)
    if not 0 < size <= count:
        raise ShapeError(f"{source}: expected at least {size} examples, the model's batch size; got {count}")

    def read(start: int) -> Inputs:
        batch = {info.name: np.asarray(arrays[info.name][start : start + size]) for info in inputs}
        return _convert_inputs(inputs, batch, source)

    # Only a symbolic batch dimension admits a smaller last set.
    end = count - count % size if static_batch_sizes else count
    return CalibrationData(source, [lambda s=s: read(s) for s in range(0, end, size)])


def _convert_inputs(inputs: Sequence[TensorInfo], arrays: Mapping[str, NDArray[Any]], where: str) -> Inputs:
    """Convert arrays to the dtypes of the inputs, and add a missing batch axis of size 1."""
    _require_names(inputs, arrays, where)
    converted: Inputs = {}
    for info in inputs:
        array = arrays[info.name]
        if not np.can_cast(array.dtype, info.dtype, "same_kind"):
            raise DTypeError(f"{where}: expected {info}, got dtype {array.dtype}")
        if array.ndim == len(info.shape) - 1 and (not isinstance(info.shape[0], int) or info.shape[0] == 1):
            array = array[None]
        has_expected_shape = array.ndim == len(info.shape) and all(
            not isinstance(size, int) or size == actual for size, actual in zip(info.shape, array.shape, strict=True)
        )
        if not has_expected_shape:
            raise ShapeError(f"{where}: expected {info}, got shape {list(array.shape)}")
        converted[info.name] = np.asarray(array, info.dtype, order="C")
    return converted


def _require_names(inputs: Sequence[TensorInfo], arrays: Mapping[str, NDArray[Any]], where: str) -> None:
    if missing := [str(info) for info in inputs if info.name not in arrays]:
        array_names = ", ".join(arrays) or "nothing"
        raise ModelError(f"{where}: no array for input {', '.join(missing)}; found {array_names}")


def _array(path: Path) -> NDArray[Any]:
    try:
        return read_npy(path, mapped=True)
    except ValueError as error:
        raise ModelError(f"{path}: not an .npy file of numbers: {error}") from error


def _load_npz(path: Path) -> dict[str, NDArray[Any]]:
    try:
        return read_npz(path)
    except ValueError as error:
        raise ModelError(f"{path}: not an .npz file of numeric arrays (numpy.savez): {error}") from error
