"""Derivatives of a sampled op as programs, evaluated on the reference backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from dlc.backends.reference import evaluate
from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of, tensor_type
from dlc.dialects.dl.dtypes import element_type, is_float
from dlc.dialects.registry import make_context
from dlc.instrument.verify import verify
from dlc.ir import Block, ModuleOp, Region, SSAValue, func
from dlc.passes.autodiff.transpose_rules import NONDIFFERENTIABLE_OPERANDS
from dlc.passes.transformations.expand_transformations import ExpandTransformationsPass
from dlc.testing.sample import Sample

Arrays = list[NDArray[Any]]


@dataclass(frozen=True)
class Point:
    """A sampled op at some operands; it is differentiated by the float ones."""

    sample: Sample
    operands: tuple[NDArray[Any], ...]

    @property
    def differentiated(self) -> list[int]:
        """The indices of the float operands, except those that only select elements."""
        deciding = NONDIFFERENTIABLE_OPERANDS.get(self.sample.op, ())
        return [i for i, x in enumerate(self.operands) if is_float(element_type(x.dtype)) and i not in deciding]

    def at(self, floats: Sequence[NDArray[Any]]) -> Point:
        """Return the op at other float operands."""
        operands = list(self.operands)
        for i, x in zip(self.differentiated, floats, strict=True):
            operands[i] = x
        return Point(self.sample, tuple(operands))

    @property
    def floats(self) -> Arrays:
        return [self.operands[i] for i in self.differentiated]

    def body(self, outer: Sequence[SSAValue]) -> Block:
        """Return the op as a body of its float operands; the others are captured."""
        block = Block(arg_types=[outer[i].type for i in self.differentiated])
        arguments = list(outer)
        for i, argument in zip(self.differentiated, block.args, strict=True):
            arguments[i] = argument
        op = self.sample.op.make(*arguments, **self.sample.properties)
        block.add_ops([op, dl.YieldOp(op.results)])
        return block

    def value(self) -> Arrays:
        """Return the float results."""
        return self._floats_of(self.sample.op.make(*self._block().args, **self.sample.properties).evaluate(*self.operands))

    def tangents(self, directions: Arrays) -> Arrays:
        """Return the tangents of the float results, for tangents of the float operands."""
        block = self._block(directions)
        count = len(self.operands)
        primals, wrt = [block.args[i] for i in self.differentiated], range(len(self.differentiated))
        op = dl.JvpOp.of(primals, block.args[count:], self.body(block.args[:count]), wrt)
        results = self._run(block, op, [*self.operands, *directions])
        return results[len(results) - len(self.value()) :]

    def cotangents(self, weights: Arrays) -> Arrays:
        """Return the cotangents of the float operands, for cotangents of the float results."""
        block = self._block(weights)
        count = len(self.operands)
        primals, wrt = [block.args[i] for i in self.differentiated], range(len(self.differentiated))
        body = self.body(block.args[:count])
        last = body.last_op
        assert last is not None
        of = [i for i, v in enumerate(last.operands) if is_float(element_type_of(v))]
        op = dl.VjpOp.of(primals, block.args[count:], body, wrt, of)
        return self._run(block, op, [*self.operands, *weights])[-len(self.differentiated) :]

    def _block(self, more: Sequence[NDArray[Any]] = ()) -> Block:
        return Block(arg_types=[tensor_type(x.shape, element_type(x.dtype)) for x in (*self.operands, *more)])

    def _floats_of(self, results: Sequence[NDArray[Any]]) -> Arrays:
        return [r for r in results if is_float(element_type(r.dtype))]

    def _run(self, block: Block, op: dl.JvpOp | dl.VjpOp, operands: Arrays) -> Arrays:
        module = module_of(block, op)
        verify(module)
        ExpandTransformationsPass().apply(make_context(), module)
        verify(module)
        return list(evaluate(module, operands))


def module_of(block: Block, op: dl.JvpOp | dl.VjpOp) -> ModuleOp:
    """Return a program of one op on its arguments."""
    block.add_ops([op, func.ReturnOp(*op.results)])
    types = [a.type for a in block.args], [r.type for r in op.results]
    return ModuleOp([func.FuncOp("main", types, Region(block))])
