"""What a derivative keeps: values of the forward pass that the backward pass reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dlc.dialects.dl.base import element_type_of, shape_of
from dlc.dialects.dl.creation import ConstantOp, WeightOp
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.programs.control import captured
from dlc.dialects.entry import entry_of
from dlc.dims import Size, product
from dlc.instrument.provenance import origins
from dlc.ir import Operation, SSAValue
from dlc.just_in_time import JitFunction, jit
from dlc.passes.transformations.expand_transformations import expanded


@dataclass(frozen=True)
class Residual:
    """A value that is kept for a derivative; `str` of it is a line.

    `op` made it, `dl.tanh`, or it is an `argument`, which takes no memory of its own; `place` is the line,
    `model.py:12`, or the name of the argument. `bytes` is what it takes.
    """

    op: str
    place: str
    dtype: str
    shape: tuple[Size, ...]
    bytes: Size

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}], {self.bytes} bytes: {self.op} {self.place}"


def saved_residuals(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Residual]:
    """What a function that takes a gradient keeps for it, in the order in which it is made.

        for residual in dlc.debug.saved_residuals(dlc.grad(loss), params, x):
            print(residual)
        float32[64, 10], 2560 bytes: dl.tanh model.py:12

    What is computed again costs nothing here: with `dlc.checkpoint` around a layer its arguments are left. Passes that come
    later may still compute in the forward pass what is smaller, or in the backward pass what is cheap.
    Raises what tracing the function raises.
    """
    traced = fun if isinstance(fun, JitFunction) else jit(fun)
    program = traced.lower(*args, **kwargs).program
    main = entry_of(expanded(program.module))
    names: dict[SSAValue, str] = {argument: info.name for argument, info in zip(main.args, program.inputs, strict=True)}
    forward, kept = list[SSAValue](main.args), set[SSAValue]()
    backward = set[SSAValue]()
    for op in main.body.block.ops:
        read = [*op.operands, *(v for region in op.regions for v in captured(region.block))]
        # What is computed again has the places of the forward pass, and waits for a cotangent.
        if _is_derivative(op) or not backward.isdisjoint(read):
            backward.update(op.results)
            kept.update(v for v in read if v not in backward)
        else:
            forward += op.results
    return [_residual(v, names) for v in forward if v in kept and not isinstance(v.owner, ConstantOp | WeightOp)]


def _is_derivative(op: Operation) -> bool:
    """Whether an op is of a derivative alone, and of nothing that was written."""
    names = origins(op.location)
    return bool(names) and all(name.startswith("∂") for name in names)


def _residual(value: SSAValue, names: dict[SSAValue, str]) -> Residual:
    dtype, shape = numpy_dtype(element_type_of(value)), shape_of(value)
    if value in names:
        made = ("argument", names[value])
    else:
        assert isinstance(value.owner, Operation)
        made = value.owner.name, ", ".join(origins(value.owner.location))
    return Residual(*made, str(dtype), shape, product(shape) * dtype.itemsize)
