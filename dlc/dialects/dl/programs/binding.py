"""Binding of symbolic sizes to values, in types and properties."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from dlc.dialects.dims_attribute import DimsAttr
from dlc.dialects.dl.base import DlOp, Tensor, attribute, element_type_of, shape_of, tensor_type
from dlc.dialects.dl.data_dependent.selection import SelectionOp
from dlc.dialects.dl.programs.control import Control
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp
from dlc.dialects.dl.programs.size_ranges import guards_of, set_guards
from dlc.dialects.location_text import location_prefix
from dlc.errors import ShapeError
from dlc.ir import ArrayAttr, Attribute, Block, DictionaryAttr, FunctionType, ModuleOp, Operation, SSAValue, TensorType, func
from dlc.shapes import dims
from dlc.shapes.dims import Dim, Size
from dlc.shapes.guards import Guard


def bind_dims(module: ModuleOp, sizes: Mapping[str, Size], *, keeps_types: bool = False) -> None:
    """Replace the named symbols in the module's functions by sizes; kernels have separate symbols.

    With `keeps_types`, raise ShapeError if the type of a result differs from the one inferred for symbolic sizes, such as for a
    size of 1 that broadcasts: properties of later ops may have been derived from that type.
    """
    for op in module.ops:
        if isinstance(op, func.FuncOp):
            all_sizes = _bind(op, sizes, keeps_types=keeps_types)
            if guards := guards_of(op):
                set_guards(op, list(_bind_guards(guards, all_sizes)))
            # A declared result size may name another symbol than the inferred one, if guards had made them equal.
            op.update_function_type()


def bound_kernel(kernel: KernelOp, sizes: Mapping[str, Size]) -> KernelOp:
    """Return a copy of a kernel for these sizes."""
    copy = kernel.clone()
    _bind(copy, sizes)
    return copy


def bound_op(op: DlOp | Control, shapes: Sequence[tuple[int, ...]], sizes: Mapping[str, Size]) -> Any:
    """Return a detached copy of an op for operands of these shapes and for these sizes."""
    types = [tensor_type(shape, element_type_of(v)) for v, shape in zip(op.operands, shapes, strict=True)]
    block = Block(arg_types=types)
    copy = op.clone()
    # After cloning, since the op's body may capture a value that is an operand as well.
    copy.operands = block.args
    if isinstance(copy, DlOp):
        _bind_op(copy, sizes, set(block.args))
    else:
        _bind(copy, sizes)
    return copy


def _bind(outermost: Operation, sizes: Mapping[str, Size], *, keeps_types: bool = False) -> Mapping[str, Size]:
    """Bind an op and those in its body; return the sizes with those of the selections that these sizes make empty."""
    retyped: set[SSAValue] = set()
    for op in outermost.walk():
        match op:
            case SelectionOp():
                sizes = _bind_selection(op, sizes, retyped)
            case func.FuncOp() | KernelOp():
                _bind_function(op, sizes, retyped)
            case DlOp():
                _bind_op(op, sizes, retyped, keeps_types=keeps_types)
            case Control() | DispatchOp():
                _bind_declared_types(op, sizes, retyped)
            case _:
                _bind_properties(op, sizes)
    return sizes


def _bind_function(function: func.FuncOp | KernelOp, sizes: Mapping[str, Size], retyped: set[SSAValue]) -> None:
    inputs, outputs = (
        [_bind_type(t, sizes) for t in types.data] for types in (function.function_type.inputs, function.function_type.outputs)
    )
    function.properties["function_type"] = FunctionType.from_lists(inputs, outputs)
    if isinstance(function, func.FuncOp) and function.arg_attrs is not None:
        function.arg_attrs = ArrayAttr([DictionaryAttr(_bind_entries(d.data, sizes)) for d in function.arg_attrs])
    if function.body.blocks:
        for argument, type_ in zip(function.body.block.args, inputs, strict=True):
            _retype(argument, type_, retyped)


def _bind_guards(guards: Sequence[Guard], sizes: Mapping[str, Size]) -> Iterator[Guard]:
    """Yield the guards that still depend on symbols; raise ShapeError if one is violated."""
    for guard in guards:
        size = Dim.lift(dims.substitute(guard.size, sizes))
        if size.symbols():
            yield replace(guard, size=size)
        elif not guard.holds(cast("Mapping[str, int]", sizes)):
            text = ", ".join(f"{symbol} = {size}" for symbol, size in sizes.items())
            raise ShapeError(f"{guard.description}; with {text}")


def _bind_op(op: DlOp, sizes: Mapping[str, Size], retyped: set[SSAValue], *, keeps_types: bool = False) -> None:
    """Bind the sizes in an op's properties, and infer its result types again if these or its operand types changed."""
    if not _bind_properties(op, sizes) and not any(v in retyped for v in op.operands):
        return
    try:
        for result, type_ in zip(op.results, op.infer(), strict=True):
            if keeps_types and type_ != (expected := _bind_type(result.type, sizes)):
                raise ShapeError(f"{op.name}: shape {shape_of(type_)}; expected {shape_of(expected)}")
            _retype(result, type_, retyped)
    except ShapeError as error:
        text = ", ".join(f"{symbol} = {size}" for symbol, size in sizes.items())
        raise ShapeError(f"{location_prefix(op.location)}{error}; with {text}") from error


def _bind_selection(op: SelectionOp, sizes: Mapping[str, Size], retyped: set[SSAValue]) -> Mapping[str, Size]:
    """Bind a selection op; if it has nothing to select from, bind its data-dependent size to 0 as well."""
    _bind_op(op, sizes, retyped)
    if op.max_size != 0 or isinstance(op.count, int):
        return sizes
    sizes = {**sizes, str(op.count): 0}
    _bind_op(op, sizes, retyped)
    return sizes


def _bind_declared_types(op: Control | DispatchOp, sizes: Mapping[str, Size], retyped: set[SSAValue]) -> None:
    """Bind an op whose result types are declared, not inferred."""
    _bind_properties(op, sizes)
    blocks = op.blocks if isinstance(op, Control) else ()
    for value in (*op.results, *(a for block in blocks for a in block.args)):
        _retype(value, _bind_type(value.type, sizes), retyped)


def _bind_properties(op: Operation, sizes: Mapping[str, Size]) -> bool:
    """Bind the sizes in the properties of an op; return whether there are any."""
    if not any(isinstance(value, DimsAttr) for value in op.properties.values()):
        return False
    bound_properties = _bind_entries(op.properties, sizes)
    # `dl` ops store static sizes as an ordinary integer array.
    uses_integer_arrays = isinstance(op, DlOp | Control)
    op.properties |= {
        n: attribute(v.sizes) if uses_integer_arrays and isinstance(v, DimsAttr) else v for n, v in bound_properties.items()
    }
    return True


def _bind_entries(entries: Mapping[str, Attribute], sizes: Mapping[str, Size]) -> dict[str, Attribute]:
    return {
        name: DimsAttr.of(_bind_size(s, sizes) for s in value.sizes) if isinstance(value, DimsAttr) else value
        for name, value in entries.items()
    }


def _bind_size(size: Size, sizes: Mapping[str, Size]) -> Size:
    """Return a size with its symbols replaced. Raises ShapeError for one of more than 64 bits."""
    bound = dims.substitute(size, sizes)
    if isinstance(bound, int) and not -(1 << 63) <= bound < 1 << 63:
        raise ShapeError(f"the size {size} is {bound}, which exceeds 64 bits; compute it in floats, such as n * 1.0")
    return bound


def _bind_type(type_: Attribute, sizes: Mapping[str, Size]) -> Attribute:
    if not isinstance(type_, TensorType):
        return type_
    tensor = cast(Tensor, type_)
    return tensor_type((dims.substitute(s, sizes) for s in shape_of(tensor)), tensor.element_type)


def _retype(value: SSAValue, type_: Attribute, retyped: set[SSAValue]) -> None:
    if value.type != type_:
        # Change the type in place: replacing values would rebuild the whole function, all of whose types change.
        cast(Any, value)._type = type_
        retyped.add(value)
