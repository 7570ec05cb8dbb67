"""Loops and branches inside kernels. Their bodies run once, while the kernel is traced."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

from dlc.dialects.dl.library_kernels.loops import POINTS_PER_TASK, TILE, UNROLL
from dlc.errors import DTypeError, ShapeError
from dlc.frontend.trace import user_line_text
from dlc.ir import Block, DenseArrayBase, IntegerAttr, Operation, i64, scf
from dlc.kernels.functions import index, require_value
from dlc.kernels.index_ranges import Interval, LinearForm, is_less
from dlc.kernels.kernel_trace import KernelTrace, LoopVariable, Scope, current_kernel_trace
from dlc.kernels.lanes import LoopLanes
from dlc.kernels.shapes import is_python_integer, is_size
from dlc.kernels.values import Value, require_uniform
from dlc.passes.kernel_builder import KernelBuilder
from dlc.passes.kernel_values import KernelValue
from dlc.shapes.dims import Size
from dlc.shapes.traced_dims import TracedSize

# The maximum of each hint. More unrolled iterations only enlarge the code.
_MAX_HINTS = {"parallel": 1 << 31, "vectorize": 64, "unroll": 64}
LoopBound: TypeAlias = "TracedSize | Value"


def _indices(trace: KernelTrace, scope: Scope, variables: Sequence[KernelValue]) -> tuple[Value, ...]:
    """Open the scope of a loop; return its indices."""
    trace.open(scope)
    return tuple(Value(trace, v, None, scope, LinearForm.of(v.ssa)) for v in variables)


def _grid_points(
    trace: KernelTrace, sizes: Sequence[TracedSize], parallel: int | None = None, tile: Sequence[int] | None = None
) -> Iterator[tuple[Value, ...]]:
    """Emit a grid around the body of a `for` statement; yield the indices of a point."""
    with parallel_loop(trace.builder, list(map(trace.local_size, sizes)), parallel, tile) as points:
        scope = Scope(
            "grid",
            user_line_text(),
            [LoopVariable(p.ssa, 0, 1, n) for p, n in zip(points, sizes, strict=True)],
            runs_once_or_more=all(is_less(0, n) is True for n in sizes),
            never_runs=any(is_less(n, 1) is True for n in sizes),
            conditions=[n - 1 for n in sizes],
        )
        for point, size in zip(points, sizes, strict=True):
            trace.set_range(point.ssa, Interval(0, size - 1))
        if trace.checked and not scope.never_runs:
            trace.add_checks(sizes).enter(points)
        yield _indices(trace, scope, points)
        trace.close(scope)


def _loop(trace: KernelTrace, start: Value, stop: Value, stride: Value, unroll: int) -> Iterator[Value]:
    """Emit a loop around the body of a `for` statement; yield its index."""
    low, high, step = start.range, stop.range, stride.range.value
    start_form, stop_form, stride_form = (x.form or LinearForm() for x in (start, stop, stride))
    # The index after the last one must not overflow, or the loop would not end.
    trace.require_no_overflow(stop_form + stride_form + LinearForm(-1))
    step_value = step if isinstance(step, int) else stride.kernel_value
    with trace.builder.loop(start.kernel_value, stop.kernel_value, step_value) as variable:
        if unroll > 1:
            cast(Operation, cast(Block, variable.ssa.owner).parent_op()).attributes[UNROLL] = IntegerAttr(unroll, i64)
        variables: list[LoopVariable] = []
        interval = Interval(low.low, high.high - 1)
        if isinstance(step, int):
            residue = trace.residue_of(start_form, step)
            if (first := low.value) is not None:
                max_trip_count = -(-(cast(TracedSize, high.high) - first) // step)
                interval = Interval(first, first + (max_trip_count - 1) * step)
                if high.value is not None:
                    variables = [LoopVariable(variable.ssa, first, step, max_trip_count)]
            elif residue is not None and not isinstance(interval.high, float):
                interval = Interval(low.low, interval.high - (interval.high - residue) % step)
            if residue is not None:
                trace.set_residue(variable.ssa, residue, step)
        trace.set_range(variable.ssa, interval)
        form = LinearForm.of(variable.ssa)
        scope = Scope(
            "range",
            user_line_text(),
            variables,
            [*trace.comparison_facts("ge", form, start_form), *trace.comparison_facts("lt", form, stop_form)],
            runs_once_or_more=is_less(low.high, high.low) is True,
            never_runs=interval.is_empty,
            conditions=[cast(TracedSize, r.high - r.low) for r in (Interval(low.low, high.high - 1), interval) if r.is_finite],
        )
        yield _indices(trace, scope, [variable])[0]
        trace.close(scope)


@contextmanager
def parallel_loop(
    builder: KernelBuilder, sizes: Sequence[Size], points_per_task: int | None = None, tile: Sequence[int] | None = None
) -> Generator[list[KernelValue]]:
    """Build a grid whose sizes are polynomials in the size arguments; yield the indices of a point."""
    outer = builder.op_builder
    names = ["i", "j", "k", "l"]
    points = outer.parallel("grid", [(n, 1) for n in sizes], [names[k] if k < 4 else f"i{k}" for k, _ in enumerate(sizes)])
    if points_per_task is not None:
        points.attributes[POINTS_PER_TASK] = IntegerAttr(points_per_task, i64)
    if tile is not None:
        points.attributes[TILE] = DenseArrayBase.from_list(i64, list(tile))
    builder.op_builder = outer.at_block_end(points.body.block)
    yield [KernelValue(builder, argument) for argument in points.body.block.args]
    builder.op_builder.insert(scf.ReduceOp())
    builder.op_builder = outer


def grid(
    *sizes: TracedSize, parallel: int | None = None, vectorize: int = 1, tile: Sequence[int] | None = None
) -> Iterator[Any]:
    """Iterate over the points of a grid, which run in parallel: `for i, j in k.grid(n, m):`.

    No point may read or write an element of a result that another point writes. The sizes are integers or sizes
    of arrays.

    Hints choose the schedule: a task runs `parallel` consecutive points, or those of a `tile` with one size per dimension; by
    default the number of points is estimated from the work of one. `vectorize` points along the last dimension, and then the
    remaining ones, run in the lanes of vectors. Raises DlcError where the body cannot be vectorized: in it, the last index may
    be added to, compared, and be the index of one axis, and conditions of `k.when` and bounds of loops must not depend on it.
    """
    trace = current_kernel_trace("grid")
    if trace.is_in_grid:
        raise trace.error("k.grid inside of a k.grid; use one grid of several dimensions, or k.range")
    if not sizes:
        raise trace.error("k.grid() without a size; write k.grid(n)", ShapeError)
    for size in sizes:
        if not is_size(size) or size < 0:
            raise trace.error(f"k.grid: size {size!r:.60}; expected an integer that is known while tracing", ShapeError)
    _require_hints(trace, "k.grid", parallel=parallel, vectorize=vectorize)
    if tile is not None and (len(tile) != len(sizes) or not all(is_python_integer(n) and n >= 1 for n in tile)):
        raise trace.error(f"k.grid: tile={tile!r:.60}; expected {len(sizes)} positive Python integers", DTypeError)
    if tile is not None and parallel is not None:
        raise trace.error("k.grid: parallel with tile; the points of a tile are a task", DTypeError)
    if vectorize > 1:
        return _vectorized_grid(trace, sizes, parallel, tile, vectorize)
    points = _grid_points(trace, sizes, parallel, tile)
    return points if len(sizes) > 1 else (point for (point,) in points)


def _require_hints(trace: KernelTrace, function: str, **hints: int | None) -> None:
    """Raise DTypeError unless the hints are in their ranges."""
    for name, hint in hints.items():
        if hint is not None and not (is_python_integer(hint) and 1 <= hint <= _MAX_HINTS[name]):
            expected = f"expected a Python integer of 1 to {_MAX_HINTS[name]}"
            raise trace.error(f"{function}: {name}={hint!r:.60}; {expected}", DTypeError)


def _vectorized_grid(
    trace: KernelTrace, sizes: Sequence[TracedSize], parallel: int | None, tile: Sequence[int] | None, vectorize: int
) -> Iterator[Any]:
    """Iterate over the points of a grid in vectors along the last dimension."""
    if tile is not None:
        if tile[-1] % vectorize:
            raise trace.error(f"k.grid: tile={tile!r:.60} with vectorize={vectorize}; expected a last size that it divides")
        tile = (*tile[:-1], tile[-1] // vectorize)
    for first, num_strips, width in _split_into_strips(sizes[-1], vectorize):
        for *outer, strip in _grid_points(trace, (*sizes[:-1], num_strips), parallel, tile):
            trace.lanes = LoopLanes(strip.kernel_value.ssa, width, "k.grid") if width > 1 else None
            last = strip * width + first
            yield (*outer, last) if outer else last
            trace.lanes = None


def range(
    start: LoopBound, stop: LoopBound | None = None, step: LoopBound = 1, *, unroll: int = 1, vectorize: int = 1
) -> Iterator[Value]:
    """Iterate in sequence over start, start + step, … below stop: `for j in k.range(n):`.

    Bounds are sizes, indices, or integer values; the step is a positive integer, or an index that is provably positive.
    With `unroll`, an iteration of the generated loop runs the body for that many indices, and another loop for the remainder.
    `vectorize` iterations, and then the remaining ones, run in the lanes of vectors, under the rules of a vectorized grid. They
    must be independent: raises DlcError if one may access an element that another one stores, or assigns a variable of an
    enclosing loop.
    """
    trace = current_kernel_trace("range")
    trace.require_grid("k.range")
    if not isinstance(step, Value) and not (is_python_integer(step) and step >= 1):
        raise trace.error(f"k.range: step {step!r:.60}; expected a positive integer, or an index", DTypeError)
    low, high = (index(0), index(start)) if stop is None else (index(start), index(stop))
    require_uniform("k.range", low, high)
    stride = index(step)
    if stride.range.low < 1:
        raise trace.error(f"k.range: step {stride.range}; expected an index that is provably positive", DTypeError)
    _require_hints(trace, "k.range", unroll=unroll, vectorize=vectorize)
    if vectorize > 1:
        bounds = (0, start) if stop is None else (start, stop)
        return _vectorized_range(trace, bounds, step, unroll, vectorize)
    return _loop(trace, low, high, stride, unroll)


def _vectorized_range(
    trace: KernelTrace, bounds: tuple[LoopBound, LoopBound], step: LoopBound, unroll: int, vectorize: int
) -> Iterator[Value]:
    """Iterate over independent indices, in vectors of consecutive ones."""
    start, stop = bounds
    if trace.lanes is not None:
        raise trace.error(f"k.range: vectorize={vectorize} in {trace.lanes}; vectorize one of them")
    is_static = is_python_integer(start) and is_python_integer(stop)
    has_size = is_static or (is_python_integer(start) and start == 0 and is_size(stop))
    if not has_size or not is_python_integer(step) or step != 1:
        expected = "expected integers or one size of an array as bounds, and a step of 1"
        raise trace.error(f"k.range: vectorize={vectorize} with bounds {start}, {stop} and step {step}; {expected}")
    first_index = cast(int, start)
    count = max(cast(int, stop) - first_index, 0) if is_static else cast(TracedSize, stop)
    for first, num_strips, width in _split_into_strips(count, vectorize):
        for strip in _loop(trace, index(0), index(num_strips), index(1), unroll):
            trace.lanes = lanes = LoopLanes(strip.kernel_value.ssa, width, "k.range") if width > 1 else None
            yield strip * width + (first + first_index)
            trace.lanes = None
            if lanes is not None and (name := lanes.dependent_array()) is not None:
                problem = f"an iteration may access an element of {name} that another one stores"
                raise trace.error(f"{lanes} cannot be vectorized: {problem}; each must access its own elements of {name}")


def strips(stop: TracedSize, width: int) -> Generator[tuple[Value, int]]:
    """Iterate over `width` indices at a time: `for j, lanes in k.strips(n, 16):` for `x.load(i, j, width=lanes)`.

    A loop over whole strips is followed by one strip of the remaining indices, for which Python runs the body again. If the
    number of remaining indices is symbolic, strips of one index follow. Outside of a grid, strips are points of a grid.
    """
    trace = current_kernel_trace("strips")
    for name, n in (("stop", stop), ("width", width)):
        if not (is_size(n) if name == "stop" else is_python_integer(n)) or n < (name == "width"):
            raise trace.error(f"k.strips: {name} {n!r:.60}; expected an integer that is known while tracing", ShapeError)
    for first, num_strips, strip_width in _split_into_strips(stop, width):
        if not trace.is_in_grid:
            for (strip,) in _grid_points(trace, (num_strips,)):
                yield strip_width * strip + first, strip_width
        elif isinstance(num_strips, int) and num_strips == 1:
            yield index(first), strip_width
        else:
            for start in range(first, first + num_strips * strip_width, strip_width):
                yield start, strip_width


def _split_into_strips(stop: TracedSize, width: int) -> Iterator[tuple[TracedSize, TracedSize, int]]:
    """Yield (first, count, width) for whole strips, then for the remainder: a strip, or strips of 1 if it is symbolic."""
    remainder = stop % width
    lanes, count = (remainder, 1) if isinstance(remainder, int) else (1, remainder)
    for first, num_strips, strip_width in ((0, stop // width, width), (stop - remainder, count, lanes)):
        if not (num_strips == 0 or strip_width == 0):
            yield first, num_strips, strip_width


@contextmanager
def when(condition: Value) -> Generator[None]:
    """Run the body of the `with` statement only if a condition holds: `with k.when(i < n):`.

    Comparisons of indices, also combined by `&`, limit the indices inside.
    """
    trace = current_kernel_trace("when")
    require_value(trace, "when", condition, "use a Python if")
    if not condition.is_bool or condition.shape:
        hint = "" if trace.lanes is None else f"; it differs in the lanes of {trace.lanes}: use k.select"
        raise trace.error(f"k.when: {condition!r}; expected one boolean, such as x > 0{hint}", DTypeError)
    trace.require_grid("k.when")
    scope = Scope("when", user_line_text(), facts=condition.facts, runs_once_or_more=False, index_set=condition.index_set)
    with trace.builder.when(condition.kernel_value):
        trace.open(scope)
        yield
        trace.close(scope)
