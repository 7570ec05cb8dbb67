"""Canonicalization: one forward walk with local rewrite rules, each an equation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from dlc.dialects.dl.base import DlOp, has_symbolic_sizes, shape_of, tensor_of, tensor_type
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.creation import ConstantOp, WeightOp
from dlc.dialects.dl.dtypes import dense_attribute
from dlc.dialects.dl.interfaces import DataDependent, Elementwise
from dlc.dialects.dl.library_kernels.loops import LoopsOp
from dlc.ir import Context, ModuleOp, ModulePass, SSAValue, UnitAttr
from dlc.passes.dl.rewriting import defining_op, is_unspecified, program_blocks, rewrite_forward
from dlc.passes.dl.simplification.simplify_arithmetic import ARITHMETIC
from dlc.passes.dl.simplification.simplify_movement import MOVEMENT_RULES, without_broadcast
from dlc.shapes.dims import product

# Larger constants are not folded: the IR stays readable, and cheap to print and to hash.
MAX_LITERAL_ELEMENTS = 64

_RULES: dict[type[DlOp], Sequence[Callable[..., Sequence[SSAValue] | None]]] = {**ARITHMETIC, **MOVEMENT_RULES}


@dataclass(frozen=True)
class SimplifyPass(ModulePass):
    """`simplify`: canonicalizes ops in program order: identities, inverse pairs, cheaper equivalents, constant folding.

        %a = dl.mul %x, (dl.constant 1.0)        →  %x
        %b = dl.transpose (dl.transpose %x)      →  %x, or one transpose
        %c = dl.pow %x, (dl.constant 2.0)        →  dl.mul %x, %x
        %d = dl.add (constant), (constant)       →  one constant, up to 64 elements

    Results stay bit-identical, including special values, except where a rule says otherwise. Unused ops are erased.
    """

    name = "simplify"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for block in program_blocks(op):
            rewrite_forward(block, simplified)


def simplified(op: DlOp) -> Sequence[SSAValue] | None:
    """Return the values that replace a `dl` op's results, or None if no rule applies."""
    for rule in _find_rules(op.__class__):
        values = rule(op)
        if values is not None:
            return values
    return None


@cache
def _find_rules(kind: type[DlOp]) -> Sequence[Callable[..., Sequence[SSAValue] | None]]:
    """Return the rules for an op class, in the order in which they are tried."""
    folding = [] if issubclass(kind, ConstantOp | WeightOp | DataDependent | LoopsOp) else [_fold_constants]
    narrowing = [without_broadcast] if issubclass(kind, Elementwise) else []
    return (*folding, *narrowing, *_RULES.get(kind, ()))


def _fold_constants(op: DlOp) -> Sequence[SSAValue] | None:
    """Fold f(constants) into a constant."""
    if len(op.results) != 1:
        return None
    constants: list[ConstantOp] = []
    for value in op.operands:
        if (constant := defining_op(value, ConstantOp)) is None:
            return None
        constants.append(constant)
    size = product(shape_of(op.results[0]))
    if not isinstance(size, int) or size > MAX_LITERAL_ELEMENTS or has_symbolic_sizes(op):
        return None
    (value,) = op.evaluate(*(c.reference() for c in constants))
    element_type = tensor_of(op.results[0]).element_type
    literal = dense_attribute(value, tensor_type(value.shape, element_type))
    unspecified = UnitAttr() if is_unspecified(op.results[0]) else None
    return [DlBuilder(op)(ConstantOp, value=literal, unspecified=unspecified)]
