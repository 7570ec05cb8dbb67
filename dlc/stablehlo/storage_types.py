"""Ops on storage-only types, integers of 2 and 4 bits and floats of 4 and 8: computed in a wider compute type.

    add : tensor<4xi4>   ⟶   cast to i8, add, cast to i4

The compute type represents every value of the storage-only one. A float result is rounded, an integer result wraps around: its
lowest bits depend on the lowest bits of the operands only, except for the ops of `_WIDTH_DEPENDENT`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of, is_storage_only
from dlc.frontend.complex_numbers import Complex
from dlc.ir import SSAValue
from dlc.stablehlo.node import STABLEHLO_ELEMENTS, Converter, StableHloNode, StableHloValue
from dlc.stablehlo.syntax import Op, Region, Type

_COMPUTE_TYPES: Mapping[str, str] = {
    "i2": "i8", "i4": "i8", "ui2": "ui8", "ui4": "ui8",
    **dict.fromkeys(("f4E2M1FN", "f8E4M3FN", "f8E4M3FNUZ", "f8E5M2", "f8E5M2FNUZ", "f8E8M0FNU"), "f32"),
}  # fmt: skip
_COMPUTE_ELEMENTS = {STABLEHLO_ELEMENTS[storage]: STABLEHLO_ELEMENTS[compute] for storage, compute in _COMPUTE_TYPES.items()}
# Ops whose results depend on the number of bits of the operand's type.
_WIDTH_DEPENDENT = (
    "stablehlo.bitcast_convert", "stablehlo.shift_right_logical", "stablehlo.popcnt", "stablehlo.count_leading_zeros",
    "stablehlo.rng_bit_generator", "chlo.mulhi", "chlo.next_after",
)  # fmt: skip


def has_storage_only(node: StableHloNode) -> bool:
    """Return whether an op computes with a storage-only type; a conversion needs no compute type."""
    if node.op.name == "stablehlo.convert":
        return False
    return any(type.element in _COMPUTE_TYPES for type in node.op.types) or any(
        is_storage_only(element_type_of(x)) for x in node.operands
    )


def convert_in_compute_types(node: StableHloNode, rule: Converter) -> Sequence[StableHloValue]:
    """Convert an op with operands and results of compute types, and cast the results to the types of the op."""
    if node.op.name in _WIDTH_DEPENDENT:
        raise node.unsupported("not supported for integers of less than 8 bits and 8-bit floats; convert to a wider type first")
    operands = [x if isinstance(x, Complex) else _in_compute_type(node, x) for x in node.values]
    result = rule(StableHloNode(_with_compute_types(node.op), operands, node.trace, node.inline, node.where))
    results = [result] if isinstance(result, SSAValue | Complex) else result
    return [
        node.build(dl.CastOp, cast(SSAValue, y), to=STABLEHLO_ELEMENTS[type.element]) if type.element in _COMPUTE_TYPES else y
        for y, type in zip(results, node.op.types, strict=True)
    ]


def _in_compute_type(node: StableHloNode, x: SSAValue) -> SSAValue:
    element = element_type_of(x)
    return node.build(dl.CastOp, x, to=_COMPUTE_ELEMENTS[element]) if element in _COMPUTE_ELEMENTS else x


def _with_compute_types(op: Op) -> Op:
    """Return an op with compute types, in its regions as well; constants keep their types, and their users cast them."""
    regions = tuple(
        Region(
            tuple(replace(a, type=_compute_type(a.type)) for a in region.arguments), tuple(map(_with_compute_types, region.ops))
        )
        for region in op.regions
    )
    is_constant = op.name == "stablehlo.constant"
    return replace(op, regions=regions, types=op.types if is_constant else tuple(map(_compute_type, op.types)))


def _compute_type(type: Type) -> Type:
    return replace(type, element=_COMPUTE_TYPES.get(type.element, type.element))
