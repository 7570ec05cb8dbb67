"""A TFLite file → `dl` module and weights store.

    CONV_2D (0, 8, 5) → (9,), tensor 9 called "conv1/Relu6"   ⟶   %y = dl.conv … ; %z = dl.add … loc("conv1/Relu6")

Operators stand in the order in which they run. What is not supported is noted and the reading goes on: the operator's results
become placeholders of the types that the file declares, so that one error lists it all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, count
from pathlib import Path

from dlc.arrays import TensorInfo
from dlc.dialects.dl.base import Array, element_type_of, shape_of, tensor_of, tensor_type
from dlc.dialects.dl.dtypes import element_type, numpy_dtype
from dlc.dims import Dim, Size, is_static
from dlc.errors import DTypeError, ModelError, UnsupportedError
from dlc.frontend.addressable import require_addressable
from dlc.frontend.emit import Emitter, Value, location
from dlc.frontend.entry import ReadModel, entry_function
from dlc.frontend.identifiers import identifier, short_name
from dlc.frontend.input_sizes import given_sizes
from dlc.frontend.problems import NodeProblem, Problem, as_problems, refusal
from dlc.frontend.tflite import control, moving, pointwise, products, recurrence, resizing, shaping, windows
from dlc.frontend.tflite.node import Converter, Node
from dlc.frontend.tflite.schema import Graph, Operator, Tensor, TfliteFile, read_file
from dlc.given_shapes import GivenShapes
from dlc.ir import Block, ModuleOp
from dlc.weights import WeightStore

OPERATORS: dict[str, Converter] = {
    **windows.table.entries,
    **products.table.entries,
    **pointwise.table.entries,
    **shaping.table.entries,
    **moving.table.entries,
    **resizing.table.entries,
    **control.table.entries,
    **recurrence.table.entries,
}
# Graphs that run graphs make a small file a large program, and a deep one: this many operators beside those of the file, of
# which each may be in graphs that two others run. No model comes near.
_MOST_OPERATORS = 10_000
_DEEPEST = 32


def read_model(
    source: Path | bytes, input_shapes: GivenShapes | None = None, input_values: Mapping[str, Array] | None = None
) -> ReadModel:
    """The program of a TFLite file, given as its path or its bytes.

    `input_shapes` replaces the shapes of inputs, `input_values` makes constants of inputs. Raises ModelError for a malformed
    file, ShapeError for shapes that contradict the model, UnsupportedError (listing every problem) for what dlc does not
    support; OpenInputsError if it can be read for known shapes of its inputs.
    """
    reader = _Reader(read_file(source), input_shapes or {}, input_values or {})
    return reader.run()


class _Reader:
    def __init__(self, file: TfliteFile, input_shapes: GivenShapes, input_values: Mapping[str, Array]) -> None:
        self.file, self.input_values = file, input_values
        self.input_shapes = {**input_shapes, **{name: value.shape for name, value in input_values.items()}}
        self.weights = WeightStore()
        self.problems: list[Problem] = []
        # Placeholders are arguments of a block that is part of no program.
        self._detached = Block()
        self._running: list[int] = []
        self._count = 0
        self._most = _MOST_OPERATORS + 4 * sum(len(graph.operators) for graph in file.graphs)

    def run(self) -> ReadModel:
        graph, block = self.file.graphs[0], Block()
        names = _distinct(self._names(graph, graph.inputs, self.file.input_names, "input"))
        stems = _distinct(map(identifier, names))
        declared = [self._declared(graph.tensors[k], *named) for k, *named in zip(graph.inputs, names, stems, strict=True)]
        infos = given_sizes(declared, self.input_shapes)
        self.emit = Emitter(block, self.weights)
        inputs = [i for i in infos if i.name not in self.input_values]
        values = [self._input(info) for info in infos]
        results = self._run(0, values, self.emit)
        result_names = _distinct(self._names(graph, graph.outputs, self.file.output_names, "output"))
        if self.problems:
            outputs = [
                self._declared(graph.tensors[k], n, identifier(n)) for k, n in zip(graph.outputs, result_names, strict=True)
            ]
            raise refusal(self.file.name, self.problems, inputs, outputs, bool(self.input_shapes))
        found = [self.emit.ssa(value) for value in results if value is not None]
        main = entry_function(block, [i.name for i in inputs], found, result_names)
        outputs = tuple(
            TensorInfo(name, shape_of(r), numpy_dtype(element_type_of(r))) for name, r in zip(result_names, found, strict=True)
        )
        return ReadModel(ModuleOp([main]), self.weights, tuple(inputs), outputs)

    def _names(self, graph: Graph, tensors: Sequence[int], signature: Mapping[int, str], kind: str) -> list[str]:
        return [signature.get(k) or graph.tensors[k].name or f"{kind}{n}" for n, k in enumerate(tensors)]

    def _declared(self, tensor: Tensor, name: str, stem: str) -> TensorInfo:
        """An input or output as the file declares it: sizes that it leaves open have a name each, of this stem."""
        sizes: list[Size] = [Dim.symbol(f"{stem}_{k}") if size < 0 else size for k, size in enumerate(tensor.signature)]
        try:
            return TensorInfo(name, tuple(sizes), tensor.dtype)
        except UnsupportedError as error:
            raise UnsupportedError(f"{self.file.name}: '{name}': {error}") from error

    def _input(self, info: TensorInfo) -> Value:
        given = self.input_values.get(info.name)
        if given is not None:
            if given.dtype != info.dtype:
                raise DTypeError(f"input '{info.name}': a value of {given.dtype} given where the model has {info.dtype}")
            return self.emit.constant(given, name=info.name)
        argument = self.emit.argument(tensor_type(info.shape, element_type(info.dtype)))
        require_addressable(f"input '{info.name}'", tensor_of(argument))
        argument.name_hint = short_name(info.name)
        return Value(tensor_of(argument), ssa=argument, name=info.name)

    # Graphs

    def _run(self, number: int, arguments: Sequence[Value | None], emit: Emitter) -> list[Value | None]:
        """The results of a graph of the file."""
        graph = self.file.graphs[number]
        if len(arguments) != len(graph.inputs):
            raise ModelError(f"{self.file.name}: graph {number} has {len(graph.inputs)} inputs, it is given {len(arguments)}")
        self._count += len(graph.operators)
        if self._count > self._most:
            raise ModelError(f"{self.file.name}: its graphs unfold to more than {self._most} operators")
        values: dict[int, Value | None] = dict(zip(graph.inputs, arguments, strict=True))
        for k, operator in enumerate(graph.operators):
            place = self._place(graph, k)
            read = [None if n < 0 else self._value(graph, n, values, emit, place) for n in operator.inputs]
            for n, value in zip(operator.outputs, self._results(graph, operator, read, emit, place), strict=True):
                values[n] = value
        return [self._value(graph, n, values, emit, f"output {k}") for k, n in enumerate(graph.outputs)]

    def _place(self, graph: Graph, k: int) -> str:
        operator = graph.operators[k]
        return f"operator {k} ({operator.kind}, '{graph.label(operator)}')"

    def _value(self, graph: Graph, n: int, values: dict[int, Value | None], emit: Emitter, place: str) -> Value | None:
        """A tensor that was made, or that the file holds; None where what makes it is not supported."""
        if n in values:
            return values[n]
        tensor = graph.tensors[n]
        try:
            dtype = tensor.dtype
            if tensor.is_sparse:
                raise UnsupportedError("sparse tensors are not supported")
        except UnsupportedError as error:
            self._note(f"tensor '{tensor.name}'", NodeProblem("dtype", str(error)))
            values[n] = None
            return None
        if tensor.data is not None or 0 in tensor.shape:
            values[n] = emit.constant(tensor.array(), name=tensor.name)
        elif tensor.is_variable:
            # What a model keeps between calls begins as 0 in each.
            require_addressable(place, tensor_type(tensor.shape, element_type(dtype)))
            zero = 0 if tensor.quantization is None else int(tensor.quantization.zeros[0])
            values[n] = emit.full(zero, tensor.shape, element_type(dtype))
        else:
            raise ModelError(f"{self.file.name}: {place}: reads tensor '{tensor.name}', which nothing has made")
        return values[n]

    def _results(
        self, graph: Graph, operator: Operator, inputs: Sequence[Value | None], emit: Emitter, place: str
    ) -> Sequence[Value | None]:
        try:
            if operator.kind not in OPERATORS:
                raise NodeProblem("operator", "not supported")
            if any(n >= 0 and value is None for n, value in zip(operator.inputs, inputs, strict=True)):
                return [self._placeholder(graph.tensors[n]) for n in operator.outputs]
            with emit.build.at(location(graph.label(operator))):
                return self._converted(graph, operator, inputs, emit, place)
        except NodeProblem as problem:
            self._note(place, problem)
            return [self._placeholder(graph.tensors[n]) for n in operator.outputs]

    def _converted(
        self, graph: Graph, operator: Operator, inputs: Sequence[Value | None], emit: Emitter, place: str
    ) -> Sequence[Value]:
        converter = OPERATORS[operator.kind]
        node = Node(operator, graph.tensors, inputs, converter.options, emit, partial(self._inlined, place), place)
        with as_problems(place, inputs):
            made = converter.convert(node)
            results = [made] if isinstance(made, Value) else list(made)
            for result, tensor in zip(results, node.results, strict=True):
                if result.element_type != (declared := element_type(tensor.dtype)):
                    raise ModelError(f"{place}: its result is of {result.element_type}, the file says {declared}")
                require_addressable(place, result.type)
                if result.ssa is not None and result.ssa.name_hint is None:
                    result.ssa.name_hint = short_name(tensor.name)
        return results

    def _inlined(self, place: str, number: int, arguments: Sequence[Value], emit: Emitter) -> Sequence[Value]:
        """The results of a graph that an operator runs."""
        if not 0 <= number < len(self.file.graphs) or number in self._running or number == 0:
            raise ModelError(f"{place}: graph {number} of {len(self.file.graphs)} is none that it can run")
        if len(self._running) == _DEEPEST:
            raise ModelError(f"{place}: graphs in graphs, more than {_DEEPEST} deep")
        self._running.append(number)
        results = self._run(number, arguments, emit)
        self._running.pop()
        known = [r for r in results if r is not None]
        if len(known) != len(results):
            raise NodeProblem("operator", f"graph {number}, which it runs, is not supported")
        return known

    def _placeholder(self, tensor: Tensor) -> Value | None:
        """A value of the type that the file declares; None where dlc has no such type."""
        try:
            type = tensor_type(tensor.shape, element_type(tensor.dtype))
        except UnsupportedError:
            return None
        return Value(type, ssa=self._detached.insert_arg(type, len(self._detached.args)), name=tensor.name)

    def _note(self, where: str, problem: NodeProblem) -> None:
        at_call = problem.kind == "value" and any(not is_static(shape_of(a.type)) for a in self.emit.block.args)
        found = Problem(where, problem.kind, problem.message, (), at_call)
        if found not in self.problems:
            self.problems.append(found)


def _distinct(names: Iterable[str]) -> list[str]:
    """The names, those that are taken with a number behind them."""
    made: dict[str, None] = {}
    numbers: dict[str, Iterator[int]] = {}
    for name in names:
        following = numbers.setdefault(name, count(1))
        made[next(n for n in chain([name], (f"{name}_{k}" for k in following)) if n not in made)] = None
    return list(made)
