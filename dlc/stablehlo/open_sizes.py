"""Sizes that a module leaves open, `tensor<?x4xf32>`: what they are called, and the ops that are given shapes as tensors.

    %0 = stablehlo.get_dimension_size %x, dim = 0        the size b
    %1 = stablehlo.dynamic_iota %0, dim = 0              0, 1, … below b

JAX exports such a module for `jax.export.symbolic_shape`: sizes are those of arguments, which the function inside has names
for, and assertions say which of them are equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import shape_of
from dlc.dims import Dim, Range, Size, is_symbol
from dlc.frontend.decided import Element, elements_of
from dlc.ir import SSAValue, i64
from dlc.stablehlo.moving import broadcast_to, counted_along, padded, slice_at
from dlc.stablehlo.node import Converter, Node, Value, shape_in, shape_of_elements
from dlc.stablehlo.places import windows_of
from dlc.stablehlo.sums import convolved
from dlc.stablehlo.syntax import OPEN, Function, Op

ASSERTION = "stablehlo.custom_call @shape_assertion"


def symbols_of(main: Function, functions: Mapping[str, Function]) -> dict[tuple[str, int], Size]:
    """The open sizes of the arguments of a function, by argument and axis; those that are asserted to be equal are one."""
    made = {name: op for op in main.body.ops for name in op.results}
    names = {
        (a.name, k): re.sub(r"\W", "_", f"{a.name.removeprefix('%')}_{k}")
        for a in main.body.arguments
        for k, size in enumerate(a.type.shape)
        if size == OPEN
    }

    def name_of(value: str) -> str | None:
        op = made.get(value)
        if op is None or op.name != "stablehlo.get_dimension_size":
            return None
        return names.get((op.operands[0], op.attributes.get("dim", op.attributes.get("dimension"))))

    for value, other in _equal(main, made):
        names = {axis: name_of(other) or name if name == name_of(value) else name for axis, name in names.items()}
    for value, said in _named(main, functions):
        names = {axis: said if name == name_of(value) else name for axis, name in names.items()}
    return {axis: Dim.symbol(name) for axis, name in names.items()}


def _equal(main: Function, made: Mapping[str, Op]) -> Iterator[Sequence[str]]:
    """The pairs of values that a function asserts to be equal."""
    for op in main.body.ops:
        condition = made.get(op.operands[0]) if op.called == ASSERTION else None
        if condition is not None and condition.name == "stablehlo.compare" and re.search(r"\bEQ\b", str(condition.attributes)):
            yield condition.operands


def _named(main: Function, functions: Mapping[str, Function]) -> Iterator[tuple[str, str]]:
    """The values that a function hands on as sizes of the exported function, and the names that they have there."""
    for op in main.body.ops:
        inner = functions.get(str(op.attributes.get("callee")))
        for value, argument in zip(op.operands, inner.body.arguments if inner is not None else (), strict=False):
            # Those that functions for sizes are given have numbers in place of names.
            if (said := str(argument.attributes.get("jax.global_constant", ""))).isidentifier():
                yield value, said


def dimension_size(node: Node) -> Value:
    axis: int = node.get("dim", "dimension")
    size = shape_of(node[0])[axis]
    if isinstance(size, int):
        return node.b.constant(np.asarray(size), node.element)
    return node.b(dl.CastOp, node.b(dl.SizeOp, size=(size,), to=i64), to=node.element)


def dynamic_broadcast_in_dim(node: Node) -> SSAValue:
    return broadcast_to(node, shape_in(node, 1))


def dynamic_iota(node: Node) -> SSAValue:
    return counted_along(node, shape_in(node, 0))


def dynamic_reshape(node: Node) -> SSAValue:
    return node.reshape(node[0], shape_in(node, 1))


def real_dynamic_slice(node: Node) -> SSAValue:
    """Of bounds that are sizes, or, where data says where it begins, of a size: `starts + sizes` are its limits then."""
    begins, ends, strides = node[1], node[2], shape_in(node, 3)
    if all(isinstance(bound, int | Dim) for k in (1, 2) for bound in elements_of(node[k]).flat):
        return node.b(dl.SliceOp, node[0], starts=shape_in(node, 1), limits=shape_in(node, 2), strides=strides)
    sum = ends.owner
    if not isinstance(sum, dl.AddOp) or begins not in sum.operands or any(step != 1 for step in strides):
        raise node.unsupported("as large as data says")
    sizes = sum.operands[1 - list(sum.operands).index(begins)]
    starts = [
        node.reshape(node.b(dl.SliceOp, begins, starts=(k,), limits=(k + 1,), strides=(1,)), ()) for k in range(len(strides))
    ]
    return slice_at(node, starts, shape_of_elements(node, sizes, "its sizes"))


def dynamic_pad(node: Node) -> SSAValue:
    low, high, between = (shape_in(node, k) for k in (2, 3, 4))
    return padded(node, low, high, between)


def dynamic_conv(node: Node) -> SSAValue:
    padding = shape_in(node, 2)
    return convolved(node, [padding[k : k + 2] for k in range(0, len(padding), 2)])


def dynamic_gather(node: Node) -> SSAValue:
    return windows_of(node, shape_in(node, 2))


def asserted(condition: SSAValue) -> tuple[str, Range] | None:
    """The size that an assertion is about, and what it says of it; none of one that says something else."""
    made = condition.owner
    if not isinstance(made, dl.GreaterEqualOp):
        return None
    more, less = (elements_of(v).item() for v in made.operands)
    if isinstance(more, Element) or isinstance(less, Element):
        return None
    over = Dim.lift(more - less)
    terms = {m: c for m, c in over.terms.items() if m}
    if len(terms) != 1 or not is_symbol(symbol := Dim(dict.fromkeys(terms, 1))):
        return None
    # c·n + k ≥ 0
    (factor,), rest = terms.values(), over.terms.get((), 0)
    return str(symbol), Range(max(0, -(rest // factor))) if factor > 0 else Range(0, rest // -factor)


OPERATORS: dict[str, Converter] = {
    "stablehlo.get_dimension_size": dimension_size,
    "stablehlo.dynamic_broadcast_in_dim": dynamic_broadcast_in_dim,
    "stablehlo.dynamic_iota": dynamic_iota,
    "stablehlo.dynamic_reshape": dynamic_reshape,
    "stablehlo.real_dynamic_slice": real_dynamic_slice,
    "stablehlo.dynamic_pad": dynamic_pad,
    "stablehlo.dynamic_conv": dynamic_conv,
    "stablehlo.dynamic_gather": dynamic_gather,
}
