"""Dynamic dimensions, `tensor<?x4xf32>`: their symbols, and the ops with shapes as tensor operands.

    %0 = stablehlo.get_dimension_size %x, dim = 0        the size b
    %1 = stablehlo.dynamic_iota %0, dim = 0              0, 1, … below b

JAX exports such a module for `jax.export.symbolic_shape`. Its symbols are the dynamic dimensions of the arguments; the inner
function names them, and assertions state which of them are equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import shape_of
from dlc.frontend.shape_tensors import ComputedElement, shape_tensor_elements
from dlc.ir import SSAValue, i64
from dlc.shapes.dims import Dim, Size, is_symbol
from dlc.shapes.ranges import SizeRange
from dlc.stablehlo.contraction_reduction import convolve
from dlc.stablehlo.data_movement import broadcast_to, iota_along, pad_operand, slice_at
from dlc.stablehlo.gather_scatter import gather_windows
from dlc.stablehlo.node import Converter, StableHloNode, StableHloValue, shape_in, shape_of_elements
from dlc.stablehlo.syntax import DYNAMIC, FunctionSyntax, Op

ASSERTION = "stablehlo.custom_call @shape_assertion"


def argument_symbols(main: FunctionSyntax, functions: Mapping[str, FunctionSyntax]) -> dict[tuple[str, int], Size]:
    """Return the symbols of the dynamic dimensions of a function, by argument and axis.

    Dimensions that are asserted equal have the same symbol.
    """
    producers = {name: op for op in main.body.ops for name in op.results}
    names = {
        (a.name, k): re.sub(r"\W", "_", f"{a.name.removeprefix('%')}_{k}")
        for a in main.body.arguments
        for k, size in enumerate(a.type.shape)
        if size == DYNAMIC
    }

    def name_of(value: str) -> str | None:
        op = producers.get(value)
        if op is None or op.name != "stablehlo.get_dimension_size":
            return None
        return names.get((op.operands[0], op.attributes.get("dim", op.attributes.get("dimension"))))

    for value, other in _asserted_equal(main, producers):
        names = {axis: name_of(other) or name if name == name_of(value) else name for axis, name in names.items()}
    for value, symbol_name in _named_sizes(main, functions):
        names = {axis: symbol_name if name == name_of(value) else name for axis, name in names.items()}
    return {axis: Dim.symbol(name) for axis, name in names.items()}


def _asserted_equal(main: FunctionSyntax, producers: Mapping[str, Op]) -> Iterator[Sequence[str]]:
    """Yield the pairs of values that a function asserts to be equal."""
    for op in main.body.ops:
        condition = producers.get(op.operands[0]) if op.called == ASSERTION else None
        if condition is not None and condition.name == "stablehlo.compare" and re.search(r"\bEQ\b", str(condition.attributes)):
            yield condition.operands


def _named_sizes(main: FunctionSyntax, functions: Mapping[str, FunctionSyntax]) -> Iterator[tuple[str, str]]:
    """Yield the values that are passed as dimension arguments to the inner function, and the names of these."""
    for op in main.body.ops:
        inner = functions.get(str(op.attributes.get("callee")))
        for value, argument in zip(op.operands, inner.body.arguments if inner is not None else (), strict=False):
            # Helper functions for dimensions have numbers instead of names.
            if (symbol_name := str(argument.attributes.get("jax.global_constant", ""))).isidentifier():
                yield value, symbol_name


def dimension_size(node: StableHloNode) -> StableHloValue:
    axis: int = node.get("dim", "dimension")
    size = shape_of(node[0])[axis]
    if isinstance(size, int):
        return node.build.constant(np.asarray(size), node.element)
    return node.build(dl.CastOp, node.build(dl.SizeOp, size=(size,), to=i64), to=node.element)


def real_dynamic_slice(node: StableHloNode) -> SSAValue:
    """Slice with bounds that are sizes, or with a data-dependent start and limits of the form `start + size`."""
    begins, ends, strides = node[1], node[2], shape_in(node, 3)
    if all(isinstance(bound, int | Dim) for k in (1, 2) for bound in shape_tensor_elements(node[k]).flat):
        return node.build(dl.SliceOp, node[0], starts=shape_in(node, 1), limits=shape_in(node, 2), strides=strides)
    limit_op = ends.owner
    if not isinstance(limit_op, dl.AddOp) or begins not in limit_op.operands or any(step != 1 for step in strides):
        raise node.unsupported("a slice with a data-dependent size is not supported")
    sizes = limit_op.operands[1 - list(limit_op.operands).index(begins)]
    starts = [
        node.reshape(node.build(dl.SliceOp, begins, starts=(k,), limits=(k + 1,), strides=(1,)), ())
        for k in range(len(strides))
    ]
    return slice_at(node, starts, shape_of_elements(node, sizes, "its sizes"))


def dynamic_conv(node: StableHloNode) -> SSAValue:
    padding = shape_in(node, 2)
    return convolve(node, [padding[k : k + 2] for k in range(0, len(padding), 2)])


def asserted_range(condition: SSAValue) -> tuple[str, SizeRange] | None:
    """Return the symbol and the range that an assertion states; None for other assertions."""
    comparison = condition.owner
    if not isinstance(comparison, dl.GreaterEqualOp):
        return None
    greater, lesser = (shape_tensor_elements(v).item() for v in comparison.operands)
    if isinstance(greater, ComputedElement) or isinstance(lesser, ComputedElement):
        return None
    difference = Dim.lift(greater - lesser)
    terms = {m: c for m, c in difference.terms.items() if m}
    if len(terms) != 1 or not is_symbol(symbol := Dim(dict.fromkeys(terms, 1))):
        return None
    # c·n + k ≥ 0
    (factor,), offset = terms.values(), difference.terms.get((), 0)
    return str(symbol), SizeRange(max(0, -(offset // factor))) if factor > 0 else SizeRange(0, offset // -factor)


OPERATORS: dict[str, Converter] = {
    "stablehlo.get_dimension_size": dimension_size,
    "stablehlo.dynamic_broadcast_in_dim": lambda node: broadcast_to(node, shape_in(node, 1)),
    "stablehlo.dynamic_iota": lambda node: iota_along(node, shape_in(node, 0)),
    "stablehlo.dynamic_reshape": lambda node: node.reshape(node[0], shape_in(node, 1)),
    "stablehlo.real_dynamic_slice": real_dynamic_slice,
    "stablehlo.dynamic_pad": lambda node: pad_operand(node, *(shape_in(node, k) for k in (2, 3, 4))),
    "stablehlo.dynamic_conv": dynamic_conv,
    "stablehlo.dynamic_gather": lambda node: gather_windows(node, shape_in(node, 2)),
}
