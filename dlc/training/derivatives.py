"""The derivative of a model as a program: `dl.vjp` or `dl.jvp` of its entry function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from dlc.arrays import TensorInfo
from dlc.compiler import Program
from dlc.dialects import dl
from dlc.dialects.dl.base import Array, Tensor, element_type_of, shape_of, tensor_of
from dlc.dialects.dl.build import DlBuilder
from dlc.dialects.dl.dtypes import element_type, is_float, numpy_dtype
from dlc.dialects.entry import entry_of
from dlc.errors import DTypeError, ShapeError
from dlc.ir import Block, SSAValue
from dlc.shapes.dims import product
from dlc.training.entry import EntryBuilder
from dlc.training.model_transforms import DerivativeMode, DerivativeRequest


@dataclass(frozen=True)
class _DifferentiatedFunction:
    """The part of a program to differentiate, as a function.

    Attributes:
        body: A block that takes the inputs and yields the differentiated outputs.
        inputs: The inputs of the program.
        outputs: The differentiated outputs.
        wrt: The names of the inputs with respect to which the outputs are differentiated.
    """

    body: Block
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    wrt: tuple[str, ...]

    @property
    def wrt_indices(self) -> list[int]:
        """The indices of `wrt` among the inputs."""
        return [self.inputs.index(name) for name in self.wrt]

    @property
    def types(self) -> dict[str, Tensor]:
        """The types of the outputs by name."""
        assert self.body.last_op is not None
        return dict(zip(self.outputs, map(tensor_of, self.body.last_op.operands), strict=True))


def build_derivative(program: Program, request: DerivativeRequest, wrt: Sequence[str]) -> Program:
    """Return the program of a derivative with respect to the inputs `wrt`.

        @main(%x, %w) → (%y)
    →   @main(%x, %w, %c) → (%y, %g)      %y, %g = dl.vjp %x, %w, %c {wrt = [1], of = [0]} { … dl.yield %y }

    The inputs are those of the program without defaults, then `cotangent:OUTPUT` (vjp) or `tangent:NAME` (jvp, hvp), then those
    with defaults. The cotangent of a one-element output is optional and defaults to 1. The results are the outputs, then
    `grad:NAME` for each of `wrt` (vjp, hvp), `tangent:OUTPUT` (jvp), `hvp:NAME` (hvp).

    Raises DTypeError for an output that is not floating point, and ShapeError for the Hessian of an output of several elements.
    """
    for info in program.outputs:
        if info.name in request.of:
            _require_differentiable(program.name, request.mode, info)
    f, entry = _function_of(program, request.of, wrt), EntryBuilder()
    entry.add_inputs(program, defaults=False)
    seeds = _cotangents(entry, f) if request.mode == "vjp" else _tangents(entry, f)
    entry.add_inputs(program, defaults=True)
    primals = [entry.arguments[name] for name in f.inputs]
    _DERIVE_RULES[request.mode](entry, f, primals, seeds)
    return entry.of(program)


def _require_differentiable(model: str, mode: DerivativeMode, info: TensorInfo) -> None:
    if not is_float(element_type(info.dtype)):
        raise DTypeError(f"{model}: {mode} of '{info.name}': expected a float dtype, got {info}")
    if mode == "hvp" and product(info.shape) != 1:
        raise ShapeError(f"{model}: hvp of '{info.name}': expected an output of one element, such as a loss, got {info}")


def _function_of(program: Program, outputs: Sequence[str], wrt: Sequence[str]) -> _DifferentiatedFunction:
    """Return the computation of some outputs of a program as a function."""
    main = entry_of(program.module.clone())
    body, names = main.body.detach_block(0), [info.name for info in program.outputs]
    returned = body.last_op
    assert returned is not None
    values = [returned.operands[names.index(name)] for name in outputs]
    returned.detach()
    returned.erase()
    body.add_op(dl.YieldOp(values))
    return _DifferentiatedFunction(body, tuple(info.name for info in program.inputs), tuple(outputs), tuple(wrt))


def _cotangents(entry: EntryBuilder, f: _DifferentiatedFunction) -> list[SSAValue]:
    return [entry.add_input(f"cotangent:{name}", t, _default_cotangent(t)) for name, t in f.types.items()]


def _tangents(entry: EntryBuilder, f: _DifferentiatedFunction) -> list[SSAValue]:
    return [entry.add_input(f"tangent:{name}", f.body.args[i].type) for name, i in zip(f.wrt, f.wrt_indices, strict=True)]


def _vjp(entry: EntryBuilder, f: _DifferentiatedFunction, primals: Sequence[SSAValue], cotangents: Sequence[SSAValue]) -> None:
    op = dl.VjpOp.of(primals, cotangents, f.body, f.wrt_indices, range(len(cotangents)))
    entry.block.add_op(op)
    entry.add_outputs(zip([*f.outputs, *(f"grad:{name}" for name in f.wrt)], op.results, strict=True))


def _jvp(entry: EntryBuilder, f: _DifferentiatedFunction, primals: Sequence[SSAValue], tangents: Sequence[SSAValue]) -> None:
    op = dl.JvpOp.of(primals, tangents, f.body, f.wrt_indices)
    entry.block.add_op(op)
    entry.add_outputs(zip([*f.outputs, *(f"tangent:{name}" for name in f.outputs)], op.results, strict=True))


def _hvp(entry: EntryBuilder, f: _DifferentiatedFunction, primals: Sequence[SSAValue], tangents: Sequence[SSAValue]) -> None:
    """Compute the Hessian-vector product as forward over reverse: the tangents of the gradient."""
    gradient = Block(arg_types=[v.type for v in primals])
    build = DlBuilder(gradient)
    ones = [build(dl.BroadcastToOp, build.scalar(1, like=t), shape=shape_of(t)) for t in f.types.values()]
    inner = build.insert(dl.VjpOp.of(gradient.args, ones, f.body, f.wrt_indices, range(len(ones))))
    gradient.add_op(dl.YieldOp(inner.results))
    op = dl.JvpOp.of(primals, tangents, gradient, f.wrt_indices)
    entry.block.add_op(op)
    values, tangents_of_gradient = op.results[: len(inner.results)], op.results[len(inner.results) + len(f.outputs) :]
    entry.add_outputs(zip([*f.outputs, *(f"grad:{name}" for name in f.wrt)], values, strict=True))
    entry.add_outputs(zip([f"hvp:{name}" for name in f.wrt], tangents_of_gradient, strict=True))


def _default_cotangent(type: Tensor) -> Array | None:
    """Return the default cotangent of a one-element output: ones; None for other outputs."""
    shape = shape_of(type)
    return np.ones([int(s) for s in shape], numpy_dtype(element_type_of(type))) if product(shape) == 1 else None


_DeriveRule: TypeAlias = Callable[[EntryBuilder, _DifferentiatedFunction, Sequence[SSAValue], Sequence[SSAValue]], None]
_DERIVE_RULES: dict[DerivativeMode, _DeriveRule] = {"vjp": _vjp, "jvp": _jvp, "hvp": _hvp}
