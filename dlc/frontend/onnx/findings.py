"""What an import finds that dlc does not support, and what stands in its place so that the import goes on.

The results of a node that is not supported become placeholders of the types that the file declares: what follows is still
looked at, and one error lists it all.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from onnx import NodeProto, ValueInfoProto

from dlc.arrays import TensorInfo
from dlc.dialects.dl.base import Tensor, tensor_type
from dlc.dialects.dl.dtypes import element_type
from dlc.dims import is_static
from dlc.forms import hangs_on_the_call
from dlc.frontend.emit import Value
from dlc.frontend.onnx.graph import place
from dlc.frontend.onnx.origins import Origins, may_be_known, most_elements
from dlc.frontend.onnx.signature import sizes_of
from dlc.frontend.onnx.tensors import dtype_of
from dlc.frontend.problems import NodeProblem, Problem
from dlc.ir import Block


class Findings:
    """The problems of a model, and the inputs that they hang on."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.origins = Origins()
        self.inputs: Sequence[TensorInfo] = ()
        # Placeholders are arguments of a block that is part of no program.
        self._detached = Block()

    def note(self, where: str, problem: NodeProblem, owners: Sequence[NodeProto] = ()) -> None:
        """Notes what is wrong at a place, inside of the nodes `owners`, the outermost first."""
        where = ", in it ".join((*map(place, owners), where))
        names = self.origins.of(v.ssa for v in problem.unknown if v.ssa is not None)
        asked = [i for i in self.inputs if i.name in names]
        large = next((i for i in asked if not may_be_known(i)), None)
        are_open = not all(is_static(i.shape) and not hangs_on_the_call(i) for i in self.inputs)
        message = problem.message
        if large is not None and not are_open:
            message += f" (it hangs on input {large}; a model is compiled for values of up to {most_elements(large)} elements)"
        # Where sizes are open, they tell what is large; and what hangs on data in one branch of an `If` may go with it.
        inputs = tuple(i.name for i in asked) if large is None else ()
        at_call = problem.kind == "value" and (are_open or bool(inputs))
        self.problems.append(Problem(where, problem.kind, message, inputs, at_call))

    @contextmanager
    def apart(self) -> Generator[list[Problem]]:
        """What is found in the block, which is not noted."""
        noted, self.problems = self.problems, list[Problem]()
        try:
            yield self.problems
        finally:
            self.problems = noted

    def placeholder(self, name: str, info: ValueInfoProto | None, hangs_on: Sequence[str]) -> Value | None:
        """A value of the type that `info`, the file, declares for the name; none where it declares none.

        `hangs_on` are the inputs whose values would tell what it is.
        """
        # ONNX's own shape inference would know more, but it takes the sizes in a hostile file at their word.
        if info is None or not info.type.HasField("tensor_type") or not info.type.tensor_type.HasField("shape"):
            return None
        try:
            element = element_type(dtype_of(info.type.tensor_type.elem_type))
        except NodeProblem:
            return None
        t: Tensor = tensor_type(sizes_of(name, info.type.tensor_type), element)
        argument = self._detached.insert_arg(t, len(self._detached.args))
        self.origins.add(argument, hangs_on)
        return Value(t, ssa=argument, name=name)
