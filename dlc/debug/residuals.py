"""List the residuals of a derivative: values of the forward pass that the backward pass reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dlc.dialects.dl.base import element_type_of, shape_of
from dlc.dialects.dl.creation import ConstantOp, WeightOp
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.programs.control import captured_values
from dlc.dialects.entry import entry_of
from dlc.instrument.provenance import origins
from dlc.ir import Operation, SSAValue
from dlc.just_in_time.decorator import jit
from dlc.just_in_time.jit_function import JitFunction
from dlc.passes.transformations.expand_transformations import expand_for_evaluation
from dlc.shapes.dims import Size, product


@dataclass(frozen=True)
class Residual:
    """A value that is stored for the backward pass. `str` of it is a line of text.

    Attributes:
        op: The op that computes the value, such as `dl.tanh`; `argument` for an argument, which takes no additional memory.
        location: The user's line, such as `model.py:12`, or the name of the argument.
        dtype: The dtype of the value.
        shape: The shape of the value.
        bytes: The size of the value in bytes.
    """

    op: str
    location: str
    dtype: str
    shape: tuple[Size, ...]
    bytes: Size

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}], {self.bytes} bytes: {self.op} {self.location}"


def saved_residuals(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Residual]:
    """Return the residuals of a function that computes a gradient, in the order in which they are computed.

        for residual in dlc.debug.saved_residuals(dlc.grad(loss), params, x):
            print(residual)
        float32[64, 10], 2560 bytes: dl.tanh model.py:12

    Recomputed values do not count: with `dlc.checkpoint` around a layer only its arguments remain. Later passes may still
    shrink residuals in the forward pass, or recompute cheap ones in the backward pass. Raises the errors of tracing the
    function.
    """
    traced = fun if isinstance(fun, JitFunction) else jit(fun)
    program = traced.lower(*args, **kwargs).program
    main = entry_of(expand_for_evaluation(program.module))
    argument_names: dict[SSAValue, str] = {
        argument: info.name for argument, info in zip(main.args, program.inputs, strict=True)
    }
    forward, residuals = list[SSAValue](main.args), set[SSAValue]()
    backward = set[SSAValue]()
    for op in main.body.block.ops:
        used_values = [*op.operands, *(v for region in op.regions for v in captured_values(region.block))]
        # A recomputed op has the location of the forward pass but depends on a cotangent.
        if _is_derivative_op(op) or not backward.isdisjoint(used_values):
            backward.update(op.results)
            residuals.update(v for v in used_values if v not in backward)
        else:
            forward += op.results
    return [_residual(v, argument_names) for v in forward if v in residuals and not isinstance(v.owner, ConstantOp | WeightOp)]


def _is_derivative_op(op: Operation) -> bool:
    """Return whether all origins of an op are derivatives."""
    names = origins(op.location)
    return bool(names) and all(name.startswith("∂") for name in names)


def _residual(value: SSAValue, argument_names: dict[SSAValue, str]) -> Residual:
    dtype, shape = numpy_dtype(element_type_of(value)), shape_of(value)
    if value in argument_names:
        source = ("argument", argument_names[value])
    else:
        assert isinstance(value.owner, Operation)
        source = value.owner.name, ", ".join(origins(value.owner.location))
    return Residual(*source, str(dtype), shape, product(shape) * dtype.itemsize)
