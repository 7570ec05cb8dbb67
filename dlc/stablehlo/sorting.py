"""Sorting: the comparator as a list of keys, and the largest elements.

A comparator orders by keys. Each key is a function of one or several operands; the first key that differs decides:

    LT(key(left), key(right))   or   LT(…) | (EQ(…) & the same for the other keys)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.dtypes import is_float
from dlc.frontend.complex_numbers import Complex
from dlc.ir import SSAValue
from dlc.stablehlo.bits import total_order_key
from dlc.stablehlo.body_numbering import BodyNumbering, returned
from dlc.stablehlo.node import Converter, StableHloNode, StableHloValue, element_of, flatten_complex, sizes_of
from dlc.stablehlo.syntax import Op, Region


@dataclass(frozen=True)
class _Key:
    """A sort key: the value of the comparator's body for the left element, by name."""

    name: str
    is_descending: bool
    is_total: bool


class _Comparator:
    """The keys of a comparator, which has a left and a right argument for each operand."""

    def __init__(self, region: Region) -> None:
        self._numbering = BodyNumbering()
        names = self._numbering.body(region)
        # The values with left and right exchanged: two sides of a comparison are one key if the exchange maps one to the other.
        exchanged = [self._numbering.argument(k ^ 1) for k in range(len(region.arguments))]
        mirrored = self._numbering.body(region, exchanged)
        self._names = {number: name for name, number in names.items()}
        self._mirror = {number: mirrored[name] for name, number in names.items()}
        (result,) = returned(region)
        self.keys = self._match_keys(names[result]) if result in names else []

    def _match_keys(self, number: int) -> list[_Key]:
        """Return the keys of a comparison, or of a disjunction as the module's docstring shows it; else an empty list."""
        op = self._numbering.definitions[number]
        if op.name == "LT":
            return self._key(*op.operands, is_total=bool(op.settings))
        if op.name != "stablehlo.or":
            return []
        for first, rest in permutations(op.operands):
            less, ties = self._numbering.definitions[first], self._numbering.definitions[rest]
            if less.name != "LT" or ties.name != "stablehlo.and":
                continue
            equality = self._numbering.number("EQ", *less.operands, settings=less.settings)
            for tie, other in permutations(ties.operands):
                key, remaining_keys = self._match_keys(first), self._match_keys(other) if tie == equality else []
                if key and remaining_keys:
                    return [*key, *remaining_keys]
        return []

    def _key(self, less: int, greater: int, *, is_total: bool) -> list[_Key]:
        if self._mirror.get(less) != greater:
            return []
        for left, is_descending in ((less, False), (greater, True)):
            sides = {k % 2 for k in self._arguments_of(left)}
            if sides == {0}:
                plain = self._without_canonical_floats(left) if is_total else left
                return [_Key(self._names[plain], is_descending, is_total and plain == left)]
        return []

    def _arguments_of(self, number: int) -> set[int]:
        """Return the arguments that a value depends on: all of them for the result of an op with a region."""
        arguments, pending, visited = set[int](), [number], {number}
        while pending:
            op = self._numbering.definitions[pending.pop()]
            if op.name == "argument":
                arguments.add(int(str(op.settings)))
            elif op.name == "opaque":
                arguments |= {0, 1}
            pending += (new_operands := {*op.operands} - visited)
            visited |= new_operands
        return arguments

    def _without_canonical_floats(self, number: int) -> int:
        """Return x of `select(x != x, nan, select(x == 0, 0, x))`, whose total order is that of `dl.sort`; else the number."""
        numbering, op = self._numbering, self._numbering.definitions[number]
        inner = numbering.definitions[op.operands[2]] if op.name == "stablehlo.select" else op
        if inner is op or inner.name != "stablehlo.select":
            return number
        (_, nan, _), (_, zero, x) = op.operands, inner.operands
        nan_value, zero_value = (numbering.constants.get(value) for value in (nan, zero))
        canonical = numbering.select(numbering.compare("EQ", x, zero), zero, x)
        canonical = numbering.select(numbering.compare("NE", x, x), nan, canonical)
        if canonical != number or nan_value is None or zero_value is None:
            return number
        return x if np.isnan(nan_value).all() and not zero_value.any() else number


def _key_values(node: StableHloNode, keys: Sequence[_Key]) -> list[SSAValue]:
    """Compute the keys of all elements: apply the ops of the comparator's body that the keys depend on to the operands."""
    region, names = node.op.regions[0], tuple(key.name for key in keys)
    required_values, ops = {*names}, list[Op]()
    for op in reversed(region.ops[:-1]):
        if required_values & {*op.results}:
            required_values |= {*op.operands}
            ops.insert(0, op)
    body = Region(region.arguments, (*ops, replace(region.ops[-1], operands=names)))
    values = node.inline(body, [x for x in node.values for _ in range(2)])
    shape = sizes_of(flatten_complex(node.values)[0])
    results = list[SSAValue]()
    for key, value in zip(keys, flatten_complex(values), strict=True):
        key_value = node.broadcast(value, shape)
        results.append(total_order_key(node, key_value) if key.is_total and is_float(element_type_of(key_value)) else key_value)
    return results


def _sort_order(node: StableHloNode, axis: int) -> SSAValue:
    """Return the stable sort order along an axis by the comparator of an op, as indices. NaN is largest."""
    keys = _Comparator(node.op.regions[0]).keys
    if not keys:
        raise node.unsupported("its comparator must compare keys, each the same function of the left and the right element")
    order: SSAValue | None = None
    # A stable sort keeps the order by the less significant keys.
    for key, value in reversed([*zip(keys, _key_values(node, keys), strict=True)]):
        if order is not None:
            value = node.build(dl.GatherElementsOp, value, order, axis=axis)
        by_key = node.build(dl.ArgsortOp, value, axis=axis, descending=key.is_descending)
        order = by_key if order is None else node.build(dl.GatherElementsOp, order, by_key, axis=axis)
    assert order is not None
    return order


def _reorder(node: StableHloNode, value: StableHloValue, order: SSAValue, axis: int) -> StableHloValue:
    leaves = [node.build(dl.GatherElementsOp, leaf, order, axis=axis) for leaf in flatten_complex([value])]
    return leaves[0] if len(leaves) == 1 else Complex(*map(node.array, leaves))


def sort(node: StableHloNode) -> Sequence[StableHloValue]:
    """Sort all operands by the keys of the comparator."""
    region, axis = node.op.regions[0], node.get("dimension", default=-1)
    keys = _Comparator(region).keys
    if len(node.values) == 1 and [(key.name, key.is_total) for key in keys] == [(region.arguments[0].name, False)]:
        return [node.build(dl.SortOp, node[0], axis=axis, descending=keys[0].is_descending)]
    order = _sort_order(node, axis)
    return [_reorder(node, value, order, axis) for value in node.values]


def top_k(node: StableHloNode) -> Sequence[SSAValue]:
    """Return the largest elements along the last axis, ties in index order, and their indices.

    Floats are in IEEE total order: NaN with a sign bit is smallest, other NaN largest.
    """
    axis = len(sizes_of(node[0])) - 1
    key = total_order_key(node, node[0]) if is_float(node.element) else node[0]
    order = _first(node, node.build(dl.ArgsortOp, key, axis=axis, descending=True), axis, node.get("k"))
    best = node.build(dl.GatherElementsOp, node[0], order, axis=axis)
    return [best, node.build(dl.CastOp, order, to=element_of(node.op.types[1], node.where))]


def approximate_top_k(node: StableHloNode) -> Sequence[StableHloValue]:
    """`lax.approx_max_k` and `approx_min_k`, computed exactly: values and their indices, the first ones by the comparator."""
    settings = node.get("mhlo.backend_config")
    axis, count, operands = settings["reduction_dim"], settings["top_k"], node.values[: len(node.values) // 2]
    if node.shape[axis] != count:
        raise node.unsupported(f"{node.shape[axis]} results for k = {count} is not supported; set aggregate_to_topk")
    sorted_node = StableHloNode(node.op, operands, node.trace, node.inline, node.where)
    order = _first(node, _sort_order(sorted_node, axis), axis, count)
    return [_reorder(node, value, order, axis) for value in operands]


def _first(node: StableHloNode, order: SSAValue, axis: int, count: int) -> SSAValue:
    """Return the first `count` indices of a sort order."""
    sizes = sizes_of(order)
    limits = (*sizes[:axis], count, *sizes[axis + 1 :])
    return node.build(dl.SliceOp, order, starts=(0,) * len(sizes), limits=limits, strides=(1,) * len(sizes))


OPERATORS: dict[str, Converter] = {
    "stablehlo.sort": sort,
    "chlo.top_k": top_k,
    "stablehlo.custom_call @ApproxTopK": approximate_top_k,
}
