"""Factor rules: every op has one, is decomposed, or is listed as replicated; factors of some ops."""

from __future__ import annotations

from typing import Any

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, shape_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.interfaces import Composite
from dlc.ir import Block, f32, f64, i64
from dlc.passes.sharding.factors import REPLICATED, factor_rule, factors_of, replicated_factors
from tests.ops.samples import SAMPLES


def test_every_op_has_factors_or_a_reason() -> None:
    missing = [
        op.name
        for op in dl.Dl.operations
        if issubclass(op, DlOp)
        and not issubclass(op, Composite)
        and (factor_rule(op) is not None) == any(base in REPLICATED for base in op.__mro__ if factor_rule(op) is None)
    ]
    assert not missing, "add a rule to FACTOR_RULES, or a reason to REPLICATED"


def test_factors_fit_the_samples() -> None:
    """Each axis has at most one factor, and axes with one factor have equal sizes, except in reshapes."""
    for op in {s.op for s in SAMPLES}:
        for sample in [s for s in SAMPLES if s.op is op][:5]:
            made = op.make(*Block(arg_types=sample.operand_types).args, **sample.properties)
            factors, sizes = factors_of(made), dict[int, int]()
            for value, axes in zip((*made.operands, *made.results), (*factors.operands, *factors.results), strict=True):
                indexed = [f for f in axes if f is not None]
                assert len(set(indexed)) == len(indexed), op.name
                for f, size in zip(axes, shape_of(value), strict=True):
                    if f is not None and not isinstance(made, dl.ReshapeOp):
                        assert sizes.setdefault(f, int(size)) == size, op.name
            results = {f for axes in factors.results for f in axes}
            assert all(f in results or f in factors.reduced for axes in factors.operands for f in axes if f is not None)


def _factors(op: type[DlOp], *shapes: tuple[int, ...], **properties: Any) -> tuple[Any, ...]:
    made = op.make(*Block(arg_types=[tensor_type(shape, f32) for shape in shapes]).args, **properties)
    factors = factors_of(made)
    return factors.operands, factors.results, dict(factors.reduced)


def test_factors_of_contractions() -> None:
    assert _factors(dl.MatmulOp, (4, 8), (8, 6)) == (((0, 2), (2, 1)), ((0, 1),), {2: "sum"})
    # Windows have no factor: images, input channels and output channels have.
    strides = {"strides": (1, 1), "dilations": (1, 1)}
    (x, w), (y,), reduced = _factors(dl.ConvOp, (2, 8, 8, 4), (3, 3, 4, 16), groups=1, **strides)
    assert (x[0], x[1:3], w[:2], y[0], y[3]) == (y[0], (None, None), (None, None), x[0], w[3])
    assert x[3] == w[2] and list(reduced) == [x[3]]
    # Views split grouped channels: only images have a factor.
    (x, w), (y,), reduced = _factors(dl.ConvOp, (2, 8, 8, 4), (3, 3, 1, 4), groups=4, **strides)
    assert (x[1:], w, y[1:], reduced) == ((None,) * 3, (None,) * 4, (None,) * 3, {}) and x[0] == y[0] is not None


def test_matrices_inside_ops_are_not_sharded() -> None:
    sample = next(s for s in SAMPLES if s.op is dl.WinogradInputOp)
    op = sample.op.make(*Block(arg_types=sample.operand_types).args, **sample.properties)
    assert factors_of(op) == replicated_factors(op)


def test_a_reshape_shards_outermost_axes() -> None:
    assert _factors(dl.ReshapeOp, (6, 20), shape=(6, 5, 4)) == (((0, 1),), ((0, 1, None),), {})
    assert _factors(dl.ReshapeOp, (1, 20, 6), shape=(120,)) == (((None, 1, None),), ((1,),), {})


def test_updates_of_zeros_are_partial_sums() -> None:
    block = Block(arg_types=[tensor_type((4,), i64), tensor_type((4, 6), f64)])
    build = DlBuilder(block)
    zeros = build(dl.BroadcastToOp, build.scalar(0, like=block.args[1]), shape=(10, 6))
    factors = factors_of(dl.ScatterRowsOp.make(zeros, *block.args, mode="add"))
    (rows,) = factors.operands[1]
    assert dict(factors.reduced) == {rows: "sum"}
    assert factors_of(dl.ScatterRowsOp.make(zeros, *block.args, mode="max")).reduced == {}
