"""Sizes that a module leaves open, `tensor<?x4xf32>`: what they are called, and the ops that are given shapes as tensors.

    %0 = stablehlo.get_dimension_size %x, dim = 0        the size b
    %1 = stablehlo.dynamic_iota %0, dim = 0              0, 1, … below b

JAX exports such a module for `jax.export.symbolic_shape`: sizes are those of arguments, which the function inside has names
for, and assertions say which of them are equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import shape_of
from dlc.dims import Dim, Size
from dlc.frontend.decided import Element, elements_of
from dlc.ir import SSAValue, i64
from dlc.stablehlo.moving import broadcast_to, counted_along
from dlc.stablehlo.node import Converter, Node, Value
from dlc.stablehlo.places import windows_of
from dlc.stablehlo.syntax import OPEN, Function, Op

_ASSERTION = "stablehlo.custom_call @shape_assertion"


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
        condition = made.get(op.operands[0]) if op.called == _ASSERTION else None
        if condition is not None and condition.name == "stablehlo.compare" and re.search(r"\bEQ\b", str(condition.attributes)):
            yield condition.operands


def _named(main: Function, functions: Mapping[str, Function]) -> Iterator[tuple[str, str]]:
    """The values that a function hands on as sizes of the exported function, and the names that they have there."""
    for op in main.body.ops:
        inner = functions.get(str(op.attributes.get("callee")))
        for value, argument in zip(op.operands, inner.body.arguments if inner is not None else (), strict=False):
            if "jax.global_constant" in argument.attributes:
                yield value, str(argument.attributes["jax.global_constant"])


def shape_in(node: Node, k: int) -> tuple[int, ...]:
    """The shape that an operand is. Raises UnsupportedError for one that follows from no shape."""
    sizes = list(elements_of(node[k]).flat)
    if any(isinstance(size, Element) for size in sizes):
        raise node.unsupported(f"operand {k} is a shape that follows from no size of an argument")
    return cast("tuple[int, ...]", tuple(sizes))


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
    starts, limits, strides = (shape_in(node, k) for k in (1, 2, 3))
    return node.b(dl.SliceOp, node[0], starts=starts, limits=limits, strides=strides)


def dynamic_gather(node: Node) -> SSAValue:
    return windows_of(node, shape_in(node, 2))


def shape_assertion(node: Node) -> Sequence[Value]:
    """Nothing: types say what sizes are, and a call is compared with them."""
    return []


OPERATORS: dict[str, Converter] = {
    "stablehlo.get_dimension_size": dimension_size,
    "stablehlo.dynamic_broadcast_in_dim": dynamic_broadcast_in_dim,
    "stablehlo.dynamic_iota": dynamic_iota,
    "stablehlo.dynamic_reshape": dynamic_reshape,
    "stablehlo.real_dynamic_slice": real_dynamic_slice,
    "stablehlo.dynamic_gather": dynamic_gather,
    _ASSERTION: shape_assertion,
}
