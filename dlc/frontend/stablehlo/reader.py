"""A StableHLO module → `dl` module and weights store.

    %3 = stablehlo.add %0, %2 : tensor<4x8xf32>   ⟶   %3 = dl.add %0, %2 : … loc("m.mlir":7:0)

Functions are read where they are called. What is not supported is an error at its line, all of it at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from dlc.arrays import TensorInfo
from dlc.dialects import dl
from dlc.dialects.dl.base import Array, element_type_of, shape_of, tensor_type
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.errors import DTypeError, ModelError, ShapeError, UnsupportedError
from dlc.frontend.entry import ReadModel, entry_function
from dlc.frontend.stablehlo import bits, elementwise, moving, places, sums, windows
from dlc.frontend.stablehlo.node import Converter, Node, element_of, type_of
from dlc.frontend.stablehlo.parser import parse
from dlc.frontend.stablehlo.syntax import Dense, Function, Op, Region
from dlc.ir import (
    Block,
    FileLineColLoc,
    IntAttr,
    ModuleOp,
    SSAValue,
    StringAttr,
    SymbolRefAttr,
)
from dlc.weights import WeightStore

OPERATORS: dict[str, Converter] = {
    **elementwise.OPERATORS, **bits.OPERATORS, **moving.OPERATORS, **places.OPERATORS, **sums.OPERATORS, **windows.OPERATORS,
}  # fmt: skip
_RETURNS = ("return", "func.return", "stablehlo.return")
_CALLS = ("call", "func.call")
# The most elements of a literal in the IR; a larger constant is a weight.
_LITERAL = 64


def is_stablehlo(text: str) -> bool:
    """Whether the text of a module is StableHLO, not one that dlc dumped."""
    return re.search(r"\bstablehlo\.", text) is not None


def read_module(text: str, name: str, inputs: Sequence[str] = ()) -> ReadModel:
    """The program of a module's text; `inputs` are names for its arguments.

    Raises ModelError for text that is none, UnsupportedError, which lists all, for what dlc does not support.
    """
    return _Reader(parse(text, name), name).run(inputs)


class _Reader:
    def __init__(self, functions: Mapping[str, Function], name: str) -> None:
        self.functions, self.name = functions, name
        self.weights = WeightStore()
        self.calls: list[str] = []

    def run(self, names: Sequence[str]) -> ReadModel:
        main = self.functions.get("main")
        if main is None:
            raise ModelError(f"{self.name}: no function is called @main; it has {', '.join(self.functions) or 'none'}")
        self._require_known()
        names = list(names) or [a.name.removeprefix("%") for a in main.body.arguments]
        block = Block(arg_types=[type_of(a.type, self.name) for a in main.body.arguments])
        for argument, name in zip(block.args, names, strict=True):
            argument.name_hint = re.sub(r"\W", "_", name)
        results = self._region(Build(block), main.body, block.args)
        said = [re.sub(r"^$", f"result{k}", str(a.get("jax.result_info", ""))) for k, a in enumerate(main.result_attributes)]
        infos = ([_info(n, v) for n, v in zip(ns, vs, strict=True)] for ns, vs in ((names, block.args), (said, results)))
        return ReadModel(ModuleOp([entry_function(block, names, results, said)]), self.weights, *map(tuple, infos))

    def _require_known(self) -> None:
        """Raises UnsupportedError for all ops that nothing reads, with their lines."""
        known = {*OPERATORS, *_RETURNS, *_CALLS, "stablehlo.constant", "stablehlo.while", "stablehlo.if", "stablehlo.case"}
        unknown: dict[str, list[int]] = {}

        def look(ops: Sequence[Op]) -> None:
            for op in ops:
                if op.name not in known:
                    called = op.attributes.get("callee") or op.attributes.get("call_target_name")
                    unknown.setdefault(f"{op.name} @{called}" if called else op.name, []).append(op.line)
                for region in op.regions:
                    look(region.ops)

        for function in self.functions.values():
            look(function.body.ops)
        if unknown:
            lines = [f"{op} (line {', '.join(map(str, lines))})" for op, lines in unknown.items()]
            raise UnsupportedError(f"{self.name}: ops that dlc does not support:\n  " + "\n  ".join(lines), lines)

    def _region(
        self, b: Build, region: Region, arguments: Sequence[SSAValue], outer: Mapping[str, SSAValue] = MappingProxyType({})
    ) -> Sequence[SSAValue]:
        """What a region returns for these arguments; it reads the names around it as well."""
        values = {**outer, **{a.name: v for a, v in zip(region.arguments, arguments, strict=True)}}
        for op in region.ops:
            operands = [self._value(values, name, op) for name in op.operands]
            if op.name in _RETURNS:
                return operands
            with b.at(FileLineColLoc(StringAttr(self.name), IntAttr(op.line), IntAttr(0))):
                results = self._results(b, op, operands, values)
            where = f"{self.name}:{op.line}: {op.name}"
            for name, result, type in zip(op.results, results, op.types, strict=True):
                if result.type != (expected := type_of(type, where)):
                    raise ModelError(f"{where}: its result is of type {result.type}, the text says {expected}")
                values[name] = result
        raise ModelError(f"{self.name}: a region that returns nothing")

    def _value(self, values: Mapping[str, SSAValue], name: str, op: Op) -> SSAValue:
        if name not in values:
            raise ModelError(f"{self.name}:{op.line}: {op.name}: nothing is called {name}")
        return values[name]

    def _results(self, b: Build, op: Op, operands: Sequence[SSAValue], values: Mapping[str, SSAValue]) -> Sequence[SSAValue]:
        where = f"{self.name}:{op.line}: {op.name}"
        if op.name == "stablehlo.constant":
            return [self._constant(b, op.attributes.get("value"), where)]
        if op.name in _CALLS:
            return self._call(b, str(op.attributes.get("callee")), operands, where)
        if op.name == "stablehlo.while":
            return self._while(b, op, operands, values)
        if op.name in ("stablehlo.if", "stablehlo.case"):
            return self._branches(b, op, operands[0], values, where)

        def inline(b: Build, region: Region, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
            return self._region(b, region, arguments, values)

        try:
            made = OPERATORS[op.name](Node(op, operands, b, inline, where))
        except (ShapeError, DTypeError) as error:
            raise ModelError(f"{where}: {error}") from error
        except (LookupError, ValueError) as error:
            raise ModelError(f"{where}: its operands or attributes do not fit together: {error}") from error
        return [made] if isinstance(made, SSAValue) else made

    def _call(self, b: Build, callee: str, operands: Sequence[SSAValue], where: str) -> Sequence[SSAValue]:
        if callee not in self.functions or callee in self.calls:
            raise ModelError(f"{where}: @{callee} {'calls itself' if callee in self.calls else 'is no function of the module'}")
        self.calls.append(callee)
        results = self._region(b, self.functions[callee].body, operands)
        self.calls.pop()
        return results

    def _constant(self, b: Build, value: object, where: str) -> SSAValue:
        if not isinstance(value, Dense):
            raise ModelError(f"{where}: a constant without a value")
        element = element_of(value.type, where)
        array = elements_of(value, numpy_dtype(element), where)
        if array.size and (array == array.flat[0]).all():
            one = b.constant(array.reshape(-1)[:1].reshape(()), element)
            return one if not array.ndim else b(dl.BroadcastToOp, one, shape=array.shape)
        if array.size <= _LITERAL and array.dtype.kind in "iub":
            return b.constant(array, element)
        return b(dl.WeightOp, symbol=SymbolRefAttr(self.weights.add(array)), type=tensor_type(array.shape, element))

    def _while(self, b: Build, op: Op, states: Sequence[SSAValue], values: Mapping[str, SSAValue]) -> Sequence[SSAValue]:
        condition, body = op.regions
        (begin,) = self._region(b, condition, states, values)
        block = Block(arg_types=[v.type for v in states])
        inner = Build(block, b.location)
        following = self._region(inner, body, block.args, values)
        block.add_op(dl.YieldOp([*self._region(inner, condition, following, values), *following]))
        return b.insert(dl.WhileOp.of(begin, states, block)).results

    def _branches(self, b: Build, op: Op, index: SSAValue, values: Mapping[str, SSAValue], where: str) -> Sequence[SSAValue]:
        """`if` has the branch that holds first; `case` takes the last one for any number that is none's."""
        types = [type_of(t, where) for t in op.types]
        regions = list(op.regions)

        def block(b: Build, rest: Sequence[Region], number: int) -> Block:
            body = Block()
            inner = Build(body, b.location)
            made = self._region(inner, rest[0], (), values) if len(rest) == 1 else chosen(inner, rest, number)
            body.add_op(dl.YieldOp(made))
            return body

        def chosen(b: Build, rest: Sequence[Region], number: int) -> Sequence[SSAValue]:
            condition = b(dl.EqualOp, index, b.scalar(number, like=index)) if op.name == "stablehlo.case" else index
            then, otherwise = block(b, rest[:1], number), block(b, rest[1:], number + 1)
            return b.insert(dl.IfOp.of(condition, then, otherwise, types)).results

        return chosen(b, regions, 0) if len(regions) > 1 else self._region(b, regions[0], (), values)


def elements_of(value: Dense, dtype: np.dtype[np.generic], where: str) -> Array:
    """The elements of a constant. Raises ModelError for text that does not hold so many."""
    shape, text = value.type.shape, value.text
    count = int(np.prod(shape, dtype=np.int64))
    if text.startswith('"0x'):
        flat = np.frombuffer(bytes.fromhex(text[3:-1]), dtype)
    elif text.startswith('"') or "__elided__" in text or (not text and count):
        raise ModelError(f"{where}: its elements are elided; print the module with all constants in it")
    else:
        flat = np.asarray([_number(part, dtype) for part in re.findall(r"[^\s,\[\]]+", text)], dtype)
    if flat.size not in (1, count):
        raise ModelError(f"{where}: {flat.size} elements for the shape {list(shape)}")
    return np.broadcast_to(flat.reshape(()) if flat.size == 1 else flat.reshape(shape), shape)


def _number(text: str, dtype: np.dtype[np.generic]) -> object:
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("0x") and dtype.kind not in "iub":
        return np.asarray(int(text, 16), f"u{dtype.itemsize}").view(dtype)[()]
    return int(text, 0) if dtype.kind in "iub" else float(text)


def _info(name: str, value: SSAValue) -> TensorInfo:
    return TensorInfo(name, shape_of(value), numpy_dtype(element_type_of(value)))
