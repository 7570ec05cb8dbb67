"""Calibration data in all formats, and invalid data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlc.arrays import TensorInfo
from dlc.errors import DlcError
from dlc.quantization.calibration_data import CalibrationData
from dlc.shapes.parsing import parse_size

F32 = np.dtype(np.float32)
ONE = (TensorInfo("x", (1, 2), F32),)
TWO = (TensorInfo("x", (1, 2), F32), TensorInfo("ids", (1, parse_size("n")), np.dtype(np.int64)))
OPEN = (TensorInfo("x", (parse_size("n"), 2), F32),)


def shapes(samples: CalibrationData) -> list[dict[str, tuple[int, ...]]]:
    assert len(list(samples)) == len(samples)
    return [{name: array.shape for name, array in one.items()} for one in samples]


def test_an_array_of_many_examples(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(20.0).reshape(10, 2))
    samples = CalibrationData.read(tmp_path, ONE)
    assert [one["x"].tolist() for one in samples][:2] == [[[0, 1]], [[2, 3]]]
    assert all(one["x"].dtype == np.float32 for one in samples) and len(samples) == 10
    assert shapes(CalibrationData.read(tmp_path, OPEN)) == [{"x": (8, 2)}, {"x": (2, 2)}]
    assert [one["x"][0, 0] for one in samples.subset(3)] == [0, 8, 18]
    np.savez(tmp_path / "d.npz", x=np.zeros((3, 2)))
    assert len(CalibrationData.read(tmp_path / "d.npz", ONE)) == 3


def test_files_of_one_set_each(tmp_path: Path) -> None:
    for k in range(3):
        np.savez(tmp_path / f"{k}.npz", x=np.zeros((1, 2)), ids=np.zeros((1, k + 1), np.int32))
    assert shapes(CalibrationData.read(tmp_path, TWO)) == [{"x": (1, 2), "ids": (1, k + 1)} for k in range(3)]


def test_files_of_any_name_for_a_single_input(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(2))
    np.save(tmp_path / "b.npy", np.zeros((1, 2)))
    assert shapes(CalibrationData.read(tmp_path, ONE)) == [{"x": (1, 2)}] * 2


def test_a_folder_for_each_input(tmp_path: Path) -> None:
    for name, dtype in (("x", np.float32), ("ids", np.int64)):
        (tmp_path / name).mkdir()
        for k in range(2):
            np.save(tmp_path / name / f"{k}.npy", np.zeros((1, 2), dtype))
    assert shapes(CalibrationData.read(tmp_path, TWO)) == [{"x": (1, 2), "ids": (1, 2)}] * 2
    (tmp_path / "ids" / "1.npy").unlink()
    with pytest.raises(DlcError, match=r"the same number of \.npy files for each input, at least one; got x/: 2, ids/: 1"):
        CalibrationData.read(tmp_path, TWO)


def test_sets_from_python() -> None:
    assert shapes(CalibrationData.from_iterable([np.zeros(2), np.zeros((1, 2))], ONE)) == [{"x": (1, 2)}] * 2
    assert shapes(CalibrationData.from_iterable([{"x": [[1, 2]], "ids": [[1]]}], TWO)) == [{"x": (1, 2), "ids": (1, 1)}]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {},
            r"no calibration data: the folder is empty; expected x\.npy with many examples .*the inputs are x: float32\[1, 2\]",
        ),
        ({"x.txt": None}, r"no calibration data: found x\.txt; expected"),
        ({"x.npy": np.zeros((4, 3))}, r"expected x: float32\[1, 2\], got shape \[1, 3\]"),
        ({"x.npy": np.zeros((0, 2))}, "at least one; got x: 0"),
        ({"x.npy": np.zeros((4, 2), complex)}, r"expected x: float32\[1, 2\], got dtype complex128"),
        ({"x.npy": None}, r"x\.npy: not an \.npy file"),
        ({"a.npz": {"y": np.zeros((1, 2))}}, r"a\.npz: no array for input x: float32\[1, 2\]; found y"),
    ],
)
def test_invalid_calibration_data(tmp_path: Path, files: dict[str, object], message: str) -> None:
    for name, content in files.items():
        if content is None:
            (tmp_path / name).write_text("nothing")
        elif isinstance(content, dict):
            np.savez(tmp_path / name, **content)
        else:
            np.save(tmp_path / name, np.asarray(content))
    with pytest.raises(DlcError, match=message):
        list(CalibrationData.read(tmp_path, ONE))


def test_an_npy_file_is_not_an_npz_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    with pytest.raises(DlcError, match=r"x\.npy: not an \.npz file .*: it contains one array, as numpy\.save writes it"):
        CalibrationData.read(tmp_path / "x.npy", ONE)


def test_empty_calibration_data() -> None:
    with pytest.raises(DlcError, match="calibration: samples is empty"):
        CalibrationData.from_iterable([], ONE)
