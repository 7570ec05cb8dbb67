"""Calls of a model by name and by position; errors name the inputs that do not fit."""

import ml_dtypes
import numpy as np
import pytest

import dlc
from dlc.arrays import Array, TensorInfo, address_of, aligned
from dlc.errors import DlcError, DTypeError, ShapeError
from dlc.runtime.models.model import Model
from dlc.shapes.dims import Dim

F32, I64 = np.dtype(np.float32), np.dtype(np.int64)
N = Dim.symbol("N")


def model(*inputs: TensorInfo) -> Model:
    return Model(
        inputs,
        [TensorInfo(f"out_{i.name}", i.shape, i.dtype) for i in inputs],
        lambda arrays: [np.asarray(a * 2) for a in arrays],
    )


PAIR = model(TensorInfo("x", (2, 3), F32), TensorInfo("self", (), I64))
X = np.ones((2, 3), np.float32)


@pytest.mark.parametrize(
    "call",
    [
        lambda: PAIR(X, 4),
        lambda: PAIR(X, self=4),
        lambda: PAIR(self=np.int64(4), x=X),
        lambda: PAIR({"x": X, "self": 4}),
        lambda: PAIR(X.tolist(), 4),
    ],
)
def test_inputs_by_position_and_name(call):
    result = call()
    assert list(result) == ["out_x", "out_self"]
    np.testing.assert_array_equal(result["out_x"], 2 * X)
    assert result["out_self"] == 8 and all(isinstance(r, Array) for r in result.values())


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: PAIR(X), "input 'self' is missing"),
        (lambda: PAIR(X, 4, 5), "got 3 inputs"),
        (lambda: PAIR(X, 4, x=X), "'x' is passed by position and by name"),
        (lambda: PAIR(X, 4, y=X), r"no input is named 'y'.*its inputs are x: float32\[2, 3\], self: int64\[\]"),
    ],
)
def test_wrong_names(call, message):
    with pytest.raises(DlcError, match=message):
        call()


def test_calling_a_model_without_inputs():
    with pytest.raises(DlcError, match=r"got 1 inputs; it has no inputs$"):
        model()(X)


def test_one_error_lists_all_mismatches():
    with pytest.raises(ShapeError, match=r"input x: float32\[2, 3\]; got float32\[3, 2\]; expected input self.*got int64\[1\]"):
        PAIR(X.T, np.ones(1, np.int64))
    with pytest.raises(DTypeError, match=r"got float64\[2, 3\], convert it with .astype\('float32'\)"):
        PAIR(X.astype(np.float64), 4)
    with pytest.raises(DTypeError, match="input self"):
        PAIR(X, 4.5)
    with pytest.raises(ShapeError, match="not an array"):
        PAIR([[1, 2], [3]], 4)
    for value, message in (({"x": X}, "an array of numbers; got a dict"), (["1", 2], "a list of strings and numbers")):
        with pytest.raises(DTypeError, match=f"input x: .*{message}"):
            PAIR(value, 4)


def test_symbolic_sizes_agree_across_inputs():
    m = model(TensorInfo("a", (N + 1, 2), F32), TensorInfo("b", (N,), F32))
    m(np.ones((4, 2), np.float32), np.ones(3, np.float32))
    m(np.ones((1, 2), np.float32), np.ones(0, np.float32))
    with pytest.raises(ShapeError, match=r"input a: float32\[N \+ 1, 2\] with N = 3; got float32\[3, 2\]"):
        m(np.ones((3, 2), np.float32), np.ones(3, np.float32))
    with pytest.raises(ShapeError, match=r"got float32\[\]"):
        m(np.ones((3, 2), np.float32), np.float32(1))


def test_results_are_numpy_compatible():
    y = PAIR(X, 4)["out_x"]
    assert type(y + 1) is np.ndarray and isinstance(y.sum(), np.float32)
    assert np.from_dlpack(y).shape == (2, 3) and memoryview(y).shape == (2, 3)
    assert np.shares_memory(np.asarray(y), y)


class DlpackArray:
    """An array of another library that supports only DLPack."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_arrays_of_other_libraries():
    assert PAIR(DlpackArray(X), 4)["out_x"].tolist() == (2 * X).tolist()
    assert dlc.jit(lambda x: x + 1, target="reference")(DlpackArray(X)).tolist() == (X + 1).tolist()

    class Elsewhere:
        def __array__(self, *_, **__):
            raise TypeError("copy it to the host first")

    with pytest.raises(DTypeError, match=r"input x: .*Elsewhere cannot be read: copy it to the host first"):
        PAIR(Elsewhere(), 4)
    with pytest.raises(DTypeError, match="an argument: a Elsewhere cannot be read"):
        dlc.jit(lambda x: x + 1)(Elsewhere())


def test_extended_dtypes():
    bf16 = np.dtype(ml_dtypes.bfloat16)
    m = model(TensorInfo("x", (2,), bf16))
    assert m(np.ones(2, bf16))["out_x"].dtype == bf16
    assert m([1.0, 2.0])["out_x"].tolist() == [2, 4]


def test_aligned_copies_only_unaligned_arrays():
    memory = aligned(np.arange(100, dtype=np.float32)[1:])
    assert memory.ctypes.data % 64 == 0 and aligned(memory) is memory
    transposed = aligned(memory[:96].reshape(8, 12).T)
    assert transposed.flags.c_contiguous and transposed[1, 0] == memory[1]


@pytest.mark.parametrize("dtype", [np.float32, np.bool_, ml_dtypes.bfloat16])
def test_the_address_of_an_array_is_numpys(dtype):
    array = np.ones((4, 5), dtype)
    for a in (array, array[1:, 2:], array.T, array.view(Array), np.empty(0, dtype), np.ones((), dtype)):
        assert address_of(a) == a.ctypes.data


def test_inputs_with_defaults_may_be_omitted():
    pair = model(TensorInfo("x", (2, 3), F32), TensorInfo("rate", (), F32))
    pair.defaults = {"rate": np.asarray(0.5, np.float32)}
    assert pair(X)["out_rate"] == 1 and pair(x=X, rate=2.0)["out_rate"] == 4
    with pytest.raises(DlcError, match="input 'x' is missing"):
        pair(rate=2.0)
