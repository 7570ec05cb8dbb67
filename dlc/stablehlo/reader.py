"""Import a StableHLO module as a `dl` module and a weight store.

    %3 = stablehlo.add %0, %2 : tensor<4x8xf32>   ⟶   %3 = dl.add %0, %2 : … loc("m.mlir":7:0)

Functions are inlined at their calls. Unsupported ops are reported together, with their lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from dlc.arrays import TensorInfo
from dlc.dialects import dl
from dlc.dialects.dl.base import Tensor, element_type_of, is_storage_only, rank_of, shape_of, tensor_of, tensor_type
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.programs.size_ranges import set_size_ranges
from dlc.dialects.entry import entry_of
from dlc.errors import DTypeError, ModelError, ShapeError, UnsupportedError
from dlc.frontend.complex_numbers import Complex
from dlc.frontend.entry import ImportedProgram, entry_function
from dlc.frontend.identifiers import short_name
from dlc.frontend.trace import Trace, Tracer, tracing
from dlc.ir import Block, FileLineColLoc, IntAttr, ModuleOp, SSAValue, StringAttr
from dlc.plugins.tables import ExtensionTable
from dlc.runtime.collectives.mesh import Mesh
from dlc.shapes.dims import UndecidableError
from dlc.shapes.ranges import SizeRange
from dlc.stablehlo import (
    bits,
    complex_numbers,
    contraction_reduction,
    data_movement,
    dynamic_shapes,
    elementwise,
    gather_scatter,
    linear_algebra,
    random_bits,
    shardings,
    sorting,
    special_functions,
    storage_types,
    window_reduction,
)
from dlc.stablehlo.collectives import COLLECTIVES, MANUAL_COMPUTATION, from_shards, mesh_of, to_shards
from dlc.stablehlo.constants import complex_components, dense_elements
from dlc.stablehlo.dynamic_shapes import ASSERTION, argument_symbols, asserted_range
from dlc.stablehlo.node import (
    Converter,
    StableHloNode,
    StableHloValue,
    element_of,
    flatten_complex,
    has_type,
    leaf_types,
    unflatten_complex,
)
from dlc.stablehlo.parser import parse
from dlc.stablehlo.syntax import Dense, FunctionSyntax, Op, Region, Type

OPERATORS: ExtensionTable[str, Converter] = ExtensionTable("stablehlo_converters", {
    **elementwise.OPERATORS, **bits.OPERATORS, **data_movement.OPERATORS, **gather_scatter.OPERATORS,
    **contraction_reduction.OPERATORS, **window_reduction.OPERATORS, **sorting.OPERATORS,
    **linear_algebra.OPERATORS, **special_functions.OPERATORS, **dynamic_shapes.OPERATORS, **random_bits.OPERATORS,
    "sdy.sharding_constraint": shardings.sharding_constraint,
})  # fmt: skip
COMPLEX_OPERATORS: Mapping[str, Converter] = {**complex_numbers.OPERATORS, **linear_algebra.COMPLEX_OPERATORS}
_RETURNS = ("return", "func.return", "stablehlo.return", "sdy.return")
_CALLS = ("call", "func.call")
_BRANCHES = ("stablehlo.if", "stablehlo.case")
_COMPOSITE = "stablehlo.composite"
# Integer constants with up to this many elements are literals in the IR; larger ones are weights.
_MAX_LITERAL_ELEMENTS = 64


def is_stablehlo(text: str) -> bool:
    """Return whether the text of a module is StableHLO rather than a dump of dlc: by its ops, or an attribute of its module."""
    return re.search(r'(?:^|=)\s*"?(?:stablehlo|chlo)\.|\bmhlo\.num_', text, re.MULTILINE) is not None


def read_module(text: str, name: str, inputs: Sequence[str] = ()) -> ImportedProgram:
    """Import the text of a module; `inputs` are names for its arguments.

    Raises ModelError for malformed text, UnsupportedError, which lists every problem, for unsupported ops.
    """
    return read_functions(parse(text, name), name, inputs)


def read_functions(functions: Mapping[str, FunctionSyntax], name: str, inputs: Sequence[str] = ()) -> ImportedProgram:
    """Import the functions of a parsed module; see `read_module`."""
    return _StableHloReader(functions, name).run(inputs)


class _StableHloReader:
    def __init__(self, functions: Mapping[str, FunctionSyntax], name: str) -> None:
        self.functions, self.name = functions, name
        self.trace = Trace()
        self.calls: list[str] = []
        # The ranges of symbolic sizes that assertions state.
        self.ranges: dict[str, SizeRange] = {}
        # The mesh of the manual computation that is being read.
        self.mesh: Mesh | None = None

    def run(self, names: Sequence[str]) -> ImportedProgram:
        main = self.functions.get("main")
        if main is None:
            raise ModelError(f"{self.name}: it has no function @main; its functions are {', '.join(self.functions) or 'none'}")
        self._require_supported()
        symbols = argument_symbols(main, self.functions)
        types, block = [a.type for a in main.body.arguments], self.trace.block
        names = _names(types, list(names) or [a.name.removeprefix("%") for a in main.body.arguments])
        arrays = [(a.name, type_) for a in main.body.arguments for type_ in leaf_types([a.type])]
        for k, ((argument, type), name) in enumerate(zip(arrays, names, strict=True)):
            shape = [symbols.get((argument, axis), size) for axis, size in enumerate(type.shape)]
            block.insert_arg(tensor_type(shape, element_of(type, self.name)), k).name_hint = short_name(name)
        with tracing(self.trace):
            values = self._region(main.body, unflatten_complex(types, iter(block.args), self.trace))
        results = flatten_complex(values)
        if len(values) != len(main.results):
            line = main.body.ops[-1].line
            raise ModelError(f"{self.name}:{line}: @main returns {len(values)} values, its signature has {len(main.results)}")
        declared = [
            re.sub(r"^$", f"result{k}", str(a.get("jax.result_info", ""))) for k, a in enumerate(main.result_attributes)
        ]
        declared = _names(main.results, declared)
        infos = ([_info(n, v) for n, v in zip(ns, vs, strict=True)] for ns, vs in ((names, block.args), (declared, results)))
        function = entry_function(block, names, results, declared)
        argument_attributes = [a.attributes for a in main.body.arguments for _ in leaf_types([a.type])]
        result_attributes = [a for a, t in zip(main.result_attributes, main.results, strict=True) for _ in leaf_types([t])]
        ranks = [[rank_of(v) for v in values] for values in (block.args, results)]
        assert function.arg_attrs is not None and function.res_attrs is not None
        function.arg_attrs = shardings.store(function.arg_attrs, argument_attributes, ranks[0], self.name)
        function.res_attrs = shardings.store(function.res_attrs, result_attributes, ranks[1], self.name)
        module = ModuleOp([function])
        set_size_ranges(entry_of(module), self.ranges)
        return ImportedProgram(module, self.trace.weights, *map(tuple, infos))

    def _require_supported(self) -> None:
        """Raise UnsupportedError for all unsupported ops, with their lines."""
        supported = {*OPERATORS, *COMPLEX_OPERATORS, *_RETURNS, ASSERTION, "stablehlo.constant", *_BRANCHES, "stablehlo.while"}
        supported.add(MANUAL_COMPUTATION)
        unsupported, called, worklist = dict[str, list[int]](), {"main"}, ["main"]

        def visit(ops: Sequence[Op], is_manual: bool = False) -> None:
            for op in map(self._resolve_callee, ops):
                if op.name in _CALLS and op.attributes.get("callee") in self.functions.keys() - called:
                    callee = str(op.attributes["callee"])
                    called.add(callee)
                    worklist.append(callee)
                elif op.name not in _CALLS and op.called not in supported and not (is_manual and op.name in COLLECTIVES):
                    unsupported.setdefault(op.called, []).append(op.line)
                for region in op.regions:
                    visit(region.ops, is_manual or op.name == MANUAL_COMPUTATION)

        while worklist:
            visit(self.functions[worklist.pop()].body.ops)
        if unsupported:
            lines = [f"{op} (line {', '.join(map(str, lines))}){_workaround(op)}" for op, lines in unsupported.items()]
            raise UnsupportedError(f"{self.name}: ops that dlc does not support:\n  " + "\n  ".join(lines), lines)

    def _resolve_callee(self, op: Op) -> Op:
        """Replace a composite by the op of its name or a call of its decomposition, and called computations by regions.

        Operands that repeat the shapes of results are dropped: they follow from the other operands.
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
            shape_operands = {int(n) for n in re.findall(r"\d+", shapes.text)}
            op = replace(op, operands=tuple(name for k, name in enumerate(op.operands) if k not in shape_operands))
        return replace(op, regions=regions) if regions else op

    def _region(
        self,
        region: Region,
        arguments: Sequence[StableHloValue],
        outer: Mapping[str, StableHloValue] = MappingProxyType({}),
        *,
        is_elementwise_body: bool = False,
    ) -> Sequence[StableHloValue]:
        """Inline a region, which also sees the names of the enclosing regions, and return its results.

        With `is_elementwise_body`, a body written for scalars is applied to whole arrays.
        """
        values = {**outer, **{a.name: v for a, v in zip(region.arguments, arguments, strict=True)}}
        for op in map(self._resolve_callee, region.ops):
            operands = [self._value(values, name, op) for name in op.operands]
            if op.name in _RETURNS:
                return operands
            location = FileLineColLoc(StringAttr(self.name), IntAttr(op.line), IntAttr(0))
            with self.trace.at(location), self.trace.build.at_location(location):
                results = self._checked_results(op, operands, values, is_elementwise_body)
            where = f"{self.name}:{op.line}: {op.name}"
            if len(results) != len(op.results):
                raise ModelError(f"{where}: it has {len(results)} results, expected {len(op.results)}")
            for name, result, type in zip(op.results, results, op.types, strict=True):
                leaves, declared = flatten_complex([result]), leaf_types([type])
                if len(leaves) != len(declared) or not all(
                    has_type(leaf, type_, where, elements_only=is_elementwise_body)
                    for leaf, type_ in zip(leaves, declared, strict=True)
                ):
                    raise ModelError(f"{where}: its result has type {leaves[0].type}, expected {type}")
                values[name] = result
        raise ModelError(f"{self.name}: a region without a return")

    def _value(self, values: Mapping[str, StableHloValue], name: str, op: Op) -> StableHloValue:
        if name not in values:
            raise ModelError(f"{self.name}:{op.line}: {op.name}: undefined value {name}")
        return values[name]

    def _checked_results(
        self, op: Op, operands: Sequence[StableHloValue], values: Mapping[str, StableHloValue], is_elementwise_body: bool
    ) -> Sequence[StableHloValue]:
        """Return the results of an op; errors of Python about malformed operands or attributes become a ModelError."""
        where = f"{self.name}:{op.line}: {op.name}"
        try:
            return self._results(op, operands, values, is_elementwise_body)
        except UndecidableError as error:
            raise UnsupportedError(f"{where}: {error}; export it for static shapes") from error
        except (ShapeError, DTypeError) as error:
            raise ModelError(f"{where}: {error}") from error
        except (LookupError, TypeError, ValueError) as error:
            raise ModelError(f"{where}: its operands or attributes do not fit together: {error}") from error

    def _results(
        self, op: Op, operands: Sequence[StableHloValue], values: Mapping[str, StableHloValue], is_elementwise_body: bool
    ) -> Sequence[StableHloValue]:
        where = f"{self.name}:{op.line}: {op.name}"
        if op.name == "stablehlo.constant":
            return [self._constant(op.attributes.get("value"), where)]
        if op.name in _CALLS:
            return self._call(str(op.attributes.get("callee")), operands, where, is_elementwise_body)
        if op.called == ASSERTION:
            # Sizes follow from the argument types, which are checked in each call.
            if (declared := asserted_range(flatten_complex(operands)[0])) is not None:
                name, range_ = declared
                previous = self.ranges.get(name, SizeRange())
                highs = [high for high in (previous.high, range_.high) if high is not None]
                self.ranges[name] = SizeRange(max(previous.low, range_.low), min(highs, default=None))
            return []
        if op.regions and is_elementwise_body:
            raise UnsupportedError(f"{where}: not supported in the body of a reduction")
        if op.name == "stablehlo.while":
            return self._while(op, operands, values)
        if op.name in _BRANCHES:
            (index,) = flatten_complex(operands)
            return self._branches(op, index, values, where)

        def inline(region: Region, arrays: Sequence[StableHloValue]) -> Sequence[StableHloValue]:
            return self._region(region, arrays, values, is_elementwise_body=True)

        node = StableHloNode(op, operands, self.trace, inline, where)
        if op.name == MANUAL_COMPUTATION:
            return self._manual_computation(node)
        if op.name in COLLECTIVES:
            if self.mesh is None or node.has_complex:
                raise UnsupportedError(
                    f"{where}: {op.name} is supported for real numbers inside of a {MANUAL_COMPUTATION} only"
                )
            return [COLLECTIVES[op.name](node, self.mesh)]
        table = COMPLEX_OPERATORS if node.has_complex else OPERATORS
        if op.called not in table:
            raise UnsupportedError(f"{where}: not supported for {'complex' if node.has_complex else 'real'} operands")
        if storage_types.has_storage_only(node):
            return storage_types.convert_in_compute_types(node, table[op.called])
        result = table[op.called](node)
        return [result] if isinstance(result, SSAValue | Complex) else result

    def _manual_computation(self, node: StableHloNode) -> Sequence[StableHloValue]:
        """Inline the body of a manual computation."""
        attributes, where, build = node.op.attributes, node.where, self.trace.build
        if self.mesh is not None or node.has_complex:
            raise UnsupportedError(
                f"{where}: {MANUAL_COMPUTATION} is supported for real numbers, and not inside of another one"
            )
        self.mesh = mesh = mesh_of(attributes, where)
        pairs = zip(node.operands, attributes["in_shardings"], strict=True)
        shards = [to_shards(build, mesh, x, sharding, where) for x, sharding in pairs]
        results = flatten_complex(self._region(node.op.regions[0], shards))
        self.mesh = None
        pairs = zip(results, attributes["out_shardings"], strict=True)
        return [from_shards(build, mesh, x, sharding, where) for x, sharding in pairs]

    def _call(
        self, callee: str, operands: Sequence[StableHloValue], where: str, is_elementwise_body: bool
    ) -> Sequence[StableHloValue]:
        if callee not in self.functions or callee in self.calls:
            raise ModelError(
                f"{where}: @{callee} {'calls itself' if callee in self.calls else 'is not a function of the module'}"
            )
        self.calls.append(callee)
        results = self._region(self.functions[callee].body, operands, is_elementwise_body=is_elementwise_body)
        self.calls.pop()
        return results

    def _constant(self, value: object, where: str) -> StableHloValue:
        if not isinstance(value, Dense):
            raise ModelError(f"{where}: a constant without a value")
        if value.type.component is not None:
            return Complex(
                *(Tracer(self.trace, self._real_constant(component, where)) for component in complex_components(value))
            )
        return self._real_constant(value, where)

    def _real_constant(self, value: Dense, where: str) -> SSAValue:
        """Emit a real constant."""
        element, build = element_of(value.type, where), self.trace.build
        array = dense_elements(value, numpy_dtype(element), where)
        # Bits differ where the sign of zeros does.
        bits = array.view(f"u{array.itemsize}")
        if array.size and (bits == bits.flat[0]).all() and not is_storage_only(element):
            scalar = build.constant(array.reshape(-1)[:1].reshape(()), element)
            return scalar if not array.ndim else build(dl.BroadcastToOp, scalar, shape=array.shape)
        if array.size <= _MAX_LITERAL_ELEMENTS and array.dtype.kind in "iub":
            return build.constant(array, element)
        return build.insert(dl.WeightOp.of(self.trace.weights.add(array), array, tensor_type(array.shape, element))).results[0]

    def _while(
        self, op: Op, states: Sequence[StableHloValue], values: Mapping[str, StableHloValue]
    ) -> Sequence[StableHloValue]:
        condition, body = op.regions
        init_cond = flatten_complex(self._region(condition, states, values))
        leaves = flatten_complex(states)
        block = Block(arg_types=[v.type for v in leaves])
        with self.trace.in_body(block):
            next_states = self._region(body, unflatten_complex(op.types, iter(block.args), self.trace), values)
            cond = self._region(condition, next_states, values)
        block.add_op(dl.YieldOp(flatten_complex([*cond, *next_states])))
        loop = self.trace.build.insert(dl.WhileOp.of(init_cond[0], leaves, block))
        return unflatten_complex(op.types, iter(loop.results), self.trace)

    def _branches(self, op: Op, index: SSAValue, values: Mapping[str, StableHloValue], where: str) -> Sequence[StableHloValue]:
        """Emit a conditional: `if` has the true branch first; `case` uses the last branch for out-of-range indices."""
        regions = list(op.regions)

        def branch_block(remaining: Sequence[Region], number: int) -> tuple[Block, list[Tensor]]:
            body = Block()
            with self.trace.in_body(body):
                outputs = (
                    flatten_complex(self._region(remaining[0], (), values))
                    if len(remaining) == 1
                    else emit_if(remaining, number)
                )
            body.add_op(dl.YieldOp(outputs))
            return body, [tensor_of(v) for v in outputs]

        def emit_if(remaining: Sequence[Region], number: int) -> Sequence[SSAValue]:
            build = self.trace.build
            condition = build(dl.EqualOp, index, build.scalar(number, like=index)) if op.name == "stablehlo.case" else index
            (then, types), (otherwise, else_types) = (
                branch_block(remaining[:1], number),
                branch_block(remaining[1:], number + 1),
            )
            if types != else_types:
                then_text, else_text = (", ".join(map(str, result_types)) for result_types in (types, else_types))
                raise UnsupportedError(
                    f"{where}: branches return different types, {then_text} and {else_text}; export it for static shapes"
                )
            return build.insert(dl.IfOp.of(condition, then, otherwise, types)).results

        if len(regions) == 1:
            return self._region(regions[0], (), values)
        return unflatten_complex(op.types, iter(emit_if(regions, 0)), self.trace)


def _names(types: Sequence[Type], names: Sequence[str]) -> list[str]:
    """Return the names of the arrays of these values: `<name>.real` and `<name>.imag` for a complex value."""
    pairs = zip(types, names, strict=True)
    return [full for type, name in pairs for full in ([name] if type.component is None else [f"{name}.real", f"{name}.imag"])]


def _workaround(op: str) -> str:
    """Return what to do about an unsupported op, as the end of a message."""
    if not op.endswith("_callback"):
        return ""
    return (
        ": a call of Python, from jax.pure_callback, jax.debug.print or equinox.error_if; remove it, for equinox by the "
        "environment variable EQX_ON_ERROR=nan"
    )


def _info(name: str, value: SSAValue) -> TensorInfo:
    return TensorInfo(name, shape_of(value), numpy_dtype(element_type_of(value)))
