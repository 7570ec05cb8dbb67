"""Derivatives and batches of functions become the ops that compute them."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects import dl
from dlc.dialects.dl.programs.transformations import Custom, Transformation
from dlc.ir import Context, ModuleOp, ModulePass, all_of
from dlc.passes.autodiff.forward import add_tangents
from dlc.passes.autodiff.reverse import add_cotangents
from dlc.passes.batching.expand_vmap import expand_vmap
from dlc.passes.dl.rewriting import erase_unused, with_nested
from dlc.passes.dl.simplification.cse import CsePass, share
from dlc.passes.dl.simplification.dce import DcePass
from dlc.passes.transformations.inline import inline


@dataclass(frozen=True)
class ExpandTransformationsPass(ModulePass):
    """`expand-transformations`: plain ops in the place of each `dl.jvp`, `dl.vjp` and `dl.vmap`, the innermost first.

        %y, %g = dl.vjp %x, %one { ^bb0(%x): %s = dl.sin %x; dl.yield %s }
    →   %y = dl.sin %x;  %c = dl.cos %x;  %g = dl.mul %one, %c

    It comes before every other pass: a pass that rewrites arithmetic might change a derivative (`maximum(x, 0)` has ½ at 0,
    `relu(x)` has 0). Only equal ops become one before, since the cotangents of duplicates never meet again. Functions with
    a rule of their own that nobody differentiates become their first body.
    """

    name = "expand-transformations"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if not _transformations(op):
            return
        CsePass().apply(ctx, op)
        DcePass().apply(ctx, op)
        # An op is walked before those in it: the last one has none inside.
        for inner in reversed([t for t in _transformations(op) if not isinstance(t, Custom)]):
            # What only an expanded body has read is erased with its reader.
            if inner.parent is not None:
                _tidy(inner)
                _expand(inner)
        for inner in reversed(_transformations(op)):
            _expand(inner)


def expanded(module: ModuleOp) -> ModuleOp:
    """A module to be evaluated: itself, or a copy with plain ops in the place of transformations."""
    if not _transformations(module):
        return module
    copy = module.clone()
    ExpandTransformationsPass().apply(Context(), copy)
    return copy


def _transformations(module: ModuleOp) -> list[Transformation]:
    return list(all_of(module, Transformation))


def _tidy(op: Transformation) -> None:
    """Makes equal ops of a body one, and leaves out those that nobody reads: expanding the ops in it made some."""
    for block in with_nested(op.blocks):
        share(block)
    for block in with_nested(op.blocks):
        erase_unused(list(block.ops))


def _expand(op: Transformation) -> None:
    match op:
        case dl.VmapOp():
            expand_vmap(op)
            return
        case dl.JvpOp():
            add_tangents(op.block, op.wrt_indices)
        case dl.VjpOp():
            add_cotangents(op.block, op.wrt_indices, op.of_indices)
        case _:
            assert isinstance(op, Custom)
    inline(op, op.block, op.operands)
