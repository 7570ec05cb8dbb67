"""FX graphs of ATen operators as plain data, independent of torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlc.arrays import TensorInfo
from dlc.dialects.dl.base import Array
from dlc.distributed.partition_spec import P
from dlc.pytorch.rules.rule_table import Dtype
from dlc.shapes.ranges import SizeRange


@dataclass(frozen=True)
class ValueRef:
    """A reference to the value of this name, as an argument of a node."""

    name: str


@dataclass(frozen=True)
class FxOperator:
    """An operator of this name, as an argument of a higher-order operator."""

    name: str


@dataclass(frozen=True)
class FxNode:
    """A call of an operator such as `add.Tensor`, whose result is named `name`.

    Arguments are references, numbers, strings, NumPy dtypes, None, lists and dicts of these, operators, and the graphs of
    branches and loop bodies. `file` and `line` are the user's line that called it, `module` the path of the module that
    contains the call. `dtypes` are PyTorch's dtypes of the results, None for a result that is not an array that dlc supports;
    empty if the rule determines the dtypes.
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
class FxGraph:
    """Nodes in topological order.

    `inputs` are arrays; their sizes may be symbolic, within `ranges`. `scalar_inputs` are inputs that are sizes or numbers.
    `constants` are arrays that the nodes use, `constant_names` their names in the module, and `shardings` their annotations for
    a mesh, if any. `values` are references to the
    `outputs`, which are arrays. `mutations` maps the outputs that are new values of inputs to these inputs; `defaults` are the
    values of inputs that a call may omit.
    """

    inputs: Sequence[TensorInfo]
    nodes: Sequence[FxNode]
    values: Sequence[ValueRef]
    outputs: Sequence[TensorInfo]
    constants: Mapping[str, Array] = field(default_factory=dict[str, Array])
    constant_names: Mapping[str, str] = field(default_factory=dict[str, str])
    scalar_inputs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    ranges: Mapping[str, SizeRange] = field(default_factory=dict[str, SizeRange])
    shardings: Mapping[str, P] = field(default_factory=dict[str, P])
    mutations: Mapping[str, str] = field(default_factory=dict[str, str])
    defaults: Mapping[str, Array] = field(default_factory=dict[str, Array])
