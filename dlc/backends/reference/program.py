"""Evaluate whole programs: `dl` ops, and dispatches of kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

import numpy as np

from dlc.backends.reference.evaluation_context import EvaluationContext, Frame, OpObserver, rule
from dlc.backends.reference.tensors import DYNAMIC
from dlc.backends.reference.values import (
    Array,
    EvaluationError,
    MemrefView,
    Value,
    describe,
    dtype_of,
    element_type,
    shape_of,
    uninitialized_marker,
)
from dlc.dialects.dl.base import DlOp, has_symbolic_sizes, is_storage_only
from dlc.dialects.dl.base import shape_of as dl_shape_of
from dlc.dialects.dl.creation import WeightOp
from dlc.dialects.dl.data_dependent.selection import BindSizeOp
from dlc.dialects.dl.dtypes import element_type as element_type_for
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.dl.programs.binding import bind_dims, bound_kernel, bound_op
from dlc.dialects.dl.programs.control import Control, ScanOp
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp, output_aliases
from dlc.dialects.dl.programs.size_ranges import guards_of, size_ranges
from dlc.dialects.entry import entry_of, outputs_of, sizes_of
from dlc.errors import ShapeError
from dlc.ir import Attribute, Block, MemRefType, ModuleOp, Operation, SymbolRefAttr, TensorType, func, walk_ops
from dlc.passes.transformations.expand_transformations import expand_for_evaluation
from dlc.runtime.program.size_binding import OutOfDomainError
from dlc.shapes.dims import Dim, is_static, substitute
from dlc.shapes.input_sizes import bind_sizes
from dlc.shapes.ranges import require_in_range

OpT = TypeVar("OpT", DlOp, ScanOp)


def evaluate(
    module: ModuleOp,
    inputs: Sequence[Array],
    weights: Mapping[str, Array] | None = None,
    *,
    function: str = "main",
    observer: OpObserver | None = None,
) -> list[Array]:
    """Evaluate a function of a module, at any stage; `observer` is called after each op.

    A function on buffers takes its inputs, then its outputs; the outputs are allocated here and returned. Raises
    EvaluationError if the IR contradicts itself, and UnsupportedError for an op without a rule.
    """
    module = expand_for_evaluation(_with_sizes(module, function, inputs))
    context = _context(module, function, weights or {}, observer)
    if function not in context.functions:
        raise EvaluationError(f"the module has no function @{function}; it has {', '.join(sorted(context.functions))}")
    callee = context.functions[function]
    shapes: list[tuple[int, ...]] = []
    if isinstance(callee, func.FuncOp):
        # A data-dependent size is 0 at first; when it has been computed, evaluation restarts with it.
        shapes = [tuple(s if isinstance(s, int) else 0 for s in sizes_of(a)) for a in outputs_of(callee)]
    try:
        with np.errstate(all="ignore"):
            return _invoke(context, callee, inputs, (), shapes or None)
    except DataDependentSizeError as error:
        return evaluate(_bind_module(module, error.sizes), inputs, weights, function=function, observer=observer)


def _context(
    module: ModuleOp, function: str, weights: Mapping[str, Array], observer: OpObserver | None = None
) -> EvaluationContext:
    functions = dict(_functions(module))
    callee = functions.get(function)
    guards = guards_of(callee) if isinstance(callee, func.FuncOp) else ()
    return EvaluationContext(functions, weights, observer=observer, guards=guards)


def evaluate_data_dependent_sizes(module: ModuleOp, inputs: Sequence[Array], weights: Mapping[str, Array]) -> dict[str, int]:
    """Return the data-dependent sizes of a program of `dl` ops for these inputs (in a loop, of the last iteration).

    Sizes in bodies that do not run are 0. If the inputs violate a symbolic type, return the sizes that are computed before it.
    Raises ShapeError if there are none.
    """
    computed = walk_ops(entry_of(module), DataDependent)
    symbols = [str(size) for op in computed for size in op.data_dependent_sizes if isinstance(size, Dim)]
    module = expand_for_evaluation(_with_sizes(module, "main", inputs))
    context = _context(module, "main", weights)
    try:
        with np.errstate(all="ignore"):
            _invoke(context, context.functions["main"], inputs)
    except ShapeError:
        if not context.sizes:
            raise
        return context.sizes
    return dict.fromkeys(symbols, 0) | context.sizes


def call(
    module: ModuleOp,
    kernel: str,
    inputs: Sequence[Array],
    sizes: Sequence[int],
    shapes: Sequence[tuple[int, ...]],
    observer: OpObserver | None = None,
) -> list[Array]:
    """Evaluate a kernel of a module with these size arguments; return its results in arrays of `shapes`. See `evaluate`."""
    context = EvaluationContext(dict(_functions(module)), {}, observer=observer)
    with np.errstate(all="ignore"):
        return _invoke(context, context.functions[kernel], inputs, sizes, shapes)


class DataDependentSizeError(Exception):
    """Raised when evaluation determines data-dependent sizes, to restart with static sizes."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes


def _with_sizes(module: ModuleOp, function: str, inputs: Sequence[Array]) -> ModuleOp:
    """Return the module with its symbolic sizes bound by the shapes of the inputs.

    Raises OutOfDomainError if the inputs violate a guard of a data-dependent size, for example because it becomes 0.
    """
    sizes: dict[str, int] = {}
    ranges = size_ranges(module)
    for name, callee in _functions(module):
        if name == function and isinstance(callee, func.FuncOp):
            for value, array in zip(callee.body.block.args, inputs, strict=False):
                shape = sizes_of(value) if isinstance(value.type, MemRefType) else dl_shape_of(value)
                bind_sizes(shape, array.shape, sizes)
                require_in_range(f"argument of type {value.type}", shape, sizes, ranges)
    try:
        return _bind_module(module, sizes) if sizes else module
    except ShapeError as error:
        raise OutOfDomainError(str(error)) from error


def _bind_module(module: ModuleOp, sizes: Mapping[str, int]) -> ModuleOp:
    """Return a copy of the module with these symbols bound."""
    static_module = module.clone()
    bind_dims(static_module, sizes)
    return static_module


def evaluate_function(
    function: func.FuncOp, arguments: Sequence[Array], weights: Mapping[str, Array] | None = None
) -> list[Array]:
    """Evaluate one function on C-contiguous arrays and return its results; buffer arguments are modified in place."""
    with np.errstate(all="ignore"):
        return _run(EvaluationContext({}, weights or {}), function, arguments)


def _functions(module: ModuleOp) -> Iterator[tuple[str, Operation]]:
    """Yield the functions and kernels of a module by name."""
    for op in module.ops:
        if isinstance(op, func.FuncOp):
            yield op.sym_name.data, op
        elif isinstance(op, KernelOp):
            yield op.symbol, op
        elif isinstance(op, ModuleOp):
            yield from _functions(op)


def _invoke(
    context: EvaluationContext,
    callee: Operation,
    inputs: Sequence[Array],
    sizes: Sequence[int] = (),
    shapes: Sequence[tuple[int, ...]] | None = None,
) -> list[Array]:
    """Call a function or kernel with inputs and sizes; allocate its destination buffers, which have these `shapes`."""
    if isinstance(callee, KernelOp):
        return _run(context, context.memoize(callee, _kernel_of, *sizes) if sizes else callee, inputs)
    assert isinstance(callee, func.FuncOp)
    parameter_types = callee.function_type.inputs.data
    outputs = parameter_types[len(inputs) : len(parameter_types) - len(sizes)]
    destinations = [empty_like(t, shape) for t, shape in zip(outputs, shapes or map(shape_of, outputs), strict=True)]
    for result, source in output_aliases(callee).items():
        np.copyto(destinations[result], inputs[source].view(destinations[result].dtype))
    # NumPy results may have any layout, but buffers must be contiguous. (np.ascontiguousarray would add a dimension.)
    results = _run(context, callee, [*(np.asarray(a, order="C") for a in inputs), *destinations, *map(np.asarray, sizes)])
    return results or destinations


def _kernel_of(kernel: KernelOp, *sizes: int) -> KernelOp:
    """Return a kernel with its symbolic sizes bound."""
    return bound_kernel(kernel, {f"s{k}": size for k, size in enumerate(sizes)})


def _run(context: EvaluationContext, callee: func.FuncOp | KernelOp, arguments: Sequence[Array]) -> list[Array]:
    """Run a function on argument values."""
    types = callee.function_type.inputs.data
    name = callee.sym_name.data
    if len(types) != len(arguments):
        raise EvaluationError(f"@{name} takes {len(types)} arguments, got {len(arguments)}")
    values = [argument(f"argument {k} of @{name}", a, t) for k, (a, t) in enumerate(zip(arguments, types, strict=True))]
    results = Frame(context).run(callee.body.block, values)
    return [cast(Array, r) for r in results]


def empty_like(type: Attribute, shape: tuple[int, ...]) -> Array:
    """Return a new array for a destination of this type, filled with a marker value for uninitialized memory."""
    dtype = dtype_of(type)
    return np.full(shape, uninitialized_marker(dtype), dtype)


def argument(where: str, array: Array, type: Attribute) -> Value:
    """Convert an array to the value of an argument; raises EvaluationError if its shape or dtype does not match the type."""
    array = np.asarray(array)
    if not isinstance(type, MemRefType | TensorType):
        return array.astype(dtype_of(type))
    array = reinterpret_dtype(lambda: where, array, cast(Attribute, type))
    if isinstance(type, TensorType):
        return array
    if not array.flags.c_contiguous:
        raise EvaluationError(f"{where}: a buffer must be C-contiguous; copy it with np.ascontiguousarray")
    return MemrefView.of(array)


def reinterpret_dtype(where: Callable[[], str], array: Array, type: Attribute) -> Array:
    """Return the array with the dtype of type `type`: kernels use signless integers, and bytes for storage-only floats.

    `where` describes the array in error messages; it is a function because formatting a location for each op would take half of
    the evaluation time.
    """
    dtype, shape = _dtype_and_shape(type)
    if array.dtype == dtype and array.shape == shape:
        return array
    is_shape_match = array.ndim == len(shape) and all(n in (DYNAMIC, m) for n, m in zip(shape, array.shape, strict=True))
    are_integer_coded = all(d.kind in "iu" or is_storage_only(element_type_for(d)) for d in (array.dtype, dtype))
    if not is_shape_match or not (array.dtype == dtype or (are_integer_coded and array.dtype.itemsize == dtype.itemsize)):
        raise EvaluationError(f"{where()}: expected {element_type(type)} {shape}, got {array.dtype} {array.shape}")
    return array if array.dtype == dtype else array.view(dtype)


@lru_cache(maxsize=4096)
def _dtype_and_shape(type: Attribute) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the dtype and shape of the values of a type."""
    return dtype_of(type), shape_of(type)


def leaf_name(symbol: SymbolRefAttr) -> str:
    """Return the last name of a symbol reference: `k` of `@kernels::@k`."""
    nested = symbol.nested_references.data
    return nested[-1].data if nested else symbol.root_reference.data


def find_callee(op: Any, frame: Frame) -> Operation:
    """Return the kernel or function that an op calls."""
    name = leaf_name(op.callee)
    if name not in frame.context.functions:
        raise EvaluationError(f"{describe(op)}: no kernel @{name} in the module")
    return frame.context.functions[name]


@rule(DlOp)
def dl_op(op: DlOp, frame: Frame) -> Sequence[Value]:
    if not op.operands and frame.context.memoize(op, _has_static_sizes):
        # The results of an op without operands are loop-invariant.
        return frame.context.memoize(op, _results)
    operands = [frame.array(v) for v in op.operands]
    return _results(_bind_sizes(op, operands, frame), *operands)


@rule(DataDependent)
def data_dependent_op(op: DataDependent, frame: Frame) -> Sequence[Value]:
    operands = [frame.array(v) for v in op.operands]
    bound = _bind_sizes(op, operands, frame)
    arrays = bound.evaluate(*operands)
    frame.context.bind_data_dependent_sizes(op, [dl_shape_of(r) for r in op.results], arrays)
    return _checked_results(bound, arrays)


def _results(op: DlOp, *operands: Array) -> list[Array]:
    """Evaluate an op and check its results against their types."""
    return _checked_results(op, op.evaluate(*operands))


def _checked_results(op: DlOp, arrays: Sequence[Array]) -> list[Array]:
    return [reinterpret_dtype(lambda: f"result of {describe(op)}", a, r.type) for a, r in zip(arrays, op.results, strict=True)]


def _has_static_sizes(op: DlOp | ScanOp) -> bool:
    """Return whether the op has no symbolic sizes."""
    return all(is_static(dl_shape_of(v)) for v in op.operands) and not has_symbolic_sizes(op)


def _bind_sizes(op: OpT, operands: Sequence[Array], frame: Frame) -> OpT:
    """Return the op with its symbolic sizes bound by the operands."""
    if frame.context.memoize(op, _has_static_sizes):
        return op
    shapes, sizes = tuple(a.shape for a in operands), tuple(frame.context.sizes.items())
    return frame.context.memoize(op, _bound_op, shapes, sizes)


def _bound_op(op: DlOp | Control, shapes: Sequence[tuple[int, ...]], sizes: Sequence[tuple[str, int]]) -> Any:
    """Bind the symbolic sizes of an op, except for data-dependent sizes that it computes itself."""
    computed_sizes = {str(size) for inner in walk_ops(op, DataDependent) for size in inner.data_dependent_sizes}
    return bound_op(op, shapes, {symbol: size for symbol, size in sizes if symbol not in computed_sizes})


@rule(Control)
def control(op: Control, frame: Frame) -> Sequence[Value]:
    def run(block: Block, arguments: Sequence[Array]) -> Sequence[Array]:
        return cast("Sequence[Array]", frame.run(block, arguments))

    operands = [frame.array(v) for v in op.operands]
    return _bind_sizes(op, operands, frame).execute(operands, run) if isinstance(op, ScanOp) else op.execute(operands, run)


def weight_array(op: Operation, symbol: SymbolRefAttr, frame: Frame) -> Array:
    """Return the array of a weight."""
    name = leaf_name(symbol)
    if name not in frame.context.weights:
        raise EvaluationError(f"{describe(op)}: no weight @{name} in the store")
    return frame.context.weights[name]


@rule(WeightOp)
def weight(op: WeightOp, frame: Frame) -> Sequence[Value]:
    return (reinterpret_dtype(lambda: f"weight {op.symbol}", weight_array(op, op.symbol, frame), op.result.type),)


@rule(DispatchOp, func.CallOp)
def dispatch(op: DispatchOp | func.CallOp, frame: Frame) -> Sequence[Value]:
    sizes_by_symbol = frame.context.sizes
    sizes = (
        [int(substitute(s, sizes_by_symbol)) for s in op.sizes.sizes]
        if isinstance(op, DispatchOp) and op.sizes is not None
        else []
    )
    shapes = [tuple(int(substitute(s, sizes_by_symbol)) for s in dl_shape_of(r)) for r in op.results] if sizes else None
    results = _invoke(frame.context, find_callee(op, frame), [frame.array(v) for v in op.arguments], sizes, shapes)
    if len(results) != len(op.results):
        raise EvaluationError(f"{describe(op)}: got {len(results)} results, expected {len(op.results)}")
    return [reinterpret_dtype(lambda: f"result of {describe(op)}", a, r.type) for a, r in zip(results, op.results, strict=True)]


@rule(BindSizeOp)
def bind_size(op: BindSizeOp, frame: Frame) -> Sequence[Value]:
    frame.context.sizes[op.symbol] = int(frame.array(op.count))
    return ()
