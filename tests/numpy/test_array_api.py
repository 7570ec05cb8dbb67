"""The Python Array API, 2024.12: each function is implemented, or unsupported with a reason that the error gives."""

from __future__ import annotations

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.numpy.unsupported_names import UNSUPPORTED_NAMES

# Function names by section of https://data-apis.org/array-api/2024.12.
STANDARD = {
    "constants": "e inf nan newaxis pi",
    "creation": "arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like tril triu zeros "
    "zeros_like",
    "data types": "astype broadcast_arrays broadcast_to can_cast finfo iinfo isdtype result_type bool int8 int16 int32 int64 uint8 "
    "uint16 uint32 uint64 float32 float64 complex64 complex128",
    "elementwise": "abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_invert bitwise_or "
    "bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp expm1 floor floor_divide greater "
    "greater_equal hypot imag isfinite isinf isnan less less_equal log log1p log2 log10 logaddexp logical_and logical_not "
    "logical_or logical_xor maximum minimum multiply negative nextafter not_equal positive pow real reciprocal remainder round sign "
    "signbit sin sinh "
    "square sqrt subtract tan tanh trunc",
    "indexing": "take take_along_axis",
    "linear algebra": "matmul matrix_transpose tensordot vecdot",
    "manipulation": "broadcast_arrays broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze stack "
    "tile unstack",
    "searching": "argmax argmin count_nonzero nonzero searchsorted where",
    "sets": "unique_all unique_counts unique_inverse unique_values",
    "sorting": "argsort sort",
    "statistics": "cumulative_prod cumulative_sum max mean min prod std sum var",
    "utilities": "all any diff",
    "extensions": "linalg fft",
}
LINALG = (
    "cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank matrix_transpose outer pinv qr "
    "slogdet solve svd svdvals tensordot trace vecdot vector_norm"
)
FFT = "fft ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftfreq rfftfreq fftshift ifftshift"


def names() -> list[str]:
    return sorted({name for section in STANDARD.values() for name in section.split()})


def test_numpy_functions_are_supported_or_have_a_reason() -> None:
    for numpys, own, reasons in (
        (np, dnp, UNSUPPORTED_NAMES),
        (np.linalg, dnp.linalg, {}),
        (np.fft, dnp.fft, {}),
    ):
        functions = [n for n in numpys.__all__ if callable(getattr(numpys, n)) and not isinstance(getattr(numpys, n), type)]
        assert not [n for n in functions if not hasattr(own, n) and n not in reasons]


@pytest.mark.parametrize("module", ["dlc.numpy", "dlc.numpy.linalg", "dlc.numpy.fft"])
def test_standard_names_are_supported_or_have_a_reason(module: str) -> None:
    namespace, wanted, reasons = {
        "dlc.numpy": (dnp, names(), UNSUPPORTED_NAMES),
        "dlc.numpy.linalg": (dnp.linalg, LINALG.split(), {}),
        "dlc.numpy.fft": (dnp.fft, FFT.split(), {}),
    }[module]
    for name in wanted:
        assert hasattr(namespace, name) != (name in reasons), name
    for name, reason in reasons.items():
        with pytest.raises(AttributeError) as caught:
            getattr(namespace, name)
        assert f"{module} has no {name!r}: {reason}" == str(caught.value)
    with pytest.raises(AttributeError, match=r"docs/numpy\.md lists"):
        namespace.no_such_function  # noqa: B018


def test_namespace_info() -> None:
    info = dnp.__array_namespace_info__()
    assert info.default_device() in info.devices()
    assert info.dtypes(kind="real floating") == {"float32": np.float32, "float64": np.float64}
    assert info.dtypes(kind="complex floating") == {"complex64": np.complex64, "complex128": np.complex128}
    made = {
        "real floating": dnp.zeros(1),
        "complex floating": dnp.fft.fft(dnp.ones(1)),
        "integral": dnp.arange(3),
        "indexing": dnp.argmax(dnp.ones(3)),
    }
    assert info.default_dtypes(device="cpu") == {kind: x.dtype for kind, x in made.items()}
    with pytest.raises(dlc.DeviceError, match=r"device 'gpu': arrays are created on 'cpu'; .*dlc\.jit\(target"):
        dnp.zeros(3, device="gpu")


def test_the_reasons_are_for_names_of_numpy() -> None:
    """A reason for a name that NumPy does not have is a spelling mistake."""
    assert [n for n in UNSUPPORTED_NAMES if not hasattr(np, n) and n not in names()] == []


def test_arrays_know_their_namespace() -> None:
    def function(x):
        xp = x.__array_namespace__()
        return xp.sum(xp.concat([x, x]))

    assert dlc.jit(function)(np.ones(3, np.float32)) == 6
    assert dnp.__array_api_version__ == "2024.12"


def test_dtypes() -> None:
    x = np.ones(3, np.float32)

    @dlc.jit
    def function(x, n):
        assert dnp.result_type(x, 1.0) == np.float32 and dnp.result_type(x, np.float64) == np.float64
        assert dnp.result_type(x, n) == np.float32 and dnp.result_type(np.int8, 3) == np.int8
        assert dnp.can_cast(x, np.float64) and not dnp.can_cast(x, np.int32)
        assert dnp.finfo(x).max == np.finfo(np.float32).max and dnp.iinfo(np.int8).min == -128
        return x

    function(x, 2.0)
    assert dnp.result_type(dnp.bfloat16, 1.0) == dnp.bfloat16 and dnp.promote_types("i4", "f4") == np.float64
    assert dnp.finfo(dnp.bfloat16).bits == 16
    for kind, dtypes in {
        "bool": "?", "signed integer": "bhil", "unsigned integer": "BHIL", "real floating": "efd", "integral": "bBhHiIlL",
        "numeric": "bBefd",
    }.items():  # fmt: skip
        assert all(dnp.isdtype(np.dtype(c), kind) for c in dtypes)
    assert dnp.isdtype(np.float32, (np.int32, "real floating")) and not dnp.isdtype(np.float32, np.float64)
    with pytest.raises(dlc.DTypeError, match="bfloat16 and float16 have no common dtype"):
        dnp.add(x.astype(dnp.bfloat16), x.astype(np.float16))
