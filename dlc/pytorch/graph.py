"""A graph of ATen operators as plain data, which needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlc.arrays import TensorInfo
from dlc.dialects.dl.base import Array
from dlc.dims import Range
from dlc.pytorch.rules.table import Dtype


@dataclass(frozen=True)
class Ref:
    """The value of this name, in the arguments of a node."""

    name: str


@dataclass(frozen=True)
class Operator:
    """An operator of this name, as an argument of one that calls it."""

    name: str


@dataclass(frozen=True)
class Node:
    """The call of an operator, `add.Tensor`, whose result is called `name`.

    Arguments are refs, numbers, text, NumPy's dtypes, None, lists and dicts of these, operators, and the graphs of branches
    and of bodies of loops.
    `file` and `line` are the line of the user's that called it, `module` the path to the module that the line is in. `dtypes`
    are those of the arrays that PyTorch has for it, None where it is no array that dlc has; none are said where they are the
    rule's to say.
    """

    name: str
    op: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    file: str = ""
    line: int = 0
    module: str = ""
    dtypes: Sequence[Dtype | None] = ()


@dataclass(frozen=True)
class Graph:
    """Nodes in an order in which they can run.

    `inputs` are arrays, of which sizes may be open, within `ranges`; `known` are inputs that are sizes or
    numbers. `constants` are
    arrays that the nodes use, `titles` what they are called by the user. `values` are refs to the `outputs`, which are arrays.
    """

    inputs: Sequence[TensorInfo]
    nodes: Sequence[Node]
    values: Sequence[Ref]
    outputs: Sequence[TensorInfo]
    constants: Mapping[str, Array] = field(default_factory=dict[str, Array])
    titles: Mapping[str, str] = field(default_factory=dict[str, str])
    known: Mapping[str, Any] = field(default_factory=dict[str, Any])
    ranges: Mapping[str, Range] = field(default_factory=dict[str, Range])
