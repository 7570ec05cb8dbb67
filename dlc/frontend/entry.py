"""The entry function of a program, `func @main`, with the names of its arguments and results as attributes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dlc.arrays import TensorInfo
from dlc.ir import ArrayAttr, Block, DictionaryAttr, ModuleOp, Region, SSAValue, StringAttr, func
from dlc.weights import WeightStore


@dataclass(frozen=True)
class ImportedProgram:
    """An imported model: `func @main` in a module of `dl` ops, and its constants."""

    module: ModuleOp
    weights: WeightStore
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]


def entry_function(block: Block, names: Iterable[str], results: Sequence[SSAValue], result_names: Iterable[str]) -> func.FuncOp:
    """Wrap a block into `func @main`, which returns `results` and takes the arguments of the block."""
    block.add_op(func.ReturnOp(*results))
    main = func.FuncOp("main", ([a.type for a in block.args], [r.type for r in results]), Region(block))
    main.arg_attrs, main.res_attrs = _name_attributes(names), _name_attributes(result_names)
    return main


def _name_attributes(names: Iterable[str]) -> ArrayAttr[DictionaryAttr]:
    return ArrayAttr([DictionaryAttr({"dl.name": StringAttr(name)}) for name in names])
