"""Diagnostics of an import: record unsupported features, and substitute placeholders so that the import continues.

The results of an unsupported node become placeholders of the types that the file declares: the remaining nodes are still
checked, and one error reports all problems.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from onnx import NodeProto, ValueInfoProto

from dlc.arrays import TensorInfo
from dlc.dialects.dl.base import Tensor, tensor_type
from dlc.dialects.dl.dtypes import element_type
from dlc.frontend.emitter import ImportedValue
from dlc.frontend.onnx.graph import describe
from dlc.frontend.onnx.input_dependencies import InputDependencies, can_specialize_on, max_specialized_elements
from dlc.frontend.onnx.signature import sizes_of
from dlc.frontend.onnx.tensors import dtype_of
from dlc.frontend.problems import NodeProblem, Problem
from dlc.ir import Block
from dlc.shapes.dims import is_static
from dlc.value_types import is_call_dependent


class Diagnostics:
    """The problems of a model, and the graph inputs that they depend on."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.dependencies = InputDependencies()
        self.inputs: Sequence[TensorInfo] = ()
        # Placeholders are arguments of a block outside of any program.
        self._detached = Block()

    def report(self, where: str, problem: NodeProblem, owners: Sequence[NodeProto] = ()) -> None:
        """Record a problem of `where`, which is inside the nodes `owners`, the outermost first."""
        where = " > ".join((*map(describe, owners), where))
        names = self.dependencies.of(v.ssa for v in problem.unknown if v.ssa is not None)
        relevant_inputs = [i for i in self.inputs if i.name in names]
        large_input = next((i for i in relevant_inputs if not can_specialize_on(i)), None)
        are_dynamic = not all(is_static(i.shape) and not is_call_dependent(i) for i in self.inputs)
        message = problem.message
        if large_input is not None and not are_dynamic:
            message += (
                f" (it depends on input {large_input}; a model can be specialized for input values of at most"
                f" {max_specialized_elements(large_input)} elements)"
            )
        # With symbolic sizes, a call determines which inputs are large and may remove the `If` branch with the problem.
        inputs = tuple(i.name for i in relevant_inputs) if large_input is None else ()
        needs_specialization = problem.kind == "value" and (are_dynamic or bool(inputs))
        self.problems.append(Problem(where, problem.kind, message, inputs, needs_specialization))

    @contextmanager
    def collected(self) -> Generator[list[Problem]]:
        """Collect the problems found inside the context without recording them."""
        recorded, self.problems = self.problems, list[Problem]()
        try:
            yield self.problems
        finally:
            self.problems = recorded

    def placeholder(self, name: str, info: ValueInfoProto | None, depends_on: Sequence[str]) -> ImportedValue | None:
        """Return a placeholder of the type that `info` declares; None if it lacks a type.

        `depends_on` are the inputs that the value depends on.
        """
        # ONNX's own shape inference would find more types, but it trusts the sizes of untrusted files.
        if info is None or not info.type.HasField("tensor_type") or not info.type.tensor_type.HasField("shape"):
            return None
        try:
            element = element_type(dtype_of(info.type.tensor_type.elem_type))
        except NodeProblem:
            return None
        t: Tensor = tensor_type(sizes_of(name, info.type.tensor_type), element)
        argument = self._detached.insert_arg(t, len(self._detached.args))
        self.dependencies.add(argument, depends_on)
        return ImportedValue(t, ssa=argument, name=name)
