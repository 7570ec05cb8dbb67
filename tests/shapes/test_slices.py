"""The clamping of slice bounds, against NumPy and the definition of ONNX's Slice, for all small bounds, steps and sizes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from dlc.frontend.size_guards import SizeGuards, deciding_sizes
from dlc.shapes.dims import Dim, UndecidableError
from dlc.shapes.slices import (
    NUMPY_MIN_START_INDEX,
    ONNX_MIN_START_INDEX,
    clamp,
    clamp_where_decidable,
    forward_slice,
    max_count,
    slice_range,
    unclamped_span,
)

STEPS = [step for step in range(-7, 8) if step]
BOUNDS = range(-7, 8)
SIZES = range(7)


def cases() -> Iterator[tuple[int, int | None, int | None, int]]:
    """Yield sizes, starts, stops and steps."""
    return product(SIZES, (None, *BOUNDS), (None, *BOUNDS), STEPS)


def onnx_slice(size: int, start: int, stop: int, step: int) -> list[int]:
    """Return the selected elements by the text of the ONNX specification."""
    start, stop = (bound + size if bound < 0 else bound for bound in (start, stop))
    start = int(np.clip(start, 0, size if step > 0 else size - 1))
    stop = int(np.clip(stop, 0 if step > 0 else -1, size if step > 0 else size - 1))
    return [*range(start, stop, step)] if size else []


@pytest.mark.parametrize("clamp", [clamp, clamp_where_decidable])
def test_selects_the_elements_of_numpy(clamp: object) -> None:
    for size, start, stop, step in cases():
        expected = [*range(size)[start:stop:step]]
        first, last = slice_range(size, start, stop, step, clamp)  # pyright: ignore[reportArgumentType]
        assert [*range(first, last, step)] == expected, (size, start, stop, step)
        # The same slice of the axis in the direction of the step.
        first, last = forward_slice(size, start, stop, step, clamp)  # pyright: ignore[reportArgumentType]
        axis = range(size)[:: 1 if step > 0 else -1]
        assert min(first, last) >= 0
        assert max(last, first if expected else 0) <= size
        assert [*axis[first : last : abs(step)]] == expected, (size, start, stop, step)
        assert len(expected) <= max_count(size, step)


def test_selects_the_elements_of_onnx() -> None:
    for size, start, stop, step in product(SIZES, BOUNDS, BOUNDS, STEPS):
        first, last = slice_range(size, start, stop, step, min_backward_start=ONNX_MIN_START_INDEX)
        assert [*range(first, last, step)] == onnx_slice(size, start, stop, step), (size, start, stop, step)


def test_unclamped_span_counts_the_elements() -> None:
    for size, start, stop, step in cases():
        span = unclamped_span(size, start, stop, step)
        if span is not None:
            assert max(-(-span // step), 0) == len(range(size)[start:stop:step]), (size, start, stop, step)
    assert unclamped_span(7, 1, None, 1) == unclamped_span(7, None, -1, 1) == 6


@pytest.mark.parametrize("min_backward_start", [NUMPY_MIN_START_INDEX, ONNX_MIN_START_INDEX])
def test_guards_of_symbolic_sizes_admit_only_equal_clamping(min_backward_start: int) -> None:
    symbol = Dim.symbol("n")
    for start, stop, step in product((None, -7, -3, -1, 0, 2, 5), (None, -6, -2, 0, 1, 6), (1, 3, -1, -2)):
        for size in SIZES:
            guards = SizeGuards({}, {"n": size})
            with deciding_sizes(guards):
                bounds = slice_range(symbol, start, stop, step, min_backward_start=min_backward_start)
            for other in (n for n in SIZES if all(guard.holds({"n": n}) for guard in guards.guards)):
                got = tuple(Dim.lift(bound).substitute({"n": other}) for bound in bounds)
                assert got == slice_range(other, start, stop, step, min_backward_start=min_backward_start), (
                    start,
                    stop,
                    step,
                    other,
                )


def test_bounds_of_undecidable_sizes() -> None:
    size = Dim.symbol("n")
    with pytest.raises(UndecidableError):
        slice_range(size, None, 5, 1)
    assert slice_range(size, None, 5, 1, clamp_where_decidable) == (0, 5)
    assert slice_range(size, -2, None, 1, clamp_where_decidable) == (size - 2, size)
    assert slice_range(size, size, size + 3, 1, clamp_where_decidable) == (size, size)
