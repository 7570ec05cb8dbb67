"""Agreement of pytrees: a carry before and after a step, the results of branches. Errors name every leaf that differs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from dlc.dialects.dl.base import Tensor, tensor_type
from dlc.dialects.dl.dtypes import element_type
from dlc.errors import DlcError, DTypeError, ShapeError
from dlc.frontend.pytree import Tree, flatten, is_array_like
from dlc.frontend.trace import Tracer, is_python_scalar
from dlc.numpy.apply import ArrayLike, common_dtype, is_weak, operand, refuse
from dlc.shapes.traced_dims import untraced

_PYTHON_NUMBERS_HINT = " (Python numbers alone make float64, as in NumPy: where(c, 1.0, -1.0))"


class AbstractValue(NamedTuple):
    """The shape and dtype of an array or number. With `weak` it is a weakly typed number, without a fixed dtype."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    weak: bool = False

    @classmethod
    def of(cls, leaf: ArrayLike) -> AbstractValue:
        array = operand(leaf)
        return cls(untraced(array.shape), array.dtype, is_weak(leaf))

    @property
    def type(self) -> Tensor:
        return tensor_type(self.shape, element_type(self.dtype))

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}" + (" (a number)" if self.weak else "")


@dataclass(frozen=True)
class TracedTree:
    """A pytree of arrays and numbers in a call of `api_name`; `name` is its name, with `{}` for the path of a leaf."""

    api_name: str
    name: str
    leaves: Sequence[Any]
    tree: Tree

    @classmethod
    def of(cls, api_name: str, name: str, value: object) -> TracedTree:
        """Flatten a value. Raises DTypeError for leaves that are neither arrays nor numbers."""
        leaves, tree = flatten(value)
        checked = [leaf if isinstance(leaf, Tracer) or is_python_scalar(leaf) else np.asarray(leaf) for leaf in leaves]
        traced_tree = cls(api_name, name, checked, tree)
        for leaf, path in zip(leaves, traced_tree.paths, strict=True):
            if not is_array_like(leaf):
                got = type(leaf).__name__
                refuse(DTypeError(f"{api_name}: {path} is a {got}; expected arrays, numbers and containers of them"))
        return traced_tree

    @property
    def avals(self) -> list[AbstractValue]:
        return [AbstractValue.of(leaf) for leaf in self.leaves]

    @property
    def paths(self) -> list[str]:
        return [self.name.format(path) for path in self.tree.paths("")]

    def reordered_like(self, other: TracedTree) -> TracedTree:
        """Return the tree with its leaves in the order of another tree. Raises ShapeError if the structures differ."""
        if difference := other.tree.first_difference(self.tree):
            path, other_subtree, own_subtree = difference
            problem = f"{other.name.format(path)} is {other_subtree}, {self.name.format(path)} is {own_subtree}"
            _raise_mismatch(self.api_name, [problem], "structure", ShapeError)
        return TracedTree(self.api_name, self.name, other.tree.reordered_leaves(self.tree, self.leaves), other.tree)


def carry_avals(carry_in: TracedTree, avals: Sequence[AbstractValue], carry_out: TracedTree) -> list[AbstractValue]:
    """Return the abstract values of a carry that starts as `avals` and leaves a step as `carry_out`.

    Weakly typed values take the dtype of the step.

    Raises ShapeError or DTypeError if the step changes a shape or dtype.
    """
    return _merge_avals(carry_in.api_name, _merge_carry, [(carry_in.paths, avals), (carry_out.paths, carry_out.avals)])


def _merge_carry(avals: Sequence[AbstractValue]) -> AbstractValue | None:
    carry_in, carry_out = avals
    if carry_in.shape != carry_out.shape:
        return None
    if not carry_in.weak and not carry_out.weak:
        return carry_in if carry_in.dtype == carry_out.dtype else None
    dtype = common_dtype([carry_in[1:], carry_out[1:]])
    if not carry_in.weak and dtype != carry_in.dtype:
        return None
    return AbstractValue(carry_in.shape, dtype, carry_in.weak and carry_out.weak)


def branch_avals(results: Sequence[TracedTree]) -> list[AbstractValue]:
    """Return the common abstract values of the results of branches; numbers take the dtype of arrays.

    Raises ShapeError or DTypeError for results that differ in shape or dtype.
    """
    return _merge_avals(results[0].api_name, _merge_results, [(result.paths, result.avals) for result in results])


def _merge_results(avals: Sequence[AbstractValue]) -> AbstractValue | None:
    strong = {aval.dtype for aval in avals if not aval.weak}
    if len({aval.shape for aval in avals}) > 1 or len(strong) > 1:
        return None
    dtype = common_dtype([aval[1:] for aval in avals])
    return AbstractValue(avals[0].shape, dtype, not strong) if strong <= {dtype} else None


def _merge_avals(
    api_name: str,
    merge: Callable[[Sequence[AbstractValue]], AbstractValue | None],
    trees: Sequence[tuple[Sequence[str], Sequence[AbstractValue]]],
) -> list[AbstractValue]:
    """Merge the abstract values of each leaf over all trees, given as (paths, avals).

    Raises an error where `merge` returns None.
    """
    merged_avals: list[AbstractValue] = []
    mismatches: list[str] = []
    have_equal_shapes = True
    for paths, avals in zip(zip(*(t[0] for t in trees), strict=True), zip(*(t[1] for t in trees), strict=True), strict=True):
        if (aval := merge(avals)) is not None:
            merged_avals.append(aval)
            continue
        pairs = combinations(zip(paths, avals, strict=True), 2)
        (first_name, first_aval), (second_name, second_aval) = next(
            pair for pair in pairs if merge([aval for _, aval in pair]) is None
        )
        mismatches.append(f"{first_name} is {first_aval}, {second_name} is {second_aval}")
        have_equal_shapes = have_equal_shapes and len({aval.shape for aval in avals}) == 1
    if mismatches:
        dtypes = {aval.dtype for _, avals in trees for aval in avals}
        hint = _PYTHON_NUMBERS_HINT if {np.dtype(np.float32), np.dtype(np.float64)} <= dtypes else ""
        _raise_mismatch(
            api_name,
            mismatches,
            f"dtype; convert with .astype{hint}" if have_equal_shapes else "shape and dtype",
            DTypeError if have_equal_shapes else ShapeError,
        )
    return merged_avals


def _raise_mismatch(api_name: str, problems: Sequence[str], property_name: str, error: type[DlcError]) -> None:
    refuse(error(f"{api_name}: {'; '.join(problems)}; expected the same {property_name}"))
