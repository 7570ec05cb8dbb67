"""Programs with data-dependent sizes that compile to one program: kernels count, and the program continues with the count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import dlc
from dlc import numpy as dnp
from dlc.compiler import Program, compile
from dlc.errors import DlcError, ModelError, ShapeError
from dlc.frontend.onnx import import_model
from dlc.measure.timeline import TimelineRecorder
from dlc.options import Options
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.cpu.program import NativeProgram
from dlc.runtime.models.model import Model
from dlc.runtime.program.host_program import Launch, SetSize
from tests.runtime.models.test_saved_models import alone
from tests.targets import TARGETS

# Rows of `x` whose sum is positive, and the places in these of what is more than their mean; as many are decided again.
ROWS = """
<ir_version: 10, opset_import: ["" : 21]>
rows (float[n, 6] x) => (float[k, 6] kept, int64[2, m] above, float[p] large, float total)
{
    zero = Constant<value_float = 0.0>()
    one = Constant<value_ints = [1]>()
    sums = ReduceSum<keepdims = 0>(x, one)
    positive = Greater(sums, zero)
    kept = Compress<axis = 0>(x, positive)
    mean = ReduceMean(kept)
    more = Greater(kept, mean)
    above = NonZero(more)
    minus = Constant<value_ints = [-1]>()
    flags = Reshape(more, minus)
    flat = Compress(kept, flags)
    large = Relu(flat)
    total = ReduceSum<keepdims = 0>(large)
}
"""
# Subtract one from the state until fewer than three elements are not 0; each iteration binds a size.
LOOP = """
<ir_version: 10, opset_import: ["" : 21]>
loop (float[n] s) => (float[n] last, int64[1, m] left)
{
    nothing = Constant<value_int = 100>()
    yes = Constant<value = bool {1}>()
    last = Loop(nothing, yes, s) <body = body (int64 i, bool c, float[n] old) => (bool on, float[n] new) {
        places = NonZero(old)
        taken = Gather(old, places)
        sum = ReduceSum<keepdims = 0>(taken)
        two = Constant<value_float = 2.0>()
        on = Greater(sum, two)
        step = Constant<value_float = 1.0>()
        less = Sub(old, step)
        new = Relu(less)
    }>
    left = NonZero(last)
}
"""
# Either branch binds a size, then the code after the branch does.
BRANCHES = """
<ir_version: 10, opset_import: ["" : 21]>
branches (float[n] x, bool up) => (float total, int64[1, m] above)
{
    zero = Constant<value_float = 0.0>()
    total = If(up) <
        then_branch = a () => (float p) { more = Greater(x, zero) some = Compress(x, more) p = ReduceSum<keepdims = 0>(some) },
        else_branch = b () => (float q) { less = Less(x, zero) rest = Compress(x, less) q = ReduceSum<keepdims = 0>(rest) }
    >
    large = Greater(x, total)
    above = NonZero(large)
}
"""
# The nonzero elements.
FEW = """
<ir_version: 10, opset_import: ["" : 21]>
few (float[n] x) => (float[1, k] y) { places = NonZero(x) y = Gather(x, places) }
"""


# Sizes that are values of the data: numbers of elements, rows and columns, and which.
NUMBERS = """
<ir_version: 10, opset_import: ["" : 21]>
numbers (float[n, 6] x, int64[2] k) => (
    float[r, l] mask, float[a, b, 6] rows, float[c, d] cut, float[n, t] best, int64[u] back, float[n, h] hot, float[v, w] again
)
{
    zero = Constant<value_int = 0>()
    one = Constant<value_int = 1>()
    minus = Constant<value_int = -2>()
    nil = Constant<value_ints = [0]>()
    ones = Constant<value_ints = [1]>()
    two = Constant<value_ints = [2]>()
    six = Constant<value_ints = [6]>()
    both = Constant<value_ints = [0, 1]>()
    most = ReduceMax<keepdims = 0>(k)
    places = Range(zero, most, one)
    column = Unsqueeze(k, ones)
    shorter = Less(places, column)
    mask = Cast<to = 1>(shorter)
    size = Shape<start = 0, end = 1>(x)
    length = Unsqueeze(most, nil)
    shape = Concat<axis = 0>(size, length, six)
    thick = Unsqueeze(x, ones)
    wide = Expand(thick, shape)
    weights = ConstantOfShape<value = float[1] {2.0}>(length)
    tall = Unsqueeze(weights, ones)
    rows = Mul(wide, tall)
    first = Gather(k, nil)
    second = Gather(k, ones)
    ends = Concat<axis = 0>(second, first)
    cut = Slice(x, k, ends, both)
    best, where = TopK(x, first)
    back = Range(most, zero, minus)
    depth = Add(second, ones)
    values = Constant<value = float[2] {0.5, 3.0}>()
    count = Squeeze(size)
    numbers = Range(zero, count, one)
    hot = OneHot(numbers, depth, values)
    repeats = Concat<axis = 0>(ones, second)
    again = Tile(x, repeats)
}
"""
# Differences of the elements above a limit, and their products with equally many elements below another.
NEIGHBOURS = """
<ir_version: 10, opset_import: ["" : 21]>
neighbors (float[n] x, float limit) => (float[d] steps, float[p] products, float[f] first)
{
    above = Greater(x, limit)
    below = Less(x, limit)
    some = Compress(x, above)
    rest = Compress(x, below)
    nil = Constant<value_ints = [0]>()
    one = Constant<value_ints = [1]>()
    minus = Constant<value_ints = [-1]>()
    five = Constant<value_ints = [5]>()
    far = Constant<value_ints = [9223372036854775807]>()
    later = Slice(some, one, far)
    earlier = Slice(some, nil, minus)
    steps = Sub(later, earlier)
    first = Slice(rest, nil, five)
    products = Mul(some, rest)
}
"""


@cache
def compiled(text: str, target: str, size: int | None = None) -> Model:
    imported = import_model(onnx.parser.parse_model(text), None if size is None else {"x": (size,)})
    return compile(Program(imported.module, imported.weights, "counts"), target, Options(num_threads=1, workers=1))


def expected_rows(x: NDArray[Any]) -> list[NDArray[Any]]:
    kept = x[x.sum(1) > 0]
    more = kept > (kept.mean() if kept.size else np.nan)
    return [kept, np.array(np.nonzero(more), np.int64), np.maximum(kept[more], 0), np.maximum(kept[more], 0).sum()]


def expected_loop(s: NDArray[Any]) -> list[NDArray[Any]]:
    for _ in range(100):
        on, s = s.sum() > 2, np.maximum(s - 1, 0)
        if not on:
            break
    return [s, np.array(np.nonzero(s), np.int64)]


def rows(n: int, seed: int = 0) -> NDArray[Any]:
    return np.random.default_rng(seed).standard_normal((n, 6)).astype(np.float32)


def check(results: Sequence[Any], expected: Sequence[NDArray[Any]]) -> None:
    for k, (got, want) in enumerate(zip(results, expected, strict=True)):
        np.testing.assert_allclose(np.asarray(got), want, 1e-5, 1e-6, err_msg=f"result {k}")
        assert np.asarray(got).shape == want.shape


@pytest.mark.parametrize("target", TARGETS)
def test_sizes_that_depend_on_data_dependent_sizes(target: str) -> None:
    model = compiled(ROWS, target)
    for x in (rows(5), rows(40, 1), rows(3), abs(rows(4)), -abs(rows(4)), rows(1), rows(0), rows(300, 2), rows(40, 1)):
        check(list(model(x).values()), expected_rows(x))


@pytest.mark.parametrize("target", TARGETS)
def test_a_size_that_is_bound_in_each_iteration(target: str) -> None:
    model = compiled(LOOP, target)
    for s in ([3, 0, 1.5, 2], [0, 0], [9], [], [5, 4.5, 3, 2, 1, 0.5, 3, 3, 3]):
        check(list(model(np.array(s, np.float32)).values()), expected_loop(np.array(s, np.float32)))


def expected_numbers(x: NDArray[Any], k: NDArray[Any]) -> list[NDArray[Any]]:
    a, b = map(int, k)
    return [
        (np.arange(k.max()) < k[:, None]).astype(np.float32), 2 * np.broadcast_to(x[:, None], (len(x), k.max(), 6)),
        x[a:b, b:a], -np.sort(-x, 1)[:, :a], np.arange(k.max(), 0, -2), np.where(np.arange(b + 1) == np.arange(len(x))[:, None], 3, 0.5),
        np.tile(x, (1, b)),
    ]  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
def test_values_that_are_sizes(target: str) -> None:
    model = compiled(NUMBERS, target)
    for n, a, b in ((5, 1, 4), (5, 4, 1), (3, 0, 0), (40, 6, 30), (1, 2, 2), (0, 3, 1)):
        k = np.int64([a, b])
        check(list(model(x=rows(n), k=k).values()), expected_numbers(rows(n), k))
    for k, message in (
        ([7, 1], r"TopK\): k = 7 is out of range for an axis of size 6"),
        ([1, -2], "negative size -[12] in its"),
    ):
        with pytest.raises(DlcError, match=message):
            model(x=rows(4), k=np.int64(k))


@pytest.mark.parametrize("target", TARGETS)
def test_selections_of_equal_length(target: str) -> None:
    """If both selections are equally long, one program serves them; otherwise the error states where the sizes come from."""
    model = compiled(NEIGHBOURS, target)
    for size, limit in ((9, 0), (8, 0), (0, 0), (2, 0), (3, 0.5), (40, 0), (3, 5)):
        x = np.linspace(-1, 1, size, dtype=np.float32)
        some, rest = x[x > limit], x[x < limit]
        if len(some) != len(rest) and 1 not in (len(some), len(rest)):
            with pytest.raises(ShapeError, match=f"{len(some)} against {len(rest)}"):
                model(x, np.float32(limit))
            continue
        check(list(model(x, np.float32(limit)).values()), [np.diff(some), some * rest, rest[:5]])


@pytest.mark.parametrize("target", TARGETS)
def test_only_the_taken_branch_binds_its_sizes(target: str) -> None:
    model = compiled(BRANCHES, target)
    x = np.array([1, -2, 3, 0, 5], np.float32)
    for up in (False, True, False):
        total = x[x > 0].sum() if up else x[x < 0].sum()
        check(list(model(x, np.array(up)).values()), [total, np.array(np.nonzero(x > total), np.int64)])


def test_it_is_one_program() -> None:
    for text, count in ((ROWS, 3), (LOOP, 2), (NUMBERS, 9)):
        artifact = compiled(text, "cpu").artifact
        assert isinstance(artifact, Artifact)
        assert len(artifact.host.data_dependent_sizes) == count


def test_it_is_one_program_of_static_inputs() -> None:
    model = compiled(FEW, "cpu", 5)
    assert isinstance(model.artifact, Artifact)
    for x in ([0, 2, 0, -1, 3], [0, 0, 0, 0, 0], [1, 2, 3, 4, 5]):
        check([model(np.array(x, np.float32))["y"]], [np.array([[n for n in x if n]], np.float32).reshape(1, -1)])


def test_results_do_not_alias() -> None:
    model = compiled(ROWS, "cpu")
    first = model(rows(9))
    before = {name: np.array(value) for name, value in first.items()}
    for n in (9, 50):
        model(rows(n, 5))
    for name, value in first.items():
        np.testing.assert_array_equal(value, before[name])


def test_native_code_binds_sizes_without_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python allocates memory once, for the first and largest count."""
    rows_, loop = compiled(ROWS, "cpu"), compiled(LOOP, "cpu")
    rows_(abs(rows(40)))
    loop(np.full(9, 9, np.float32))
    monkeypatch.setattr(NativeProgram, "_set_size", None)
    for x in (rows(40, 1), -abs(rows(40)), rows(40, 3)):
        check(list(rows_(x).values()), expected_rows(x))
    s = np.array([5, 4.5, 3, 2, 1, 0.5, 3, 3, 3], np.float32)
    check(list(loop(s).values()), expected_loop(s))


def test_a_small_result_does_not_hold_large_memory() -> None:
    model = compiled(FEW, "cpu")
    x = np.ones(100_000, np.float32)
    assert model(x)["y"].shape == (1, 100_000)
    x[5:] = 0
    few = model(x)["y"]
    assert few.shape == (1, 5) and few.base is None


def test_launches_are_recorded_once_if_a_call_restarts() -> None:
    artifact = compiled(ROWS, "cpu").artifact
    assert isinstance(artifact, Artifact)
    launches: list[Launch] = []
    artifact.program(1).run_traced([rows(20)], lambda launch, _: launches.append(launch))
    assert len(launches) == sum(isinstance(i, Launch) for i in artifact.host.instructions)
    assert all(isinstance(size, int) for launch in launches for size in launch.sizes)


def test_tasks_are_recorded_if_a_call_restarts() -> None:
    artifact = compiled(ROWS, "cpu").artifact
    assert isinstance(artifact, Artifact)
    assert min(TimelineRecorder(artifact, [rows(50)], 1).run().launch_seconds) > 0


def test_saved_models_run_without_a_compiler(tmp_path: Path) -> None:
    compiled(ROWS, "cpu").save(tmp_path / "m.dlc")
    for x in (rows(11), -abs(rows(3))):
        check(list(alone(tmp_path / "m.dlc", {"x": x}).values()), expected_rows(x))


def test_a_data_dependent_size_with_a_static_top_k() -> None:
    """The best two of the selected elements: compiled for each number of elements."""
    best = "some = Gather(x, places) two = Constant<value_ints = [2]>() y, i = TopK(some, two)"
    model = compiled(FEW.replace("y = Gather(x, places)", best), "cpu")
    assert not isinstance(model.artifact, Artifact)
    check([model(np.array([0, 3, 1, 0, 2], np.float32))["y"]], [np.array([[3, 2]], np.float32)])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("begin", "end", "step"), [(5, -1, 2), (1, 99, 3), (-1, 2, -2), (5, -1, 1)])
def test_slices_of_a_selection_that_may_be_empty(begin: int, end: int, step: int, target: str) -> None:
    numbers = ("begin", begin), ("end", end), ("axis", 1), ("step", step)
    constants = " ".join(f"{name} = Constant<value_ints = [{number}]>()" for name, number in numbers)
    part = f"some = Gather(x, places) {constants} y = Slice(some, begin, end, axis, step)"
    model = compiled(FEW.replace("y = Gather(x, places)", part), target)
    for count in (0, 1, 4, 5, 6, 7, 20):
        x = np.concatenate([np.zeros(3, np.float32), np.arange(1, count + 1, dtype=np.float32)])
        check([model(x)["y"]], [x[None, x > 0][:, begin:end:step]])


# Up to, and around, as many as are counted of `few`, or as `few` is long, less three in one place.
UP_TO = """<ir_version: 10, opset_import: ["" : 19]> g (float[f] few, float[n, 5] x) => ({outputs}) {{
    one = Constant<value_ints = [1]>()
    three = Constant<value_ints = [3]>()
    {count}
    less = Sub(count, three)
    {part}
}}"""
COUNTS = {
    "counted": "places = NonZero(few) shape = Shape(places) count = Gather(shape, one)",
    "long": "count = Shape(few)",
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("count", COUNTS)
def test_padding_by_symbolic_sizes(count: str, target: str) -> None:
    modes: list[Any] = ["constant", "edge", "reflect", "wrap"]
    pads = "nil = Constant<value_ints = [0]>() pads = Concat<axis = 0>(count, one, less, nil)"
    part = " ".join([pads, *(f'{mode} = Pad<mode = "{mode}">(x, pads)' for mode in modes)])
    outputs = ", ".join(f"float[r, c] {mode}" for mode in modes)
    model = compiled(UP_TO.format(count=COUNTS[count], part=part, outputs=outputs), target)
    for k, n in ((3, 4), (5, 17), (40, 41)):
        x = np.random.default_rng(k).standard_normal((n, 5), np.float32)
        results = model(np.ones(k, np.float32), x)
        check(list(results.values()), [np.pad(x, ((k, k - 3), (1, 0)), mode) for mode in modes])
    if count == "counted":
        with pytest.raises(DlcError, match="negative size -1 in its pads"):
            model(np.ones(2, np.float32), np.ones((4, 5), np.float32))


@pytest.mark.parametrize("target", TARGETS)
def test_slices_with_data_dependent_bounds(target: str) -> None:
    """The bounds are clamped to the axis, whose size is static while the bound is data-dependent; -0 is the front."""
    bounds = [("one", "count"), ("count", "one"), ("less", "count"), ("one", "less"), ("minus", "count"), ("one", "minus")]
    part = "minus = Neg(count) " + " ".join(f"y{i} = Slice(x, {start}, {stop}, one)" for i, (start, stop) in enumerate(bounds))
    outputs = ", ".join(f"float[r{i}, c{i}] y{i}" for i in range(len(bounds)))
    model = compiled(UP_TO.format(count=COUNTS["counted"], part=part, outputs=outputs), target)
    x = np.arange(10, dtype=np.float32).reshape(2, 5)
    for k in (0, 1, 2, 3, 4, 5, 6, 20):
        values = {"one": 1, "count": k, "less": k - 3, "minus": -k}
        results = model(np.ones(k, np.float32), x)
        check(list(results.values()), [x[:, values[start] : values[stop]] for start, stop in bounds])


def test_top_k_of_an_empty_axis() -> None:
    """A data-dependent number of elements of an empty axis, which must be 0."""
    text = """<ir_version: 9, opset_import: ["" : 20]> g (float[0] x, int64[1] k) => (float[q] y) { y, i = TopK(x, k) }"""
    model = compiled(text, "reference")
    assert np.asarray(model(np.zeros(0, np.float32), np.int64([0]))["y"]).shape == (0,)
    with pytest.raises(DlcError, match="k = 1 is out of range for an axis of size 0"):
        model(np.zeros(0, np.float32), np.int64([1]))


THREE_IN_EACH_TURN = """<ir_version: 9, opset_import: ["" : 20]> g (float[n] x, int64 k) => (float t) <float[3] three = {1, 2, 3}> {
    yes = Constant<value_int = 1>()
    go = Cast<to = 9>(yes)
    first = Constant<value_float = 0.0>()
    t = Loop(k, go, first) <body = b (int64 i, bool c, float s) => (bool on, float next) {
        limit = Cast<to = 1>(i)
        large = Greater(x, limit)
        some = Compress(x, large)
        more = Add(some, three)
        sum = ReduceSum<keepdims = 0>(more)
        next = Add(s, sum)
        on = Identity(c)
    }>
}"""


def test_sizes_are_checked_in_each_iteration() -> None:
    model = compiled(THREE_IN_EACH_TURN, "cpu")
    for x in ([5, 6, 7], [9, 8, 7, 0]):
        np.testing.assert_allclose(np.asarray(model(np.float32(x), np.int64(2))["t"]), 2 * (sum(x) + 6))
    with pytest.raises(ShapeError, match=r"shapes \(2,\) and \(3,\) do not broadcast"):
        model(np.float32([0.5, 1.5, 2.5]), np.int64(2))


def test_corrupted_counts_are_refused() -> None:
    """The header of a file is validated: here the count refers to another value."""
    artifact = compiled(ROWS, "cpu").artifact
    assert isinstance(artifact, Artifact)
    changed = tuple(replace(i, ref=(2, 0)) if isinstance(i, SetSize) else i for i in artifact.host.instructions)
    damaged = replace(artifact, host=replace(artifact.host, instructions=changed))
    with pytest.raises(ModelError, match="the data-dependent size"):
        damaged.model()(np.full((2, 6), -1, np.float32))
    twice = tuple(replace(i, symbol="n") if isinstance(i, SetSize) else i for i in artifact.host.instructions)
    with pytest.raises(ModelError, match="defined twice"):
        replace(artifact, host=replace(artifact.host, instructions=twice)).model()


@pytest.mark.parametrize("function", [lambda x: x * 2 + 1, lambda x: x[x > 0] * 2], ids=["open", "counted"])
def test_tasks_of_dynamic_vectors_have_a_minimum_length(function: Any) -> None:
    """Tasks have a minimum length: short ones would have no full vectors and cost synchronization."""
    x = np.random.default_rng(0).standard_normal(100_000, np.float32)
    lowered = dlc.jit(dynamic={"x": {0: "N"}}, num_threads=1, cache=False)(function).lower(x)
    artifact = lowered.compile().artifact
    assert isinstance(artifact, Artifact)
    found = TimelineRecorder(artifact, [x], 1).run()
    assert len(found.tasks) < 100


def test_gradients_that_need_static_sizes_next_to_selections() -> None:
    def function(x: Any) -> Any:
        return dlc.grad(lambda v: (dnp.pad(v, (2, 0), mode="edge") ** 2).sum())(x), x[x > 0]

    compiled = dlc.jit(target="reference", dynamic={"x": {0: "N"}}, cache=False)(function)
    for n in (3, 5):
        gradient, selected = compiled(np.ones(n, np.float32))
        assert gradient.tolist() == [6, *[2] * (n - 1)]
        assert selected.tolist() == [1] * n


def test_requirements_of_unused_operations_next_to_gradients() -> None:
    def function(x: Any) -> Any:
        rows = dnp.reshape(x, (2, -1)).shape[0]
        return dlc.grad(lambda v: (v * rows).sum())(x), x[x > 0]

    compiled = dlc.jit(target="reference", dynamic={"x": {0: "N"}}, cache=False)(function)
    assert compiled(np.ones(4, np.float32))[0].tolist() == [2] * 4
    with pytest.raises(ShapeError, match="5 elements"):
        compiled(np.ones(5, np.float32))


def test_a_size_of_zero_must_equal_another_size() -> None:
    def function(x: Any) -> Any:
        selected = x[x > 2]
        return dnp.ones((selected.shape[0],))[: selected.shape[0] - 1] @ selected

    compiled = dlc.jit(num_threads=1, dynamic={"x": {0: "N"}}, cache=False)(function)
    with pytest.raises(ShapeError, match="contracted sizes differ"):
        compiled(np.array([3, 0, 0], np.float32))


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_a_selection_of_which_only_the_size_is_used_next_to_a_gradient(target: str) -> None:
    def function(x: Any) -> Any:
        return dlc.grad(lambda v: (v * v).sum())(x), dnp.zeros((x[x > 0].shape[0] // 2 + 1,))

    gradient, zeros = dlc.jit(target=target, num_threads=1, cache=False)(function)(np.array([1, -1, 2, 3], np.float32))
    assert gradient.tolist() == [2, -2, 4, 6]
    assert zeros.shape == (2,)
