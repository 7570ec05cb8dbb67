"""What has to agree: a carry before and after a step, the results of branches. Errors name all places that do not."""

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
from dlc.frontend.trace import Tracer, is_number
from dlc.numpy.apply import ArrayLike, common_dtype, is_weak, operand, refuse


class Kind(NamedTuple):
    """What is known of an array or number while a function is traced; `weak` marks a number without a dtype of its own."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    weak: bool = False

    @classmethod
    def of(cls, leaf: ArrayLike) -> Kind:
        array = operand(leaf)
        return cls(array.shape, array.dtype, is_weak(leaf))

    @property
    def type(self) -> Tensor:
        return tensor_type(self.shape, element_type(self.dtype))

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}" + (" (a number)" if self.weak else "")


@dataclass(frozen=True)
class Leaves:
    """A tree of arrays and numbers that the function `where` was given; in its `name`, `{}` is the place of a leaf."""

    where: str
    name: str
    leaves: Sequence[Any]
    tree: Tree

    @classmethod
    def of(cls, where: str, name: str, value: object) -> Leaves:
        """The leaves of a value; raises DTypeError for those that are neither arrays nor numbers."""
        leaves, tree = flatten(value)
        checked = [leaf if isinstance(leaf, Tracer) or is_number(leaf) else np.asarray(leaf) for leaf in leaves]
        made = cls(where, name, checked, tree)
        for leaf, path in zip(leaves, made.paths, strict=True):
            if not is_array_like(leaf):
                got = type(leaf).__name__
                refuse(DTypeError(f"{where}: {path} is a {got}; expected arrays, numbers and containers of them"))
        return made

    @property
    def kinds(self) -> list[Kind]:
        return [Kind.of(leaf) for leaf in self.leaves]

    @property
    def paths(self) -> list[str]:
        return [self.name.format(path) for path in self.tree.paths("")]

    def in_order_of(self, other: Leaves) -> Leaves:
        """The leaves in the order of another tree of the same shape; raises ShapeError where the shapes differ."""
        if found := other.tree.difference(self.tree):
            path, there, here = found
            problem = f"{other.name.format(path)} is {there}, {self.name.format(path)} is {here}"
            _refuse(self.where, [problem], "structure", ShapeError)
        return Leaves(self.where, self.name, other.tree.leaves_of(self.tree, self.leaves), other.tree)


def carried(before: Leaves, kinds: Sequence[Kind], after: Leaves) -> list[Kind]:
    """What a carry is that begins as these kinds and is handed on as `after`: a number becomes what the step makes of it.

    Raises ShapeError or DTypeError where it would not keep its shape and dtype.
    """
    return _merged(before.where, _carried, [(before.paths, kinds), (after.paths, after.kinds)])


def _carried(kinds: Sequence[Kind]) -> Kind | None:
    before, after = kinds
    if before.shape != after.shape:
        return None
    if not before.weak and not after.weak:
        return before if before.dtype == after.dtype else None
    dtype = common_dtype([before[1:], after[1:]])
    if not before.weak and dtype != before.dtype:
        return None
    return Kind(before.shape, dtype, before.weak and after.weak)


def agreed(results: Sequence[Leaves]) -> list[Kind]:
    """What the results of branches are together: numbers take the dtype of arrays.

    Raises ShapeError or DTypeError for results that differ in shape or dtype.
    """
    return _merged(results[0].where, _agreed, [(result.paths, result.kinds) for result in results])


def _agreed(kinds: Sequence[Kind]) -> Kind | None:
    strong = {kind.dtype for kind in kinds if not kind.weak}
    if len({kind.shape for kind in kinds}) > 1 or len(strong) > 1:
        return None
    dtype = common_dtype([kind[1:] for kind in kinds])
    return Kind(kinds[0].shape, dtype, not strong) if strong <= {dtype} else None


def _merged(
    where: str, merge: Callable[[Sequence[Kind]], Kind | None], trees: Sequence[tuple[Sequence[str], Sequence[Kind]]]
) -> list[Kind]:
    """For each leaf what `merge` makes of what it is in all trees, given by paths and kinds; raises where that is nothing."""
    merged: list[Kind] = []
    wrong: list[str] = []
    alike = True
    for paths, kinds in zip(zip(*(t[0] for t in trees), strict=True), zip(*(t[1] for t in trees), strict=True), strict=True):
        if (kind := merge(kinds)) is not None:
            merged.append(kind)
            continue
        pairs = combinations(zip(paths, kinds, strict=True), 2)
        (one, its), (other, others) = next(pair for pair in pairs if merge([kind for _, kind in pair]) is None)
        wrong.append(f"{one} is {its}, {other} is {others}")
        alike = alike and len({kind.shape for kind in kinds}) == 1
    if wrong:
        _refuse(where, wrong, "dtype, which .astype gives" if alike else "shape and dtype", DTypeError if alike else ShapeError)
    return merged


def _refuse(where: str, problems: Sequence[str], what: str, error: type[DlcError]) -> None:
    refuse(error(f"{where}: {'; '.join(problems)}; expected the same {what}"))
