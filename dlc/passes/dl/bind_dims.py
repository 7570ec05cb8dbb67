"""Gives symbolic sizes their values: below `dl` every size is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from dlc import dims
from dlc.dialects.dl.base import DimsAttr, DlOp, Tensor, attribute, shape_of, tensor_type
from dlc.dialects.dl.control import Control
from dlc.dims import Size
from dlc.errors import ShapeError
from dlc.ir import Attribute, Context, FunctionType, ModuleOp, ModulePass, SSAValue, TensorType, func


@dataclass(frozen=True)
class BindDimsPass(ModulePass):
    """`bind-dims{sizes="batch=2"}`: replaces symbols by sizes, in types and properties, and infers all types again.

        func.func @main(%x: tensor<?x3xf32, #dl.dims<"batch", 3>>) { dl.relu %x : … -> tensor<?x3xf32, …> }
    →   func.func @main(%x: tensor<2x3xf32>) { dl.relu %x : … -> tensor<2x3xf32> }

    Symbols without a size stay. Raises ShapeError where an op does not accept the sizes.
    """

    name = "bind-dims"
    sizes: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        pairs = (entry.rpartition("=") for entry in self.sizes)
        bind_dims(op, {symbol: int(size) for symbol, _, size in pairs})


def bind_dims(module: ModuleOp, sizes: Mapping[str, Size]) -> None:
    """Replaces the named symbols of the module by their sizes."""
    bound: set[SSAValue] = set()
    for op in module.walk():
        if isinstance(op, func.FuncOp):
            _bind_function(op, sizes, bound)
        elif isinstance(op, DlOp):
            _bind_op(op, sizes, bound)
        elif isinstance(op, Control):
            _bind_control(op, sizes, bound)


def _bind_function(function: func.FuncOp, sizes: Mapping[str, Size], bound: set[SSAValue]) -> None:
    inputs, outputs = (
        [_bound_type(t, sizes) for t in types.data] for types in (function.function_type.inputs, function.function_type.outputs)
    )
    function.properties["function_type"] = FunctionType.from_lists(inputs, outputs)
    if function.body.blocks:
        for argument, type_ in zip(function.body.block.args, inputs, strict=True):
            _retype(argument, type_, bound)


def _bind_op(op: DlOp, sizes: Mapping[str, Size], bound: set[SSAValue]) -> None:
    """Binds what an op says itself, and infers its types again if that or its operands changed."""
    if not _bind_properties(op, sizes) and not any(v in bound for v in op.operands):
        return
    try:
        for result, type_ in zip(op.results, op.infer(), strict=True):
            _retype(result, type_, bound)
    except ShapeError as error:
        text = ", ".join(f"{symbol} = {size}" for symbol, size in sizes.items())
        raise ShapeError(f"{error}; with {text}, at {op.location}") from error


def _bind_control(op: Control, sizes: Mapping[str, Size], bound: set[SSAValue]) -> None:
    _bind_properties(op, sizes)
    for value in (*op.results, *(a for block in op.blocks for a in block.args)):
        _retype(value, _bound_type(value.type, sizes), bound)


def _bind_properties(op: DlOp | Control, sizes: Mapping[str, Size]) -> bool:
    """Binds the sizes in the properties of an op; whether there are any."""
    found = [(name, value) for name, value in op.properties.items() if isinstance(value, DimsAttr)]
    for name, value in found:
        op.properties[name] = attribute(tuple(dims.substitute(s, sizes) for s in value.sizes))
    return bool(found)


def _bound_type(type_: Attribute, sizes: Mapping[str, Size]) -> Attribute:
    if not isinstance(type_, TensorType):
        return type_
    tensor = cast(Tensor, type_)
    return tensor_type((dims.substitute(s, sizes) for s in shape_of(tensor)), tensor.element_type)


def _retype(value: SSAValue, type_: Attribute, bound: set[SSAValue]) -> None:
    if value.type != type_:
        # Bindings change every type of the function at once: new values would rebuild the whole of it.
        cast(Any, value)._type = type_
        bound.add(value)
