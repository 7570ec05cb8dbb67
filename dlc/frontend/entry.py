"""The entry of a program: `func @main`, of whose arguments and results the names are attributes; and what has one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlc.arrays import TensorInfo
from dlc.ir import ArrayAttr, Block, DictionaryAttr, ModuleOp, Region, SSAValue, StringAttr, func
from dlc.weights import WeightStore


@dataclass(frozen=True)
class ReadModel:
    """A model as `dl` ops: `func @main`, and its constants."""

    module: ModuleOp
    weights: WeightStore
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]


def entry_function(block: Block, names: Iterable[str], results: Sequence[SSAValue], result_names: Iterable[str]) -> func.FuncOp:
    """The function of a block that is to return `results`, and takes its arguments."""
    block.add_op(func.ReturnOp(*results))
    main = func.FuncOp("main", ([a.type for a in block.args], [r.type for r in results]), Region(block))
    main.arg_attrs, main.res_attrs = _named(names), _named(result_names)
    return main


def _named(names: Iterable[str]) -> ArrayAttr[DictionaryAttr]:
    return ArrayAttr([DictionaryAttr({"dl.name": StringAttr(name)}) for name in names])
