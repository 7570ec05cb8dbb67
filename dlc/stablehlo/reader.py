"""A StableHLO module → `dl` module and weights store.

    %3 = stablehlo.add %0, %2 : tensor<4x8xf32>   ⟶   %3 = dl.add %0, %2 : … loc("m.mlir":7:0)

Functions are read where they are called. What is not supported is an error at its line, all of it at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from dlc.arrays import TensorInfo
from dlc.dialects import dl
from dlc.dialects.dl.base import Array, Tensor, element_type_of, shape_of, tensor_of, tensor_type
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.programs.ranges import state_ranges
from dlc.dialects.entry import entry_of
from dlc.dims import Range, UndecidableError
from dlc.errors import DTypeError, ModelError, ShapeError, UnsupportedError
from dlc.frontend.complex_numbers import Complex
from dlc.frontend.entry import ReadModel, entry_function
from dlc.frontend.trace import Trace, Tracer, tracing
from dlc.ir import Block, FileLineColLoc, IntAttr, ModuleOp, SSAValue, StringAttr, SymbolRefAttr
from dlc.stablehlo import bits, complex_numbers, elementwise, factors, moving, open_sizes, places, special, sums, windows
from dlc.stablehlo.node import Converter, Node, Value, element_of, is_of, leaves_of, of_leaves, parts_in
from dlc.stablehlo.open_sizes import ASSERTION, asserted, symbols_of
from dlc.stablehlo.parser import parse
from dlc.stablehlo.syntax import Dense, Function, Op, Region, Type

OPERATORS: dict[str, Converter] = {
    **elementwise.OPERATORS, **bits.OPERATORS, **moving.OPERATORS, **places.OPERATORS, **sums.OPERATORS, **windows.OPERATORS,
    **factors.OPERATORS, **special.OPERATORS, **open_sizes.OPERATORS,
}  # fmt: skip
OF_COMPLEX = complex_numbers.OPERATORS
_RETURNS = ("return", "func.return", "stablehlo.return")
_CALLS = ("call", "func.call")
_BRANCHES = ("stablehlo.if", "stablehlo.case")
_COMPOSITE = "stablehlo.composite"
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
        self.trace = Trace()
        self.calls: list[str] = []
        # What its assertions say of sizes.
        self.ranges: dict[str, Range] = {}

    def run(self, names: Sequence[str]) -> ReadModel:
        main = self.functions.get("main")
        if main is None:
            raise ModelError(f"{self.name}: no function is called @main; it has {', '.join(self.functions) or 'none'}")
        self._require_known()
        symbols = symbols_of(main, self.functions)
        types, block = [a.type for a in main.body.arguments], self.trace.block
        names = _names(types, list(names) or [a.name.removeprefix("%") for a in main.body.arguments])
        arrays = [(a.name, part) for a in main.body.arguments for part in parts_in([a.type])]
        for k, ((argument, type), name) in enumerate(zip(arrays, names, strict=True)):
            shape = [symbols.get((argument, axis), size) for axis, size in enumerate(type.shape)]
            block.insert_arg(tensor_type(shape, element_of(type, self.name)), k).name_hint = re.sub(r"\W", "_", name)
        with tracing(self.trace):
            values = self._region(main.body, of_leaves(types, iter(block.args), self.trace))
        results = leaves_of(values)
        said = [re.sub(r"^$", f"result{k}", str(a.get("jax.result_info", ""))) for k, a in enumerate(main.result_attributes)]
        said = _names(main.results, said)
        infos = ([_info(n, v) for n, v in zip(ns, vs, strict=True)] for ns, vs in ((names, block.args), (said, results)))
        module = ModuleOp([entry_function(block, names, results, said)])
        state_ranges(entry_of(module), self.ranges)
        return ReadModel(module, self.trace.weights, *map(tuple, infos))

    def _require_known(self) -> None:
        """Raises UnsupportedError for all ops that nothing reads, with their lines."""
        known = {*OPERATORS, *OF_COMPLEX, *_RETURNS, ASSERTION, "stablehlo.constant", *_BRANCHES, "stablehlo.while"}
        unknown, called, left = dict[str, list[int]](), {"main"}, ["main"]

        def look(ops: Sequence[Op]) -> None:
            for op in map(self._plain, ops):
                if op.name in _CALLS and op.attributes.get("callee") in self.functions.keys() - called:
                    callee = str(op.attributes["callee"])
                    called.add(callee)
                    left.append(callee)
                elif op.name not in _CALLS and op.called not in known:
                    unknown.setdefault(op.called, []).append(op.line)
                for region in op.regions:
                    look(region.ops)

        while left:
            look(self.functions[left.pop()].body.ops)
        if unknown:
            lines = [f"{op} (line {', '.join(map(str, lines))})" for op, lines in unknown.items()]
            raise UnsupportedError(f"{self.name}: ops that dlc does not support:\n  " + "\n  ".join(lines), lines)

    def _plain(self, op: Op) -> Op:
        """A composite as the op that it is, or a call of what it is made of; what calls functions, with them as regions.

        Of what is given the shapes of its results they are left out: they are those of its other operands.
        """
        if op.name == _COMPOSITE:
            name = str(op.attributes.get("name"))
            if name in OPERATORS:
                return replace(op, name=name, attributes=op.attributes.get("composite_attributes", {}))
            return replace(op, name=_CALLS[0], attributes={"callee": op.attributes.get("decomposition")})
        called: Any = op.attributes.get("called_computations", ())
        regions = tuple(self.functions[name].body for name in called if name in self.functions)
        shapes = op.attributes.get("indices_of_shape_operands")
        if isinstance(shapes, Dense):
            hidden = {int(n) for n in re.findall(r"\d+", shapes.text)}
            op = replace(op, operands=tuple(name for k, name in enumerate(op.operands) if k not in hidden))
        return replace(op, regions=regions) if regions else op

    def _region(
        self,
        region: Region,
        arguments: Sequence[Value],
        outer: Mapping[str, Value] = MappingProxyType({}),
        *,
        of_arrays: bool = False,
    ) -> Sequence[Value]:
        """What a region returns for these arguments; it reads the names around it as well.

        One that is written for single elements is run for whole arrays if it is said to be `of_arrays`.
        """
        values = {**outer, **{a.name: v for a, v in zip(region.arguments, arguments, strict=True)}}
        for op in map(self._plain, region.ops):
            operands = [self._value(values, name, op) for name in op.operands]
            if op.name in _RETURNS:
                return operands
            place = FileLineColLoc(StringAttr(self.name), IntAttr(op.line), IntAttr(0))
            with self.trace.at(place), self.trace.build.at(place):
                results = self._results(op, operands, values, of_arrays)
            where = f"{self.name}:{op.line}: {op.name}"
            for name, result, type in zip(op.results, results, op.types, strict=True):
                leaves, said = leaves_of([result]), parts_in([type])
                if len(leaves) != len(said) or not all(
                    is_of(leaf, part, where, of_arrays=of_arrays) for leaf, part in zip(leaves, said, strict=True)
                ):
                    raise ModelError(f"{where}: its result is of type {leaves[0].type}, the text says {type}")
                values[name] = result
        raise ModelError(f"{self.name}: a region that returns nothing")

    def _value(self, values: Mapping[str, Value], name: str, op: Op) -> Value:
        if name not in values:
            raise ModelError(f"{self.name}:{op.line}: {op.name}: nothing is called {name}")
        return values[name]

    def _results(self, op: Op, operands: Sequence[Value], values: Mapping[str, Value], of_arrays: bool) -> Sequence[Value]:
        where = f"{self.name}:{op.line}: {op.name}"
        if op.name == "stablehlo.constant":
            return [self._constant(op.attributes.get("value"), where)]
        if op.name in _CALLS:
            return self._call(str(op.attributes.get("callee")), operands, where, of_arrays)
        if op.called == ASSERTION:
            # Types say what sizes are, and a call is compared with them.
            if (said := asserted(leaves_of(operands)[0])) is not None:
                name, range_ = said
                before = self.ranges.get(name, Range())
                highs = [high for high in (before.high, range_.high) if high is not None]
                self.ranges[name] = Range(max(before.low, range_.low), min(highs, default=None))
            return []
        if op.regions and of_arrays:
            raise UnsupportedError(f"{where}: in the body of a reduction")
        if op.name == "stablehlo.while":
            return self._while(op, operands, values)
        if op.name in _BRANCHES:
            (index,) = leaves_of(operands)
            return self._branches(op, index, values, where)

        def inline(region: Region, arrays: Sequence[Value]) -> Sequence[Value]:
            return self._region(region, arrays, values, of_arrays=True)

        node = Node(op, operands, self.trace, inline, where)
        table = OF_COMPLEX if node.has_complex else OPERATORS
        if op.called not in table:
            raise UnsupportedError(f"{where}: of {'complex' if node.has_complex else 'real'} numbers is not supported")
        try:
            made = table[op.called](node)
        except UndecidableError as error:
            raise UnsupportedError(f"{where}: {error}; export it for known sizes") from error
        except (ShapeError, DTypeError) as error:
            raise ModelError(f"{where}: {error}") from error
        except (LookupError, ValueError) as error:
            raise ModelError(f"{where}: its operands or attributes do not fit together: {error}") from error
        return [made] if isinstance(made, SSAValue | Complex) else made

    def _call(self, callee: str, operands: Sequence[Value], where: str, of_arrays: bool) -> Sequence[Value]:
        if callee not in self.functions or callee in self.calls:
            raise ModelError(f"{where}: @{callee} {'calls itself' if callee in self.calls else 'is no function of the module'}")
        self.calls.append(callee)
        results = self._region(self.functions[callee].body, operands, of_arrays=of_arrays)
        self.calls.pop()
        return results

    def _constant(self, value: object, where: str) -> Value:
        if not isinstance(value, Dense):
            raise ModelError(f"{where}: a constant without a value")
        if value.type.part is not None:
            return Complex(*(Tracer(self.trace, self._numbers(part, where)) for part in parts_of_text(value)))
        return self._numbers(value, where)

    def _numbers(self, value: Dense, where: str) -> SSAValue:
        """A constant of real numbers."""
        element, b = element_of(value.type, where), self.trace.build
        array = elements_of(value, numpy_dtype(element), where)
        if array.size and (array == array.flat[0]).all():
            one = b.constant(array.reshape(-1)[:1].reshape(()), element)
            return one if not array.ndim else b(dl.BroadcastToOp, one, shape=array.shape)
        if array.size <= _LITERAL and array.dtype.kind in "iub":
            return b.constant(array, element)
        return b(dl.WeightOp, symbol=SymbolRefAttr(self.trace.weights.add(array)), type=tensor_type(array.shape, element))

    def _while(self, op: Op, states: Sequence[Value], values: Mapping[str, Value]) -> Sequence[Value]:
        condition, body = op.regions
        begin = leaves_of(self._region(condition, states, values))
        leaves = leaves_of(states)
        block = Block(arg_types=[v.type for v in leaves])
        with self.trace.inside(block):
            following = self._region(body, of_leaves(op.types, iter(block.args), self.trace), values)
            going = self._region(condition, following, values)
        block.add_op(dl.YieldOp(leaves_of([*going, *following])))
        made = self.trace.build.insert(dl.WhileOp.of(begin[0], leaves, block))
        return of_leaves(op.types, iter(made.results), self.trace)

    def _branches(self, op: Op, index: SSAValue, values: Mapping[str, Value], where: str) -> Sequence[Value]:
        """`if` has the branch that holds first; `case` takes the last one for any number that is none's."""
        regions = list(op.regions)

        def block(rest: Sequence[Region], number: int) -> tuple[Block, list[Tensor]]:
            body = Block()
            with self.trace.inside(body):
                made = leaves_of(self._region(rest[0], (), values)) if len(rest) == 1 else chosen(rest, number)
            body.add_op(dl.YieldOp(made))
            return body, [tensor_of(v) for v in made]

        def chosen(rest: Sequence[Region], number: int) -> Sequence[SSAValue]:
            b = self.trace.build
            condition = b(dl.EqualOp, index, b.scalar(number, like=index)) if op.name == "stablehlo.case" else index
            (then, types), (otherwise, others) = block(rest[:1], number), block(rest[1:], number + 1)
            if types != others:
                one, other = (", ".join(map(str, found)) for found in (types, others))
                raise UnsupportedError(f"{where}: one branch gives {one}, another one {other}; export it for known sizes")
            return b.insert(dl.IfOp.of(condition, then, otherwise, types)).results

        if len(regions) == 1:
            return self._region(regions[0], (), values)
        return of_leaves(op.types, iter(chosen(regions, 0)), self.trace)


def _names(types: Sequence[Type], names: Sequence[str]) -> list[str]:
    """Names of the arrays of values with these names."""
    pairs = zip(types, names, strict=True)
    return [full for type, name in pairs for full in ([name] if type.part is None else [f"{name}.real", f"{name}.imag"])]


def parts_of_text(value: Dense) -> tuple[Dense, Dense]:
    """The real and the imaginary parts of a constant of complex numbers."""
    part = value.type.part
    assert part is not None
    if value.text.startswith('"0x'):
        width = 8 if part.element == "f64" else 4
        words = re.findall(rf".{{{2 * width}}}", value.text[3:-1])
        real, imag = (f'"0x{"".join(words[k::2])}"' for k in range(2))
    else:
        # (1.0,2.0): all else is brackets and commas.
        pairs = re.findall(r"\(([^,()]+),([^,()]+)\)", value.text)
        real, imag = (", ".join(pair[k].strip() for pair in pairs) for k in range(2))
    return Dense(real, part), Dense(imag, part)


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
