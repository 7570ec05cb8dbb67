"""The weight store: equal arrays are stored once, and invalid files are reported by name."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from dlc.errors import ModelError
from dlc.weights import WeightStore


def test_round_trip(tmp_path: Path) -> None:
    store = WeightStore()
    arrays = [np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(4, ml_dtypes.bfloat16), np.array(3, np.int64)]
    names = [store.add(array) for array in arrays]
    store.save(tmp_path)
    loaded = WeightStore.load(tmp_path)
    for name, array in zip(names, arrays, strict=True):
        assert loaded[name].dtype == array.dtype
        np.testing.assert_array_equal(loaded[name], array)


def test_only_equal_arrays_are_shared() -> None:
    store, first = WeightStore(), np.zeros((3, 400_000), np.int8)
    name = store.add(first)
    # The samples by which large arrays are compared first do not contain most of these elements.
    for place in (1, 5000, 40_000, 599_999, first.size - 1):
        other = first.copy()
        other.flat[place] = 1
        assert store.add(other) != name
        assert store.add(first.copy()) == name
    assert len({store.add(a) for a in (first, first.T, first.reshape(-1), first.view(np.bool_))}) == 4
    assert len(set(store.digests().values())) == len(store) == 9


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<f4', 'fortran_order': F: '<f4', #fortran_order': Fqlse, 'shape': (2,), }",
        b"{'descr': '|O', 'fortran_order': False, 'shape': (2,), }",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
        b"(" * 60,
    ],
)
def test_damaged_headers(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "w.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(8))
    with pytest.raises(ModelError, match=r"w\.npy: not an array of the weights store"):
        WeightStore.load(tmp_path)


def test_unknown_dtypes(tmp_path: Path) -> None:
    np.save(tmp_path / "w.float7.npy", np.zeros(3, np.uint8))
    with pytest.raises(ModelError, match=r"w\.float7\.npy"):
        WeightStore.load(tmp_path)
