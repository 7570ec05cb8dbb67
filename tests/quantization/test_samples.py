"""Calibration data as people have it, and what they do wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlc.arrays import TensorInfo
from dlc.dims import parse
from dlc.errors import DlcError
from dlc.quantization.samples import Samples

F32 = np.dtype(np.float32)
ONE = (TensorInfo("x", (1, 2), F32),)
TWO = (TensorInfo("x", (1, 2), F32), TensorInfo("ids", (1, parse("n")), np.dtype(np.int64)))
OPEN = (TensorInfo("x", (parse("n"), 2), F32),)


def shapes(samples: Samples) -> list[dict[str, tuple[int, ...]]]:
    assert len(list(samples)) == len(samples)
    return [{name: array.shape for name, array in one.items()} for one in samples]


def test_an_array_of_many_examples(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(20.0).reshape(10, 2))
    samples = Samples.read(tmp_path, ONE)
    assert [one["x"].tolist() for one in samples][:2] == [[[0, 1]], [[2, 3]]]
    assert all(one["x"].dtype == np.float32 for one in samples) and len(samples) == 10
    assert shapes(Samples.read(tmp_path, OPEN)) == [{"x": (8, 2)}, {"x": (2, 2)}]
    assert [one["x"][0, 0] for one in samples.some(3)] == [0, 8, 18]
    np.savez(tmp_path / "d.npz", x=np.zeros((3, 2)))
    assert len(Samples.read(tmp_path / "d.npz", ONE)) == 3


def test_files_of_one_set_each(tmp_path: Path) -> None:
    for k in range(3):
        np.savez(tmp_path / f"{k}.npz", x=np.zeros((1, 2)), ids=np.zeros((1, k + 1), np.int32))
    assert shapes(Samples.read(tmp_path, TWO)) == [{"x": (1, 2), "ids": (1, k + 1)} for k in range(3)]


def test_files_of_any_name_are_of_the_only_input(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(2))
    np.save(tmp_path / "b.npy", np.zeros((1, 2)))
    assert shapes(Samples.read(tmp_path, ONE)) == [{"x": (1, 2)}] * 2


def test_a_folder_for_each_input(tmp_path: Path) -> None:
    for name, dtype in (("x", np.float32), ("ids", np.int64)):
        (tmp_path / name).mkdir()
        for k in range(2):
            np.save(tmp_path / name / f"{k}.npy", np.zeros((1, 2), dtype))
    assert shapes(Samples.read(tmp_path, TWO)) == [{"x": (1, 2), "ids": (1, 2)}] * 2
    (tmp_path / "ids" / "1.npy").unlink()
    with pytest.raises(DlcError, match=r"as many \.npy files for each input, and at least one; got x/: 2, ids/: 1"):
        Samples.read(tmp_path, TWO)


def test_sets_from_python() -> None:
    assert shapes(Samples.given([np.zeros(2), np.zeros((1, 2))], ONE)) == [{"x": (1, 2)}] * 2
    assert shapes(Samples.given([{"x": [[1, 2]], "ids": [[1]]}], TWO)) == [{"x": (1, 2), "ids": (1, 1)}]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, r"no calibration data: it is empty; expected x\.npy with many examples .*the inputs are x: float32\[1, 2\]"),
        ({"x.txt": None}, r"no calibration data: it has x\.txt; expected"),
        ({"x.npy": np.zeros((4, 3))}, r"x has the shape \[1, 3\]; the model takes x: float32\[1, 2\]"),
        ({"x.npy": np.zeros((0, 2))}, "at least one; got x: 0"),
        ({"x.npy": np.zeros((4, 2), complex)}, "x is of complex128; the model takes"),
        ({"x.npy": None}, r"x\.npy: not an \.npy file"),
        ({"a.npz": {"y": np.zeros((1, 2))}}, r"a\.npz: no array for input x: float32\[1, 2\]; it has y"),
    ],
)
def test_what_does_not_fit(tmp_path: Path, files: dict[str, object], message: str) -> None:
    for name, content in files.items():
        if content is None:
            (tmp_path / name).write_text("nothing")
        elif isinstance(content, dict):
            np.savez(tmp_path / name, **content)
        else:
            np.save(tmp_path / name, np.asarray(content))
    with pytest.raises(DlcError, match=message):
        list(Samples.read(tmp_path, ONE))


def test_one_array_is_no_file_of_several(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    with pytest.raises(DlcError, match=r"x\.npy: not an \.npz file .*: it is one array, as numpy\.save writes it"):
        Samples.read(tmp_path / "x.npy", ONE)


def test_no_sets_at_all() -> None:
    with pytest.raises(DlcError, match="calibration: no samples are given"):
        Samples.given([], ONE)
