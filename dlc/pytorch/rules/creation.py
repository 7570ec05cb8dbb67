"""Array creation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

import dlc.numpy as dnp
from dlc.dialects import dl
from dlc.dialects.dl.base import Array
from dlc.dialects.dl.dtypes import element_type
from dlc.frontend.complex_numbers import component_dtype, from_parts, is_complex, real_and_imaginary
from dlc.frontend.trace import Trace, current_trace
from dlc.ir import i64
from dlc.numpy.apply import apply, convert
from dlc.pytorch.rules.rule_table import Dtype, RuleTable, is_tensor
from dlc.shapes.dims import is_static
from dlc.shapes.traced_dims import TracedDim, TracedSize

table = RuleTable()


def fill(size: Sequence[TracedSize], value: Any, dtype: Any) -> Any:
    """Return an array filled with one value; sizes may be symbolic."""
    if (dtype := np.dtype(dtype)).kind == "c":
        return from_parts(*(fill(size, component, component_dtype(dtype)) for component in components_of(value)))
    element = convert(dnp.reshape(value, ()) if is_tensor(value) else value, dtype)
    return apply(dl.BroadcastToOp, _trace().value(element), shape=tuple(size))


def components_of(x: Any) -> tuple[Any, Any]:
    """Return the real and the imaginary part; 0 for the imaginary part of a real value."""
    return real_and_imaginary(x) if is_complex(x) else (x, dnp.zeros_like(x) if hasattr(x, "dtype") else 0.0)


def _trace() -> Trace:
    trace = current_trace()
    assert trace is not None, "rules run while a graph is traced"
    return trace


def _default_dtype(value: object) -> Dtype:
    if is_complex(value):
        return np.dtype(np.complex64)
    return np.dtype(np.bool_ if isinstance(value, bool) else np.int64 if isinstance(value, int) else np.float32)


@table("full")
def full(size: Sequence[TracedSize], fill_value: Any, dtype: Any = None) -> Any:
    return fill(size, fill_value, dtype or _default_dtype(fill_value))


@table("full_like fill.Scalar fill.Tensor")
def full_like(x: Any, fill_value: Any, dtype: Any = None) -> Any:
    return fill(x.shape, fill_value, dtype or x.dtype)


@table("new_full")
def new_full(x: Any, size: Sequence[TracedSize], fill_value: Any, dtype: Any = None) -> Any:
    return fill(size, fill_value, dtype or x.dtype)


@table("zeros empty.memory_format")
def zeros(size: Sequence[TracedSize], dtype: Any = None) -> Any:
    return fill(size, 0, dtype or np.float32)


@table("empty_strided empty_permuted")
def empty_strided(size: Sequence[TracedSize], stride: Sequence[TracedSize], dtype: Any = None) -> Any:
    return fill(size, 0, dtype or np.float32)


@table("ones")
def ones(size: Sequence[TracedSize], dtype: Any = None) -> Any:
    return fill(size, 1, dtype or np.float32)


@table("zeros_like empty_like")
def zeros_like(x: Any, dtype: Any = None) -> Any:
    return fill(x.shape, 0, dtype or x.dtype)


@table("ones_like")
def ones_like(x: Any, dtype: Any = None) -> Any:
    return fill(x.shape, 1, dtype or x.dtype)


@table("new_zeros new_empty")
def new_zeros(x: Any, size: Sequence[TracedSize], dtype: Any = None) -> Any:
    return fill(size, 0, dtype or x.dtype)


@table("new_empty_strided")
def new_empty_strided(x: Any, size: Sequence[TracedSize], stride: Sequence[TracedSize], dtype: Any = None) -> Any:
    return fill(size, 0, dtype or x.dtype)


@table("new_ones")
def new_ones(x: Any, size: Sequence[TracedSize], dtype: Any = None) -> Any:
    return fill(size, 1, dtype or x.dtype)


@table("scalar_tensor")
def scalar_tensor(s: Any, dtype: Any = None) -> Any:
    return fill((), s, dtype or _default_dtype(s))


@table("arange.start_step")
def arange(start: Any, end: Any, step: Any = 1, dtype: Any = None) -> Any:
    bounds: tuple[Any, ...] = (start, end, step)
    dtype = dtype or (np.float32 if any(isinstance(e, float) for e in bounds) else np.int64)
    if any(isinstance(e, TracedDim) for e in bounds):
        return convert(integer_range(-((start - end) // step), start, int(step)), dtype)
    return np.arange(*cast("tuple[float, float, float]", bounds)).astype(dtype)


def integer_range(size: TracedSize, start: TracedSize = 0, step: int = 1) -> Any:
    """Return `size` integers from `start` on by `step`."""
    if is_static((size, start)):
        return int(start) + step * np.arange(int(size))
    if not isinstance(start, int):
        return dnp.add(integer_range(size, 0, step), size_as_array(start))
    return _trace().apply(dl.IotaOp, size=(size,), to=element_type(np.dtype(np.int64)), start=start, step=step)


def size_as_array(size: TracedSize) -> Any:
    """Return a size as an array of rank 0."""
    return np.asarray(size) if isinstance(size, int) else _trace().apply(dl.SizeOp, size=(size,), to=i64)


@table("arange arange.default")
def arange_to(end: Any, dtype: Any = None) -> Any:
    return arange(0, end, 1, dtype)


@table("arange.start")
def arange_from(start: Any, end: Any, dtype: Any = None) -> Any:
    return arange(start, end, 1, dtype)


@table("prims::iota")
def iota(length: TracedSize, start: TracedSize, step: int, dtype: Any) -> Any:
    return convert(integer_range(length, start, step), dtype)


@table("range range.step")
def range_(start: float, end: float, step: float = 1, dtype: Any = None) -> Any:
    """Like `arange`, but including the end."""
    return (start + step * np.arange(int((end - start) / step) + 1)).astype(dtype or np.float32)


@table("fft_fftfreq")
def fftfreq(n: int, d: float = 1, dtype: Any = None) -> Any:
    return np.fft.fftfreq(n, d).astype(dtype or np.float32)


@table("fft_rfftfreq")
def rfftfreq(n: int, d: float = 1, dtype: Any = None) -> Any:
    return np.fft.rfftfreq(n, d).astype(dtype or np.float32)


def _window(function: Callable[..., Any]) -> Any:
    """Return the rule of a window function; a periodic window omits the last of window_length + 1 samples."""

    def window(window_length: int, periodic: bool = True, *settings: float, dtype: Any = None) -> Any:
        if window_length < 2:
            return np.ones(window_length, dtype or np.float32)
        size = window_length + periodic
        return function(size, *settings)[:window_length].astype(dtype or np.float32)

    return window


def _hamming(size: int, alpha: float = 0.54, beta: float = 0.46) -> Array:
    return alpha - beta * np.cos(2 * np.pi * np.arange(size) / (size - 1))


def _kaiser(size: int, beta: float = 12.0) -> Array:
    return np.kaiser(size, beta)


for _names, _function in (
    ("bartlett_window bartlett_window.periodic", np.bartlett),
    ("blackman_window blackman_window.periodic", np.blackman),
    ("hamming_window hamming_window.periodic hamming_window.periodic_alpha hamming_window.periodic_alpha_beta", _hamming),
    ("kaiser_window kaiser_window.periodic kaiser_window.beta", _kaiser),
):
    table(_names)(_window(_function))


@table("linspace")
def linspace(start: float, end: float, steps: int, dtype: Any = None) -> Any:
    return np.linspace(start, end, steps).astype(dtype or np.float32)


@table("eye eye.m")
def eye(n: int, m: int | None = None, dtype: Any = None) -> Any:
    return np.eye(n, m, dtype=dtype or np.float32)


@table("tril_indices")
def tril_indices(row: int, col: int, offset: int = 0, dtype: Any = None) -> Any:
    return np.stack(np.tril_indices(row, offset, col)).astype(dtype or np.int64)


@table("triu_indices")
def triu_indices(row: int, col: int, offset: int = 0, dtype: Any = None) -> Any:
    return np.stack(np.triu_indices(row, offset, col)).astype(dtype or np.int64)
