"""Expansion of `dl.vmap`: unbatched values, loops and branches, and unsupported ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from dlc.dialects import dl
from dlc.dialects.dl.base import shape_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.registry import make_context
from dlc.errors import DlcError, ShapeError
from dlc.instrument.verify import verify
from dlc.ir import Block, FileLineColLoc, IntAttr, SSAValue, StringAttr, f32, parse_module
from dlc.passes.batching.expand_vmap import expand_vmap
from tests.passes.programs import Array, Program, Writer, program, randoms

Function = Callable[..., "SSAValue | Sequence[SSAValue]"]


def block_of(function: Function, types: Sequence[object]) -> Block:
    """Return the body that a function of a builder and arguments emits."""
    block = Block(arg_types=types)  # type: ignore[arg-type]
    results = function(DlBuilder(block), *block.args)
    block.add_op(dl.YieldOp([results] if isinstance(results, SSAValue) else list(results)))
    return block


def vmapped(function: Function, *inputs: Array, in_axes: Sequence[int], out_axes: Sequence[int]) -> Program:
    """Return a program that maps a function over the batch, not expanded."""
    size = next(x.shape[a] for x, a in zip(inputs, in_axes, strict=True) if a >= 0)

    def body(b: Writer, *arguments: SSAValue) -> Sequence[SSAValue]:
        lane = [dl.transformations.remove_batch_axis(v, a) for v, a in zip(arguments, in_axes, strict=True)]
        op = dl.VmapOp.of(arguments, block_of(function, lane), size, in_axes, out_axes)
        return b.insert(op).results

    return program(body, *inputs)


def expanded(p: Program) -> Program:
    for op in list(p.module.walk()):
        if isinstance(op, dl.VmapOp):
            expand_vmap(op)
    verify(p.module)
    return p


def floats(*shape: int) -> Array:
    return randoms(shape)[0]


def test_unbatched_values_are_computed_once() -> None:
    def function(build: DlBuilder, x: SSAValue, w: SSAValue) -> SSAValue:
        return build(dl.MatmulOp, x, build(dl.ExpOp, w))

    x, w = floats(5, 2, 3), floats(3, 4)
    p = expanded(vmapped(function, x, w, in_axes=[0, -1], out_axes=[0]))
    assert p.ops == ["exp", "matmul"]
    assert shape_of(next(op for op in p.main.walk() if isinstance(op, dl.ExpOp)).result) == (3, 4)
    np.testing.assert_allclose(p.run()[0], x @ np.exp(w), rtol=1e-5)


@pytest.mark.parametrize(
    ("shapes", "in_axes", "ops"),
    [
        # A row or column per batch element times an unbatched matrix is a single matrix product.
        (((7, 4), (4, 5)), [0, -1], ["dot_general"]),
        (((3, 4), (7, 4)), [-1, 0], ["dot_general"]),
        (((7, 3, 4), (4, 5)), [0, -1], ["matmul"]),
        (((3, 4), (7, 4, 5)), [-1, 0], ["matmul"]),
        (((7, 4), (7, 4)), [0, 0], ["dot_general"]),
        (((2, 7, 3, 4), (7, 4, 5)), [1, 0], ["transpose", "reshape", "matmul"]),
    ],
)
def test_products(shapes: Sequence[tuple[int, ...]], in_axes: list[int], ops: list[str]) -> None:
    a, c = randoms(*shapes)
    p = expanded(vmapped(lambda b, x, y: b(dl.MatmulOp, x, y), a, c, in_axes=in_axes, out_axes=[0]))
    assert p.ops == ops
    lanes = [[x if axis < 0 else x.take(k, axis) for x, axis in zip((a, c), in_axes, strict=True)] for k in range(7)]
    np.testing.assert_allclose(p.run()[0], np.stack([np.matmul(x, y) for x, y in lanes]), rtol=1e-5, atol=1e-5)


def test_batched_result_needs_an_out_axis() -> None:
    def function(build: DlBuilder, x: SSAValue) -> list[SSAValue]:
        return [build.scalar(1.0, like=x), build(dl.NegOp, x)]

    p = expanded(vmapped(function, floats(3, 2), in_axes=[0], out_axes=[-1, 1]))
    assert [r.shape for r in p.run()] == [(), (2, 3)]
    p = vmapped(function, floats(3, 2), in_axes=[0], out_axes=[-1, -1])
    for op in p.module.walk():
        op.location = FileLineColLoc(StringAttr("/home/you/model.py"), IntAttr(12), IntAttr(0))
    with pytest.raises(ShapeError, match=r"model.py:12: dlc.vmap: output 1 is batched .batch size 3.*out_axes"):
        expanded(p)


def test_nested_vmap() -> None:
    """Σ of products of all pairs: one element of the outer batch has the whole inner batch."""

    def outer(build: DlBuilder, x: SSAValue, ys: SSAValue) -> SSAValue:
        inner = block_of(lambda c, y: c(dl.MulOp, x, y), [tensor_type((), f32)])
        return build.insert(dl.VmapOp.of([ys], inner, 4, [0], [0])).results[0]

    x, y = floats(3), floats(4)
    p = vmapped(outer, x, y, in_axes=[0, -1], out_axes=[0])
    (first, second) = [op for op in p.module.walk() if isinstance(op, dl.VmapOp)]
    expand_vmap(second)
    expand_vmap(first)
    verify(p.module)
    np.testing.assert_allclose(p.run()[0], np.outer(x, y), rtol=1e-6)


# Loops and branches. `@main` is the unbatched function; arguments and results are batched along axis 0.


def expanded_vmap(text: str, *inputs: Array, in_axes: Sequence[int] | None = None) -> Program:
    """Map a function, given as text, over the batch and expand it."""
    module = parse_module(make_context(), text)
    (main,) = module.ops
    block = main.regions[0].detach_block(0)
    last = block.last_op
    assert last is not None
    results = list(last.operands)
    last.detach()
    last.erase()
    block.add_op(dl.YieldOp(results))
    axes = in_axes if in_axes is not None else [0 for _ in inputs]
    size = next(len(x) for x, a in zip(inputs, axes, strict=True) if a >= 0)

    def body(b: Writer, *arguments: SSAValue) -> Sequence[SSAValue]:
        return b.insert(dl.VmapOp.of(arguments, block, size, axes, [0 for _ in results])).results

    return expanded(program(body, *inputs))


COUNT_DOWN = """
func.func @main(%n: tensor<i64>, %x: tensor<2xf32>) -> (tensor<i64>, tensor<2xf32>) {
  %zero = dl.constant {value = dense<0> : tensor<i64>} : () -> tensor<i64>
  %one = dl.constant {value = dense<1> : tensor<i64>} : () -> tensor<i64>
  %begin = dl.less %zero, %n : (tensor<i64>, tensor<i64>) -> tensor<i1>
  %m, %y = dl.while %begin, %n, %x : (tensor<i1>, tensor<i64>, tensor<2xf32>) -> (tensor<i64>, tensor<2xf32>) {
  ^bb0(%k: tensor<i64>, %s: tensor<2xf32>):
    %next = dl.sub %k, %one : (tensor<i64>, tensor<i64>) -> tensor<i64>
    %sum = dl.add %s, %s : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
    %again = dl.less %zero, %next : (tensor<i64>, tensor<i64>) -> tensor<i1>
    dl.yield %again, %next, %sum : tensor<i1>, tensor<i64>, tensor<2xf32>
  }
  func.return %m, %y : tensor<i64>, tensor<2xf32>
}
"""


def test_while_with_batched_condition() -> None:
    n, x = np.array([3, 0, -2, 1, 5]), floats(5, 2)
    m, y = expanded_vmap(COUNT_DOWN, n, x).run()
    np.testing.assert_array_equal(m, np.minimum(n, 0))
    np.testing.assert_array_equal(y, x * 2.0 ** np.maximum(n, 0)[:, None].astype(np.float32))


def test_unchanged_state_stays_unbatched() -> None:
    text = COUNT_DOWN.replace("dl.yield %again, %next, %sum", "dl.yield %again, %next, %s")
    p = expanded_vmap(text, np.array([3, 0, 1]), floats(2), in_axes=[0, -1])
    (loop,) = [op for op in p.main.walk() if isinstance(op, dl.WhileOp)]
    # The mask of running elements, the counter, and the other state.
    assert [shape_of(a) for a in loop.block.args] == [(3,), (3,), (2,)]
    np.testing.assert_array_equal(p.run()[1], np.stack([p.inputs[1]] * 3))


def test_while_with_unbatched_condition_stays() -> None:
    """Its counter is not batched, and nothing is selected."""
    p = expanded_vmap(COUNT_DOWN, np.array(3), floats(5, 2), in_axes=[-1, 0])
    (loop,) = [op for op in p.main.walk() if isinstance(op, dl.WhileOp)]
    assert [shape_of(a) for a in loop.block.args] == [(), (5, 2)]
    assert not [op for op in p.main.walk() if isinstance(op, dl.SelectOp)]
    m, y = p.run()
    np.testing.assert_array_equal(m, np.zeros(5))
    np.testing.assert_array_equal(y, p.inputs[1] * 8)


# Halves x while it is above the limit, but only if it is finite: halving infinity would never end.
GUARDED = """
func.func @main(%x: tensor<f32>, %limit: tensor<f32>) -> tensor<f32> {
  %large = dl.constant {value = dense<1.000000e+30> : tensor<f32>} : () -> tensor<f32>
  %half = dl.constant {value = dense<5.000000e-01> : tensor<f32>} : () -> tensor<f32>
  %finite = dl.less %x, %large : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %y = dl.if %finite : (tensor<i1>) -> (tensor<f32>) {
    %begin = dl.less %limit, %LOOP : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %z = dl.while %begin, %LOOP : (tensor<i1>, tensor<f32>) -> (tensor<f32>) {
    ^bb0(%s: tensor<f32>):
      %next = dl.mul %s, %half : (tensor<f32>, tensor<f32>) -> tensor<f32>
      %again = dl.less %limit, %next : (tensor<f32>, tensor<f32>) -> tensor<i1>
      dl.yield %again, %next : tensor<i1>, tensor<f32>
    }
    dl.yield %z : tensor<f32>
  } {
    dl.yield %x : tensor<f32>
  }
  func.return %y : tensor<f32>
}
"""


def test_while_ignores_inactive_elements() -> None:
    x = np.float32([8, np.inf, 0.25, 3])
    (y,) = expanded_vmap(GUARDED.replace("%LOOP", "%x"), x, np.float32(1), in_axes=[0, -1]).run()
    np.testing.assert_array_equal(y, np.float32([1, np.inf, 0.25, 0.75]))


def test_unbatched_while_starts_only_for_active_elements() -> None:
    """The loop depends on the limit alone, and would never end."""
    text = GUARDED.replace("%LOOP", "%limit").replace("dl.less %limit, %limit", "dl.less_equal %limit, %limit")
    text = text.replace("dl.less %limit, %next", "dl.less_equal %next, %limit")
    x = np.float32([np.inf, np.nan])
    (y,) = expanded_vmap(text, x, np.float32(1), in_axes=[0, -1]).run()
    np.testing.assert_array_equal(y, x)


def test_if_with_unbatched_condition_stays() -> None:
    p = expanded_vmap(FAILS.format(condition="%flag"), floats(4), np.array(False), in_axes=[0, -1])
    assert [op.name for op in p.main.walk() if isinstance(op, dl.IfOp | dl.SelectOp)] == ["dl.if"]
    np.testing.assert_array_equal(p.run()[0], -p.inputs[0])


FAILS = """
func.func @main(%x: tensor<f32>, %flag: tensor<i1>) -> tensor<f32> {{
  %zero = dl.constant {{value = dense<0.000000e+00> : tensor<f32>}} : () -> tensor<f32>
  %positive = dl.less %zero, %x : (tensor<f32>, tensor<f32>) -> tensor<i1>
  %y = dl.if {condition} : (tensor<i1>) -> (tensor<f32>) {{
    dl.fail "no such shape"
  }} {{
    %n = dl.neg %x : (tensor<f32>) -> tensor<f32>
    dl.yield %n : tensor<f32>
  }}
  func.return %y : tensor<f32>
}}
"""


def test_failing_branch_fails_if_any_element_takes_it() -> None:
    text = FAILS.format(condition="%positive")
    for x in (np.float32([-1, -2]), np.float32([-1, 2])):
        p = expanded_vmap(text, x, np.array(True), in_axes=[0, -1])
        if (x < 0).all():
            np.testing.assert_array_equal(p.run()[0], -x)
        else:
            with pytest.raises(DlcError, match="no such shape"):
                p.run()


def test_failing_branch_ignores_inactive_elements() -> None:
    text = FAILS.format(condition="%flag").replace("func.func @main", "func.func @inner")
    inner = text[text.index("%y = dl.if") : text.index("  func.return")]
    text = f"""
    func.func @main(%x: tensor<f32>, %flag: tensor<i1>) -> tensor<f32> {{
      %zero = dl.constant {{value = dense<0.000000e+00> : tensor<f32>}} : () -> tensor<f32>
      %positive = dl.less %zero, %x : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %r = dl.if %positive : (tensor<i1>) -> (tensor<f32>) {{
        {inner}
        dl.yield %y : tensor<f32>
      }} {{
        dl.yield %x : tensor<f32>
      }}
      func.return %r : tensor<f32>
    }}
    """
    x = np.float32([-1, -2])
    np.testing.assert_array_equal(expanded_vmap(text, x, np.array(True), in_axes=[0, -1]).run()[0], x)
    with pytest.raises(DlcError, match="no such shape"):
        expanded_vmap(text, -x, np.array(True), in_axes=[0, -1]).run()


SCAN = """
func.func @main(%h: tensor<f32>, %g: tensor<f32>, %xs: tensor<6xf32>) -> (tensor<f32>, tensor<f32>, tensor<6xf32>, tensor<6xf32>) {
  %a, %b, %ys, %zs = dl.scan %h, %g, %xs {states = 2 : i64, length = array<i64: 6>}
      : (tensor<f32>, tensor<f32>, tensor<6xf32>) -> (tensor<f32>, tensor<f32>, tensor<6xf32>, tensor<6xf32>) {
  ^bb0(%p: tensor<f32>, %q: tensor<f32>, %x: tensor<f32>):
    %s = dl.add %p, %x : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %t = dl.add %q, %q : (tensor<f32>, tensor<f32>) -> tensor<f32>
    dl.yield %s, %t, %s, %t : tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>
  }
  func.return %a, %b, %ys, %zs : tensor<f32>, tensor<f32>, tensor<6xf32>, tensor<6xf32>
}
"""


@pytest.mark.parametrize("in_axes", [[0, -1, 0], [0, -1, -1], [-1, -1, 0], [-1, 0, -1]])
def test_scan_state_is_batched_if_a_step_batches_it(in_axes: list[int]) -> None:
    inputs = [x if a == 0 else x[0] for x, a in zip((floats(4), floats(4), floats(4, 6)), in_axes, strict=True)]
    p = expanded_vmap(SCAN, *inputs, in_axes=in_axes)
    (scan,) = [op for op in p.main.walk() if isinstance(op, dl.ScanOp)]
    first = (4,) if in_axes[0] == 0 or in_axes[2] == 0 else ()
    second = (4,) if in_axes[1] == 0 else ()
    assert [shape_of(a) for a in scan.block.args[:2]] == [first, second]
    h, g, xs = (np.broadcast_to(x if a == 0 else x[None], (4, *x.shape[a + 1 :])) for x, a in zip(inputs, in_axes, strict=True))
    a, b, ys, zs = p.run()
    np.testing.assert_allclose(ys, h[:, None] + np.cumsum(xs, 1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(zs, g[:, None] * 2.0 ** np.arange(1, 7), rtol=1e-6)
    np.testing.assert_array_equal(a, ys[:, -1])
    np.testing.assert_array_equal(b, zs[:, -1])


def test_custom_rules_are_batched() -> None:
    """The cotangent of an unbatched value is the sum over the batch; the op verifies the types of all bodies."""
    vector, number = tensor_type((3,), f32), tensor_type((), f32)

    def product(build: DlBuilder, x: SSAValue, w: SSAValue) -> SSAValue:
        return build(dl.MulOp, x, w)

    def jvp(build: DlBuilder, x: SSAValue, w: SSAValue, dx: SSAValue, dw: SSAValue) -> list[SSAValue]:
        return [product(build, x, w), build(dl.AddOp, build(dl.MulOp, dx, w), build(dl.MulOp, x, dw))]

    def forward(build: DlBuilder, x: SSAValue, w: SSAValue) -> list[SSAValue]:
        return [product(build, x, w), x, w]

    def backward(build: DlBuilder, x: SSAValue, w: SSAValue, c: SSAValue) -> list[SSAValue]:
        return [build(dl.MulOp, c, w), build(dl.ReduceSumOp, build(dl.MulOp, c, x), axes=(0,))]

    def function(build: DlBuilder, x: SSAValue, w: SSAValue) -> list[SSAValue]:
        one = dl.CustomJvpOp.of([x, w], block_of(product, [vector, number]), block_of(jvp, [vector, number] * 2))
        bodies = [block_of(product, [vector, number]), block_of(forward, [vector, number])]
        other = dl.CustomVjpOp.of([x, w], *bodies, block_of(backward, [vector, number, vector]))
        return [build.insert(one).results[0], build.insert(other).results[0]]

    p = expanded(vmapped(function, floats(5, 3), np.float32(2), in_axes=[0, -1], out_axes=[0, 0]))
    one, other = [op for op in p.main.walk() if isinstance(op, dl.CustomJvpOp | dl.CustomVjpOp)]
    assert [shape_of(a) for a in one.blocks[1].args] == [(5, 3), (), (5, 3), ()]
    assert [shape_of(a) for a in other.blocks[2].args] == [(5, 3), (), (5, 3)]
    last = other.blocks[2].last_op
    assert last is not None and [shape_of(v) for v in last.operands] == [(5, 3), ()]
    assert [op.name for op in other.blocks[2].ops].count("dl.reduce_sum") == 2


def test_decomposition_without_operands() -> None:
    def function(build: DlBuilder, x: SSAValue) -> SSAValue:
        return build(dl.DilateOp, x, build.scalar(2.0, like=x), interior=(0, 2))

    p = expanded(vmapped(function, floats(3, 0, 4), in_axes=[0], out_axes=[0]))
    assert p.run()[0].shape == (3, 0, 10)
