"""`check-indices`: an out-of-bounds index is an error that names it; provably in-bounds indices are not checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto as T
from onnx import helper as h

import dlc
import dlc.numpy as dnp
from dlc.compiler import Program as Compiled
from dlc.compiler import compile
from dlc.dialects import dl
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import element_type
from dlc.errors import DlcError, ModelError
from dlc.frontend.onnx import import_model
from dlc.ir import SSAValue, i8, i64
from dlc.options import Options
from dlc.passes.dl.movement.check_indices import CheckIndicesPass
from tests.frontend.onnx.build import model
from tests.passes.programs import Program, program
from tests.targets import TARGETS

X = np.arange(15, dtype=np.float32).reshape(5, 3)


def count_checks(p: Program) -> int:
    """Return how many checks the pass inserts; the result must not change."""
    p.apply(CheckIndicesPass())
    assert not any(isinstance(op, dl.IndexedOp) and op.is_checked for op in p.main.walk())
    return sum(isinstance(op, dl.IfOp) for op in p.main.walk())


def gather_rows(indices: Callable[[DlBuilder, SSAValue], SSAValue], given: Any) -> Program:
    """Gather rows at indices that are computed from an input."""
    return program(lambda b, x, i: [b(dl.GatherOp, x, indices(b, i), axis=0, checked=True)], X, np.asarray(given))


KNOWN: dict[str, Callable[[DlBuilder, SSAValue], SSAValue]] = {
    "argmax": lambda b, i: b(dl.ArgmaxOp, b(dl.BroadcastToOp, i, shape=(5, 4)), axis=0),
    "argsort": lambda b, i: b(dl.ArgsortOp, b(dl.SliceOp, i, starts=(0, 0), limits=(1, 4), strides=(1, 1)), axis=1),
    "clipped": lambda b, i: b(dl.MinimumOp, b(dl.MaximumOp, i, b.scalar(-5, like=i)), b.scalar(4, like=i)),
    "remainder": lambda b, i: b(dl.CastOp, b(dl.ModOp, i, b.scalar(5, like=i)), to=i8),
    "counted": lambda b, i: b(dl.SubOp, b(dl.IotaOp, size=(5,), to=i64, start=4, step=-1), b.scalar(5, like=i)),
}


@pytest.mark.parametrize("name", KNOWN)
def test_provably_in_bounds_indices_are_not_checked(name: str) -> None:
    assert count_checks(gather_rows(KNOWN[name], [[3, 9, -7, 0]])) == 0


def test_wrapping_indices_are_checked() -> None:
    narrow = gather_rows(
        lambda b, i: b(dl.AddOp, b(dl.MinimumOp, i, b.scalar(4, like=i)), b.scalar(-4, like=i)), np.int8([4, 3])
    )
    assert count_checks(narrow) == 1
    unsigned = gather_rows(
        lambda b, i: b(dl.CastOp, b(dl.MinimumOp, i, b.scalar(4, like=i)), to=element_type(np.dtype("u8"))), [3]
    )
    assert count_checks(unsigned) == 1


def test_int8_indices_of_a_long_axis_are_not_checked() -> None:
    long = np.zeros((200, 2), np.float32)
    for dtype, count in ((np.uint8, 1), (np.int8, 0)):
        p = program(lambda b, x, i: [b(dl.GatherOp, x, i, axis=0, checked=True)], long, dtype([1, 127]))
        assert count_checks(p) == count


def test_checked_indices_are_in_bounds_later() -> None:
    def adding(build: DlBuilder, x: SSAValue, i: SSAValue) -> list[SSAValue]:
        return [build(dl.ScatterRowsOp, x, i, x, mode="add", checked=True)]

    written = program(adding, X, np.arange(5))
    written.apply(CheckIndicesPass())
    assert [op.in_bounds is not None for op in written.main.walk() if isinstance(op, dl.ScatterRowsOp)] == [True]
    for made in (gather_rows(lambda b, i: i, [3, 0]), gather_rows(KNOWN["argmax"], [[3, 9, -7, 0]])):
        made.apply(CheckIndicesPass())
        assert [op.in_bounds is not None for op in made.main.walk() if isinstance(op, dl.GatherOp)] == [True]
    clipped = program(lambda b, x, i: [b(dl.GatherOp, x, i, axis=0)], X, np.array([7, -9]))
    clipped.apply(CheckIndicesPass())
    assert [op.in_bounds for op in clipped.main.walk() if isinstance(op, dl.GatherOp)] == [None]


@pytest.mark.parametrize("count", [1, 3, 4, 7, 9])
@pytest.mark.parametrize("target", TARGETS)
def test_any_number_of_indices(target: str, count: int) -> None:
    places = np.random.default_rng(count).integers(-15, 15, count)
    got = dlc.jit(dnp.take, target=target)(X, places)
    np.testing.assert_array_equal(np.asarray(got), np.take(X, places))


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, np.uint32, np.uint64])
@pytest.mark.parametrize("target", TARGETS)
def test_out_of_bounds_error_names_the_index(target: str, dtype: Any) -> None:
    compiled = dlc.jit(lambda x, i: x[i], target=target)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    for index in sorted({low, low + 1, max(low, -6), max(low, -5), -1 if low else 1, 0, 4, 5, 9, high - 4, high}):
        indices = np.array([0, index, 1], dtype)
        if -5 <= index < 5:
            np.testing.assert_array_equal(np.asarray(compiled(X, indices)), X[indices])
            continue
        # Large unsigned indices are reported by their bits, as by NumPy.
        shown = index if index < 1 << 63 else index - (1 << 64)
        with pytest.raises(DlcError, match=rf"test_check_indices\.py:\d+: index {shown} is outside axis 0 of size 5"):
            compiled(X, indices)


def gather_both(x: Any, i: Any, j: Any) -> Any:
    return x[i, j], dnp.take_along_axis(x, j[None], axis=0)


@pytest.mark.parametrize("target", TARGETS)
def test_each_axis_is_checked_separately(target: str) -> None:
    compiled, i, j = dlc.jit(gather_both, target=target), np.array([4, -5, 0]), np.array([2, -3, 1])
    for got, expected in zip(compiled(X, i, j), (X[i, j], X[j, [0, 1, 2]][None]), strict=True):
        np.testing.assert_array_equal(np.asarray(got), expected)
    with pytest.raises(DlcError, match="index 3 is outside axis 1 of size 3"):
        compiled(X, i, np.array([2, 3, 1]))
    with pytest.raises(DlcError, match="index -6 is outside axis 0 of size 5"):
        compiled(X, np.array([4, -6, 0]), j)


def scatter_all(x: Any, i: Any, j: Any) -> Any:
    """Update rows, elements and a slice of columns."""
    return dnp.at(x)[i].add(1), dnp.at(x)[i, j].set(2), dnp.at(x)[1:, j].max(30)


@pytest.mark.parametrize("target", TARGETS)
def test_out_of_bounds_scatter_is_an_error(target: str) -> None:
    compiled, i, j = dlc.jit(scatter_all, target=target), np.array([4, -5, 0]), np.array([2, -3, 1])
    for got, expected in zip(compiled(X, i, j), scatter_all(X, i, j), strict=True):
        np.testing.assert_array_equal(np.asarray(got), expected)
    for wrong, message in (((i - 1, j), "index -6 is outside axis 0 of size 5"), ((i, j + 1), "index 3 is outside axis 1")):
        with pytest.raises(DlcError, match=message):
            compiled(X, *wrong)


def test_out_of_bounds_scatter_in_one_batch_element_is_an_error() -> None:
    def gradient(x: Any, i: Any, j: Any) -> Any:
        """Derivatives take a write to several axes apart."""
        return dlc.grad(lambda x: (dnp.at(x)[i, j].add(x[0, 0]) * dnp.at(x)[i].set(0)).sum())(x)

    compiled, x, j = dlc.jit(dlc.vmap(gradient)), np.stack([X, X]), np.array([[0], [1]])
    np.testing.assert_array_equal(compiled(x, j, j), np.stack([gradient(*row) for row in zip(x, j, j, strict=True)]))
    with pytest.raises(DlcError, match="index 7 is outside axis 0 of size 5"):
        compiled(x, j + 6 * j, j)


def follow_indices(x: Any, steps: Any) -> Any:
    """Return the sum of the rows that a walk visits, and where it ends."""

    def step(state: Any, move: Any) -> Any:
        place, total = state
        return (place + move, total + x[place]), None

    return dlc.lax.scan(step, (np.int64(0), np.zeros(3, np.float32)), steps)[0]


@pytest.mark.parametrize("target", TARGETS)
def test_each_loop_step_is_checked(target: str) -> None:
    compiled = dlc.jit(follow_indices, target=target)
    moves = np.array([1, 1, 1, 1, -4] * 9)
    place, total = compiled(X, moves)
    assert int(place) == 0
    np.testing.assert_array_equal(np.asarray(total), 9 * X.sum(0))
    moves[31] = 4
    with pytest.raises(DlcError, match="index 5 is outside axis 0 of size 5"):
        compiled(X, moves)


@pytest.mark.parametrize("target", TARGETS[:2])
def test_inactive_batch_elements_are_not_checked(target: str) -> None:
    def lane(row: Any, k: Any) -> Any:
        return dlc.lax.cond(k < 4, lambda: row[k], lambda: dnp.float32(-1))

    compiled = dlc.jit(dlc.vmap(lane), target=target)
    np.testing.assert_array_equal(np.asarray(compiled(X, np.array([0, 2, -1, 9, 4]))), [0, 5, 8, -1, -1])
    with pytest.raises(DlcError, match="index 3 is outside"):
        compiled(X, np.array([0, 3, -1, 9, 4]))


@pytest.mark.parametrize("target", TARGETS)
def test_error_names_the_onnx_node(target: str) -> None:
    nodes = [
        h.make_node("Gather", ["x", "i"], ["a"], name="rows{}"),
        h.make_node("GatherElements", ["x", "j"], ["b"], name="cells", axis=-1),
        h.make_node("GatherND", ["x", "k"], ["c"], name="places"),
        h.make_node("ScatterElements", ["x", "l", "u"], ["d"], name="written", axis=1, reduction="add"),
        h.make_node("ScatterND", ["x", "m", "v"], ["e"], name="rows"),
    ]
    shapes = {"x": [5, 3], "i": ["n"], "j": [5, 1], "k": [2, 2], "l": [2, 1], "m": [2, 1], "u": [2, 1], "v": [2, 3]}
    made = model(nodes, shapes, list("abcde"), dtypes={"i": T.INT32} | dict.fromkeys("jklm", T.INT64))
    imported = import_model(made, {"i": (2,)})
    compiled = compile(Compiled(imported.module, imported.weights), target, Options(num_threads=1, workers=1))
    good = {"x": X, "i": np.int32([-5, 4]), "j": np.full((5, 1), -3), "k": np.array([[4, 2], [-5, -3]])}
    good |= {"l": np.array([[2], [-3]]), "m": np.array([[4], [-5]]), "u": X[:2, :1], "v": X[:2]}
    compiled.run_unchecked(list(good.values()))
    wrong = {
        "i": (np.int32([0, 5]), r"node 'rows\{\}': index 5 is outside axis 0 of size 5"),
        "j": (np.full((5, 1), 3), "node 'cells': index 3 is outside axis 1 of size 3"),
        "k": (np.array([[4, 2], [0, -4]]), "node 'places': index -4 is outside axis 1 of size 3"),
        "l": (np.array([[2], [3]]), "node 'written': index 3 is outside axis 1 of size 3"),
        "m": (np.array([[4], [-6]]), "node 'rows': index -6 is outside axis 0 of size 5"),
    }
    for name, (value, message) in wrong.items():
        with pytest.raises(DlcError, match=message):
            compiled.run_unchecked(list({**good, name: value}.values()))


SCATTERED = h.make_node("ScatterND", ["x", "k", "u"], ["c"], name="places")


def test_constant_indices_are_checked_at_compile_time() -> None:
    for node in (h.make_node("GatherND", ["x", "k"], ["c"], name="places"), SCATTERED):
        made = model([node], {"x": [5, 3], "u": [1]}, ["c"], weights={"k": np.array([[4, 3]])})
        with pytest.raises(ModelError, match=r"node 'places' .*index 3 is outside axis 1 of size 3"):
            import_model(made)
