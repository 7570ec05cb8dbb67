"""A model's derivative as a program: `dl.vjp` or `dl.jvp` around what its entry computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from dlc.arrays import TensorInfo
from dlc.compiler import Program
from dlc.derived import Derivative, Mode
from dlc.dialects import dl
from dlc.dialects.dl.base import Array, Tensor, element_type_of, shape_of, tensor_of
from dlc.dialects.dl.build import Build
from dlc.dialects.dl.dtypes import element_type, is_float, numpy_dtype
from dlc.dialects.entry import entry_of
from dlc.dims import product
from dlc.errors import DTypeError, ShapeError
from dlc.ir import Block, SSAValue
from dlc.training.entry import Entry


@dataclass(frozen=True)
class _Function:
    """A body that takes the inputs and yields the outputs that are differentiated; `wrt` are some of the inputs."""

    body: Block
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    wrt: tuple[str, ...]

    @property
    def places(self) -> list[int]:
        """The places of `wrt` among the inputs."""
        return [self.inputs.index(name) for name in self.wrt]

    @property
    def types(self) -> dict[str, Tensor]:
        """What the outputs are, by name."""
        assert self.body.last_op is not None
        return dict(zip(self.outputs, map(tensor_of, self.body.last_op.operands), strict=True))


def derivative_of(program: Program, wanted: Derivative, wrt: Sequence[str]) -> Program:
    """The program of a derivative with respect to the inputs `wrt`.

        @main(%x, %w) → (%y)
    →   @main(%x, %w, %c) → (%y, %g)      %y, %g = dl.vjp %x, %w, %c {wrt = [1], of = [0]} { … dl.yield %y }

    It takes what the program takes, and before what of it has a default `cotangent:OUTPUT` (vjp), which a call may leave out
    where the output has one element: it is 1 then, or `tangent:NAME` (jvp, hvp). It gives the outputs, then `grad:NAME` for
    each of `wrt` (vjp, hvp), `tangent:OUTPUT` (jvp), `hvp:NAME` (hvp).

    Raises DTypeError for an output that is not of floats, and ShapeError for the Hessian of one with several elements.
    """
    for info in program.outputs:
        if info.name in wanted.of:
            _require_differentiable(program.name, wanted.mode, info)
    f, entry = _function_of(program, wanted.of, wrt), Entry()
    entry.take_inputs(program, defaults=False)
    seeds = _cotangents(entry, f) if wanted.mode == "vjp" else _tangents(entry, f)
    entry.take_inputs(program, defaults=True)
    primals = [entry.arguments[name] for name in f.inputs]
    _DERIVE[wanted.mode](entry, f, primals, seeds)
    return entry.of(program)


def _require_differentiable(model: str, mode: Mode, info: TensorInfo) -> None:
    if not is_float(element_type(info.dtype)):
        raise DTypeError(f"{model}: {mode} of '{info.name}': {info} is not of floats, and has no derivative")
    if mode == "hvp" and product(info.shape) != 1:
        raise ShapeError(f"{model}: hvp of '{info.name}': {info}; a Hessian is of one element, such as a loss")


def _function_of(program: Program, outputs: Sequence[str], wrt: Sequence[str]) -> _Function:
    """What a program computes, up to some of its outputs."""
    main = entry_of(program.module.clone())
    body, names = main.body.detach_block(0), [info.name for info in program.outputs]
    returned = body.last_op
    assert returned is not None
    values = [returned.operands[names.index(name)] for name in outputs]
    returned.detach()
    returned.erase()
    body.add_op(dl.YieldOp(values))
    return _Function(body, tuple(info.name for info in program.inputs), tuple(outputs), tuple(wrt))


def _cotangents(entry: Entry, f: _Function) -> list[SSAValue]:
    return [entry.take(f"cotangent:{name}", t, _one(t)) for name, t in f.types.items()]


def _tangents(entry: Entry, f: _Function) -> list[SSAValue]:
    return [entry.take(f"tangent:{name}", f.body.args[i].type) for name, i in zip(f.wrt, f.places, strict=True)]


def _vjp(entry: Entry, f: _Function, primals: Sequence[SSAValue], cotangents: Sequence[SSAValue]) -> None:
    op = dl.VjpOp.of(primals, cotangents, f.body, f.places, range(len(cotangents)))
    entry.block.add_op(op)
    entry.give(zip([*f.outputs, *(f"grad:{name}" for name in f.wrt)], op.results, strict=True))


def _jvp(entry: Entry, f: _Function, primals: Sequence[SSAValue], tangents: Sequence[SSAValue]) -> None:
    op = dl.JvpOp.of(primals, tangents, f.body, f.places)
    entry.block.add_op(op)
    entry.give(zip([*f.outputs, *(f"tangent:{name}" for name in f.outputs)], op.results, strict=True))


def _hvp(entry: Entry, f: _Function, primals: Sequence[SSAValue], tangents: Sequence[SSAValue]) -> None:
    """Forward over reverse: the tangents of the gradient."""
    gradient = Block(arg_types=[v.type for v in primals])
    build = Build(gradient)
    ones = [build(dl.BroadcastToOp, build.scalar(1, like=t), shape=shape_of(t)) for t in f.types.values()]
    inner = build.insert(dl.VjpOp.of(gradient.args, ones, f.body, f.places, range(len(ones))))
    gradient.add_op(dl.YieldOp(inner.results))
    op = dl.JvpOp.of(primals, tangents, gradient, f.places)
    entry.block.add_op(op)
    values, moved = op.results[: len(inner.results)], op.results[len(inner.results) + len(f.outputs) :]
    entry.give(zip([*f.outputs, *(f"grad:{name}" for name in f.wrt)], values, strict=True))
    entry.give(zip([f"hvp:{name}" for name in f.wrt], moved, strict=True))


def _one(t: Tensor) -> Array | None:
    """The cotangent of an output of one element, where nothing else is said."""
    shape = shape_of(t)
    return np.ones([int(s) for s in shape], numpy_dtype(element_type_of(t))) if product(shape) == 1 else None


_Derive: TypeAlias = Callable[[Entry, _Function, Sequence[SSAValue], Sequence[SSAValue]], None]
_DERIVE: dict[Mode, _Derive] = {"vjp": _vjp, "jvp": _jvp, "hvp": _hvp}
