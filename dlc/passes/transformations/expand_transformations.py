"""Expand derivatives and batched functions into plain ops."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects import dl
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.programs.transformations import CustomDerivativeRule, Derivative, Transformation
from dlc.dialects.entry import entry_of
from dlc.ir import Context, ModuleOp, ModulePass, OpResult, SSAValue, erase_op, walk_ops
from dlc.passes.autodiff.forward_mode import add_tangents
from dlc.passes.autodiff.reverse_mode import add_cotangents
from dlc.passes.autodiff.shapes import zeros
from dlc.passes.batching.expand_vmap import expand_vmap
from dlc.passes.dl.rewriting import erase_dead_ops, nested_blocks
from dlc.passes.dl.simplification.cse import CsePass, merge_equal_ops
from dlc.passes.dl.simplification.dce import DcePass
from dlc.passes.sharding.varying_axes import has_shard_maps
from dlc.passes.transformations.inline import inline
from dlc.passes.transformations.insert_vary import insert_vary


@dataclass(frozen=True)
class ExpandTransformationsPass(ModulePass):
    """`expand-transformations`: expands each `dl.jvp`, `dl.vjp` and `dl.vmap` into plain ops, the innermost first.

        %y, %g = dl.vjp %x, %one { ^bb0(%x): %s = dl.sin %x; dl.yield %s }
    →   %y = dl.sin %x;  %c = dl.cos %x;  %g = dl.mul %one, %c

    It runs before all rewrites: a pass that rewrites arithmetic might change a derivative (that of `maximum(x, 0)` at 0 is ½,
    that of `relu(x)` is 0). Only CSE runs before it, since the cotangents of duplicate ops would never merge again. Functions
    with a custom derivative rule that are not differentiated become their primal body.
    """

    name = "expand-transformations"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if not _transformations(op):
            return
        CsePass().apply(ctx, op)
        DcePass().apply(ctx, op)
        has_local_values = has_shard_maps(op)
        # A walk visits an op before the ops inside, so reverse order expands the innermost first.
        for inner in reversed([t for t in _transformations(op) if not isinstance(t, CustomDerivativeRule)]):
            # A transformation may have been erased as unused.
            if inner.parent is not None:
                _run_cse_and_dce(inner)
                if has_local_values and isinstance(inner, Derivative):
                    for body in inner.blocks:
                        insert_vary(body, entry_of(op).body.block)
                _expand(inner)
        for inner in reversed(_transformations(op)):
            _expand(inner)


def expand_for_evaluation(module: ModuleOp) -> ModuleOp:
    """Return a module that can be evaluated: itself, or a copy with expanded transformations."""
    if not _transformations(module):
        return module
    copy = module.clone()
    ExpandTransformationsPass().apply(Context(), copy)
    return copy


def _transformations(module: ModuleOp) -> list[Transformation]:
    return list(walk_ops(module, Transformation))


def _run_cse_and_dce(op: Transformation) -> None:
    """Run CSE and DCE on the bodies of an op, after inner transformations were expanded."""
    for block in nested_blocks(op.blocks):
        merge_equal_ops(block)
    for block in nested_blocks(op.blocks):
        erase_dead_ops(block)


def _expand(op: Transformation) -> None:
    match op:
        case dl.VmapOp():
            expand_vmap(op)
            return
        case dl.JvpOp():
            add_tangents(op.block, op.wrt_indices)
        case dl.VjpOp():
            add_cotangents(op.block, op.wrt_indices, op.of_indices)
        case dl.LinearCallOp() if op.arguments and all(map(_is_zero_with_tangent, op.arguments)):
            _replace_by_zeros(op)
            return
        case _:
            assert isinstance(op, CustomDerivativeRule)
    inline(op, op.block, op.operands)


def _is_zero_with_tangent(value: SSAValue) -> bool:
    """Return whether a value is x - stop_gradient(x): zero, with the tangent of x."""
    match value.owner:
        case dl.SubOp(x=x, y=OpResult(op=dl.StopGradientOp(x=constant))):
            return x is constant
        case _:
            return False


def _replace_by_zeros(op: dl.LinearCallOp) -> None:
    """Replace a linear function of zeros by zeros."""
    build = DlBuilder(op)
    for result in op.results:
        result.replace_all_uses_with(zeros(build, result).value)
    erase_op(op, is_unused=False)
