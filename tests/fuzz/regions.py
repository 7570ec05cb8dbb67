"""Run random StableHLO programs whose ops have regions: reductions, windows, selections, sorts, scatters and loops of counters.

Bodies are those that the reader recognizes, mutated. Expected results come from folds over NumPy scalars; a program whose result
depends on the order in which StableHLO may combine its elements is not compared.
"""

from __future__ import annotations

import random
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import dlc
from dlc.dialects.dl.base import Array
from dlc.errors import UnsupportedError
from tests.fuzz.random_region import DTYPES, RandomRegion, combining_region, comparator_region
from tests.fuzz.trials import Trial, TrialOutcome, compared, trial_outcomes

TARGETS = ("reference", "cpu")
TIMEOUT_SECONDS = 120
_ORDERS = 6
_MAX_TRIPS = 700
_ELEMENT_TYPES = ("f32", "f32", "i32", "i8", "ui8", "i64", "i1")
# Values of counters near which narrow integers wrap.
_LIMITS = {"i8": 127, "ui8": 255, "i32": 2**31 - 1, "i64": 2**63 - 1}


class UndefinedResult(Exception):
    """A result that the specification leaves to the implementation."""


@dataclass(frozen=True)
class RegionProgram:
    """The text of a program, its inputs and its results."""

    text: str
    inputs: Sequence[Array]
    expected: Sequence[Array]


def _values(draw: random.Random, type: str, *shape: int) -> Array:
    rng = np.random.default_rng(draw.getrandbits(32))
    values = rng.integers(0, 2, shape) if type == "i1" else rng.integers(0 if type == "ui8" else -4, 5, shape)
    result = values.astype(DTYPES[type])
    if type == "f32" and result.size and draw.random() < 0.3:
        result.flat[draw.randrange(result.size)] = draw.choice([np.nan, np.inf, -np.inf, -0.0])
    return result


def _tensor(array: Array) -> str:
    type = next(name for name, dtype in DTYPES.items() if dtype == array.dtype)
    return f"tensor<{''.join(f'{size}x' for size in array.shape)}{type}>"


def _main(inputs: Sequence[Array], body: str, results: Sequence[Array]) -> str:
    """Return a module whose `%r:N` are its results."""
    arguments = ", ".join(f"%a{k}: {_tensor(x)}" for k, x in enumerate(inputs))
    types = ", ".join(map(_tensor, results))
    names = ", ".join(f"%r#{k}" for k in range(len(results))) if len(results) > 1 else "%r"
    return f"module {{\nfunc.func @main({arguments}) -> ({types}) {{\n{body}\nreturn {names} : {types}\n}}\n}}"


def _op(
    name: str, operands: Sequence[Array], properties: str, regions: Sequence[RandomRegion], results: Sequence[Array]
) -> str:
    names = ", ".join(f"%a{k}" for k in range(len(operands)))
    bodies = f" ({{\n{chr(10).join(['}, {'.join(region.text() for region in regions)])}\n}})" if regions else ""
    prefix = f"%r:{len(results)}" if len(results) > 1 else "%r"
    types = f"({', '.join(map(_tensor, operands))}) -> ({', '.join(map(_tensor, results))})"
    return f'{prefix} = "stablehlo.{name}"({names}) <{{{properties}}}>{bodies} : {types}'


def _same(xs: Sequence[Any], ys: Sequence[Any]) -> bool:
    return all(np.array_equal(x, y, equal_nan=np.asarray(x).dtype.kind == "f") for x, y in zip(xs, ys, strict=True))


@dataclass(frozen=True)
class _Selection:
    """Select one of two groups of scalars by a body on their first ones."""

    region: RandomRegion

    @property
    def draw(self) -> random.Random:
        return self.region.draw

    def evaluate(self, *scalars: Any) -> list[Any]:
        first, second = scalars[: len(scalars) // 2], scalars[len(scalars) // 2 :]
        return list(first if self.region.evaluate(first[0], second[0])[0] else second)


def _combine(region: RandomRegion | _Selection, parts: Sequence[Sequence[Any]]) -> list[Any]:
    """Fold groups of scalars from the left; raise UndefinedResult if another tree gives another result."""
    folded = list(parts[0])
    for part in parts[1:]:
        folded = region.evaluate(*folded, *part)
    for _ in range(_ORDERS):
        a, b, c = (region.draw.choice(parts) for _ in range(3))
        if not _same(region.evaluate(*region.evaluate(*a, *b), *c), region.evaluate(*a, *region.evaluate(*b, *c))):
            raise UndefinedResult
        others = [list(part) for part in parts]
        region.draw.shuffle(others)
        while len(others) > 1:
            at = region.draw.randrange(len(others) - 1)
            others[at : at + 2] = [region.evaluate(*others[at], *others[at + 1])]
        if not _same(folded, others[0]):
            raise UndefinedResult
    return folded


def _operands(draw: random.Random, *shape: int) -> list[Array]:
    """Return one array, or two of which the second has indices."""
    first = _values(draw, draw.choice(_ELEMENT_TYPES), *shape)
    if draw.random() < 0.5:
        return [first]
    size = shape[-1]
    return [first, np.broadcast_to(np.arange(size), shape).astype(draw.choice([np.int32, np.int32, np.int8, np.int64]))]


def _inits(draw: random.Random, xs: Sequence[Array]) -> list[Array]:
    inits = []
    for x in xs:
        info = np.finfo(x.dtype) if x.dtype.kind == "f" else np.iinfo(np.int8 if x.dtype == bool else x.dtype)
        choices = [0, 1, *([-np.inf, np.inf] if x.dtype.kind == "f" else [info.min, info.max] if x.dtype != bool else [])]
        inits.append(np.asarray(draw.choice(choices)).astype(x.dtype))
    return inits


def _types(xs: Sequence[Array]) -> list[str]:
    return [next(name for name, dtype in DTYPES.items() if dtype == x.dtype) for x in xs]


def _reduce(draw: random.Random) -> RegionProgram:
    xs = _operands(draw, draw.randint(0, 4), draw.randint(0, 6))
    inits, region, axis = _inits(draw, xs), combining_region(draw, _types(xs)), draw.randint(0, 1)
    columns = [np.moveaxis(x, axis, 0) for x in xs]
    results = [np.empty(x.shape[1:], x.dtype) for x in columns]
    for at in range(results[0].size):
        parts = [[init[()] for init in inits], *([x[k, at] for x in columns] for k in range(columns[0].shape[0]))]
        for result, value in zip(results, _combine(region, parts), strict=True):
            result[at] = value
    inputs = [*xs, *inits]
    return RegionProgram(
        _main(inputs, _op("reduce", inputs, f"dimensions = array<i64: {axis}>", [region], results), results), inputs, results
    )


def _reduce_window(draw: random.Random) -> RegionProgram:
    x = _values(draw, draw.choice(_ELEMENT_TYPES), draw.randint(1, 9))
    window, stride, low, high = draw.randint(1, 3), draw.randint(1, 2), draw.randint(0, 2), draw.randint(0, 2)
    init, region = _inits(draw, [x])[0], combining_region(draw, _types([x]))
    count = (x.size + low + high - window) // stride + 1
    if count < 1:
        raise UndefinedResult
    result = np.empty(count, x.dtype)
    for k in range(count):
        covered = [at for at in range(k * stride - low, k * stride - low + window) if 0 <= at < x.size]
        # Padding is the initial value: that of a window without elements may count more than once.
        if not covered and not _same(region.evaluate(init[()], init[()]), [init]):
            raise UndefinedResult
        (result[k],) = _combine(region, [[init[()]], *([x[at]] for at in covered)])
    properties = (
        f"window_dimensions = array<i64: {window}>, window_strides = array<i64: {stride}>, "
        f"padding = dense<[[{low}, {high}]]> : tensor<1x2xi64>"
    )
    inputs = [x, init]
    return RegionProgram(
        _main(inputs, _op("reduce_window", inputs, properties, [region], [result]), [result]), inputs, [result]
    )


def _select_and_scatter(draw: random.Random) -> RegionProgram:
    """Windows of one or two axes, with padding, which is not selected."""
    shape = [draw.randint(1, 5) for _ in range(draw.randint(1, 2))]
    x = _values(draw, draw.choice(_ELEMENT_TYPES), *shape)
    (init,), (type,) = _inits(draw, [x]), _types([x])
    kernel, strides = ([draw.randint(1, high) for _ in shape] for high in (3, 2))
    padding = [[draw.choice([0, 0, 1, 2]) for _ in range(2)] for _ in shape]
    counts = [(n + sum(pair) - k) // s + 1 for n, pair, k, s in zip(shape, padding, kernel, strides, strict=True)]
    if min(counts) < 1:
        raise UndefinedResult
    source, select = _values(draw, type, *counts), RandomRegion(draw, [type, type])
    select.results = [select.compare(draw.choice(["GE", "GE", "LE", "GT", "LT"]), 0, 1)]
    select.mutate()
    combine = combining_region(draw, [type])
    updates: dict[tuple[int, ...], list[Any]] = {}
    for window in np.ndindex(*counts):
        starts = [w * s - low for w, s, (low, _) in zip(window, strides, padding, strict=True)]
        covered = [tuple(a + b for a, b in zip(starts, offset, strict=True)) for offset in np.ndindex(*kernel)]
        inside = [at for at in covered if all(0 <= a < n for a, n in zip(at, shape, strict=True))]
        if inside:
            _, *selected = _combine(_Selection(select), [[x[at], *at] for at in inside])
            updates.setdefault(tuple(selected), []).append(source[window])
    result = np.empty_like(x)
    for at in np.ndindex(*shape):
        (result[at],) = _combine_updates(combine, init[()], updates.get(at, []))
    properties = (
        f"window_dimensions = array<i64: {', '.join(map(str, kernel))}>, "
        f"window_strides = array<i64: {', '.join(map(str, strides))}>, padding = dense<{padding}> : tensor<{len(shape)}x2xi64>"
    )
    inputs = [x, source, init]
    text = _op("select_and_scatter", inputs, properties, [select, combine], [result])
    return RegionProgram(_main(inputs, text, [result]), inputs, [result])


def _sort(draw: random.Random) -> RegionProgram:
    size = draw.randint(0, 9)
    xs = [_values(draw, draw.choice(_ELEMENT_TYPES), size) for _ in range(draw.randint(1, 2))]
    region = comparator_region(draw, _types(xs))

    def less(i: int, j: int) -> bool:
        return bool(region.evaluate(*(v for x in xs for v in (x[i], x[j])))[0])

    has_nan = any(x.dtype.kind == "f" and np.isnan(x).any() for x in xs)
    if has_nan and any(statement.op == "compare" for statement in region.statements):
        raise UndefinedResult
    _require_strict_weak_order(less, size)
    order: list[int] = []
    for k in range(size):
        at = next((p for p, other in enumerate(order) if less(k, other)), len(order))
        order.insert(at, k)
    results = [x[order] for x in xs]
    text = _op("sort", xs, "dimension = 0 : i64, is_stable = true", [region], results)
    return RegionProgram(_main(xs, text, results), xs, results)


def _require_strict_weak_order(less: Callable[[int, int], bool], size: int) -> None:
    table = np.array([[less(i, j) for j in range(size)] for i in range(size)], bool).reshape(size, size)
    equal = ~table & ~table.T
    steps = table.astype(int)
    if table.diagonal().any() or (table & table.T).any() or ((steps @ steps > 0) & ~table).any():
        raise UndefinedResult
    if ((equal.astype(int) @ equal.astype(int) > 0) & ~equal).any():
        raise UndefinedResult


def _scatter(draw: random.Random) -> RegionProgram:
    size, count = draw.randint(1, 6), draw.randint(0, 6)
    x = _values(draw, draw.choice(_ELEMENT_TYPES), size)
    updates = _values(draw, _types([x])[0], count).astype(x.dtype)
    index_type = draw.choice([np.int32, np.int8, np.int64])
    at = np.array([draw.choice([*range(size), -1, size, np.iinfo(index_type).max]) for _ in range(count)], index_type)
    region = combining_region(draw, _types([x]))
    if draw.random() < 0.2:
        region.results = [1]
    result = x.copy()
    for k in range(size):
        (result[k],) = _combine_updates(region, x[k], [updates[i] for i in range(count) if at[i] == k])
    properties = (
        "scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], "
        "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>"
    )
    inputs = [x, at.reshape(count, 1), updates]
    return RegionProgram(_main(inputs, _op("scatter", inputs, properties, [region], [result]), [result]), inputs, [result])


def _combine_updates(region: RandomRegion, value: Any, updates: Sequence[Any]) -> list[Any]:
    """Apply updates one after another; raise UndefinedResult if another order gives another result."""

    def apply(updates: Sequence[Any]) -> list[Any]:
        result = [value]
        for update in updates:
            result = region.evaluate(*result, update)
        return result

    expected = apply(updates)
    for _ in range(_ORDERS):
        if not _same(expected, apply(region.draw.sample(list(updates), len(updates)))):
            raise UndefinedResult
    return expected


def _while(draw: random.Random) -> RegionProgram:
    """A loop whose counter has a narrow type, begins near its limits, and counts up or down to a limit."""
    type = draw.choice(list(_LIMITS))
    dtype, largest = DTYPES[type], _LIMITS[type]
    smallest = int(np.iinfo(dtype).min)
    ends = [0, 1, 5, largest, largest - 3, smallest, smallest + 2, largest // 2]
    first, limit = (np.array(draw.choice(ends), dtype) for _ in range(2))
    total = np.array(draw.randint(-3, 3), np.int32)
    state = [type, type, "i32"]
    condition, body = RandomRegion(draw, state), RandomRegion(draw, state)
    pair = draw.choice([(0, 1), (1, 0)])
    condition.results = [condition.compare(draw.choice(["LT", "LE", "GT", "GE", "NE"]), *pair)]
    step = body.add("constant", type=type, attribute=draw.choice(["1", "1", "2"]))
    counter = body.add(draw.choice(["add", "subtract"]), *draw.choice([(0, step), (0, step), (step, 0)]))
    one = body.add("constant", type="i32", attribute="1")
    updated = body.add("add", body.add("multiply", 2, one) if draw.random() < 0.3 else 2, one)
    body.results = [counter, 1, updated]
    if draw.random() < 0.4:
        body.mutate()
    values: list[Any] = [first[()], limit[()], total[()]]
    trips = 0
    while condition.evaluate(*values)[0]:
        values, trips = body.evaluate(*values), trips + 1
        if trips > _MAX_TRIPS:
            raise UndefinedResult
    inputs, results = [first, limit, total], [np.asarray(v) for v in values]
    return RegionProgram(_main(inputs, _op("while", inputs, "", [condition, body], results), results), inputs, results)


KINDS = (_reduce, _reduce, _reduce_window, _select_and_scatter, _sort, _sort, _scatter, _while)


def random_program(seed: int) -> RegionProgram:
    """Return the program of a seed; draws whose result is undefined are repeated."""
    draw = random.Random(seed)
    while True:
        try:
            return draw.choice(KINDS)(draw)
        except UndefinedResult:
            continue


def run(trial: Trial) -> tuple[str, str | None]:
    """Run a trial; return its outcome, and the wrong results of its program or None."""
    program = random_program(trial.seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.mlir"
        path.write_text(program.text)
        try:
            got = list(dlc.compile_model(path, target=trial.target, cache=False)(*program.inputs).values())
        except UnsupportedError:
            return "refused", None
        except Exception:
            return "failed", f"{program.text}\n{traceback.format_exc()}"
    return compared([f"{program.text}\n{problem}" for problem in _mismatches(program, got)])


def _mismatches(program: RegionProgram, got: Sequence[Array]) -> Iterator[str]:
    for k, (result, expected) in enumerate(zip(got, program.expected, strict=True)):
        if result.dtype != expected.dtype or result.shape != expected.shape or not _same([result], [expected]):
            inputs = ", ".join(map(str, program.inputs))
            yield f"result {k} of {inputs}: {result}, expected {expected}"


def trials(seed: int, count: int, target: str | None = None) -> list[Trial]:
    """Return the trials of `count` seeds from `seed` on."""
    return [Trial("regions", s, (target or TARGETS[s % 16 == 15],)) for s in range(seed, seed + count)]


def fuzz(selected_trials: Sequence[Trial], jobs: int) -> Iterator[TrialOutcome[Trial]]:
    """Yield the outcome of each trial, with a description of a failure or None."""
    return trial_outcomes(run, selected_trials, jobs, TIMEOUT_SECONDS)
