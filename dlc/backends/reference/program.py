"""Whole programs: `dl` ops, and dispatches of kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar, cast

import numpy as np

from dlc.backends.reference.machine import Frame, Machine, Watch, rule
from dlc.backends.reference.tensors import DYNAMIC
from dlc.backends.reference.values import (
    Array,
    EvaluationError,
    Value,
    View,
    describe,
    dtype_of,
    element_type,
    garbage,
    shape_of,
)
from dlc.dialects.dl.base import DlOp, has_open_sizes, is_narrow
from dlc.dialects.dl.base import shape_of as dl_shape_of
from dlc.dialects.dl.creation import WeightOp
from dlc.dialects.dl.data_dependent.selection import DecideOp
from dlc.dialects.dl.dtypes import element_type as element_type_for
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.dl.programs.binding import bind_dims, bound_kernel, bound_op
from dlc.dialects.dl.programs.control import Control, ScanOp
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp, written_over
from dlc.dialects.entry import outputs_of, sizes_of
from dlc.dims import bind_sizes, is_static, substitute
from dlc.ir import Attribute, Block, MemRefType, ModuleOp, Operation, SymbolRefAttr, TensorType, func
from dlc.passes.transformations.expand_transformations import expanded

Evaluated = TypeVar("Evaluated", DlOp, ScanOp)


def evaluate(
    module: ModuleOp,
    inputs: Sequence[Array],
    weights: Mapping[str, Array] | None = None,
    *,
    function: str = "main",
    watch: Watch | None = None,
) -> list[Array]:
    """The results of a module's function, at whatever stage the module is; `watch` is told of each op that has run.

    A function on buffers takes its inputs, then its outputs; the outputs are made here and returned. Raises
    EvaluationError where the IR contradicts itself, and UnsupportedError for an op without a rule.
    """
    module = expanded(_with_sizes(module, function, inputs))
    machine = Machine(dict(_functions(module)), weights or {}, watch=watch)
    if function not in machine.functions:
        raise EvaluationError(f"the module has no function @{function}; it has {', '.join(sorted(machine.functions))}")
    callee = machine.functions[function]
    shapes: list[tuple[int, ...]] = []
    if isinstance(callee, func.FuncOp):
        # What data decides later has no room yet: once it is known, all begins again.
        shapes = [tuple(s if isinstance(s, int) else 0 for s in sizes_of(a)) for a in outputs_of(callee)]
    try:
        with np.errstate(all="ignore"):
            return _invoke(machine, callee, inputs, (), shapes or None)
    except DecidedError as decided:
        return evaluate(_bound(module, decided.sizes), inputs, weights, function=function, watch=watch)


def sizes_decided(module: ModuleOp, inputs: Sequence[Array], weights: Mapping[str, Array]) -> dict[str, int]:
    """The sizes that data decides in a program of `dl` ops on these inputs; the last ones of those in a loop."""
    module = expanded(_with_sizes(module, "main", inputs))
    machine = Machine(dict(_functions(module)), weights)
    with np.errstate(all="ignore"):
        _invoke(machine, machine.functions["main"], inputs)
    return machine.sizes


def call(
    module: ModuleOp,
    kernel: str,
    inputs: Sequence[Array],
    sizes: Sequence[int],
    shapes: Sequence[tuple[int, ...]],
    watch: Watch | None = None,
) -> list[Array]:
    """What a kernel of a module gives, in arrays of `shapes`, for the sizes that it takes besides; as `evaluate`."""
    machine = Machine(dict(_functions(module)), {}, watch=watch)
    with np.errstate(all="ignore"):
        return _invoke(machine, machine.functions[kernel], inputs, sizes, shapes)


class DecidedError(Exception):
    """Raised where data decides sizes."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes


def _with_sizes(module: ModuleOp, function: str, inputs: Sequence[Array]) -> ModuleOp:
    """The module with the sizes that inputs of these shapes give to its symbols."""
    sizes: dict[str, int] = {}
    for name, callee in _functions(module):
        if name == function and isinstance(callee, func.FuncOp):
            for value, array in zip(callee.body.block.args, inputs, strict=False):
                shape = sizes_of(value) if isinstance(value.type, MemRefType) else dl_shape_of(value)
                bind_sizes(shape, array.shape, sizes)
    return _bound(module, sizes) if sizes else module


def _bound(module: ModuleOp, sizes: Mapping[str, int]) -> ModuleOp:
    bound = module.clone()
    bind_dims(bound, sizes)
    return bound


def evaluate_function(
    function: func.FuncOp, arguments: Sequence[Array], weights: Mapping[str, Array] | None = None
) -> list[Array]:
    """Runs one function. Arguments for buffers are C-contiguous arrays, changed in place; the returned values, if any."""
    with np.errstate(all="ignore"):
        return _run(Machine({}, weights or {}), function, arguments)


def _functions(module: ModuleOp) -> Iterator[tuple[str, Operation]]:
    for op in module.ops:
        if isinstance(op, func.FuncOp):
            yield op.sym_name.data, op
        elif isinstance(op, KernelOp):
            yield op.symbol, op
        elif isinstance(op, ModuleOp):
            yield from _functions(op)


def _invoke(
    machine: Machine,
    callee: Operation,
    inputs: Sequence[Array],
    sizes: Sequence[int] = (),
    shapes: Sequence[tuple[int, ...]] | None = None,
) -> list[Array]:
    """Calls a function or kernel with its inputs only, and its sizes; destinations, of `shapes`, are made here."""
    if isinstance(callee, KernelOp):
        return _run(machine, machine.fact(callee, _kernel_of, *sizes) if sizes else callee, inputs)
    assert isinstance(callee, func.FuncOp)
    wanted = callee.function_type.inputs.data
    outputs = wanted[len(inputs) : len(wanted) - len(sizes)]
    destinations = [empty_like(t, shape) for t, shape in zip(outputs, shapes or map(shape_of, outputs), strict=True)]
    for result, given in written_over(callee).items():
        np.copyto(destinations[result], inputs[given].view(destinations[result].dtype))
    # Tensors have no layout, and NumPy's results any; buffers are contiguous. (np.ascontiguousarray adds a dimension.)
    results = _run(machine, callee, [*(np.asarray(a, order="C") for a in inputs), *destinations, *map(np.asarray, sizes)])
    return results or destinations


def _kernel_of(kernel: KernelOp, *sizes: int) -> KernelOp:
    return bound_kernel(kernel, {f"s{k}": size for k, size in enumerate(sizes)})


def _run(machine: Machine, callee: func.FuncOp | KernelOp, arguments: Sequence[Array]) -> list[Array]:
    types = callee.function_type.inputs.data
    name = callee.sym_name.data
    if len(types) != len(arguments):
        raise EvaluationError(f"@{name} takes {len(types)} arguments, got {len(arguments)}")
    values = [argument(f"argument {k} of @{name}", a, t) for k, (a, t) in enumerate(zip(arguments, types, strict=True))]
    results = Frame(machine).run(callee.body.block, values)
    return [cast(Array, r) for r in results]


def empty_like(t: Attribute, shape: tuple[int, ...]) -> Array:
    """A new array for a destination of this type."""
    dtype = dtype_of(t)
    return np.full(shape, garbage(dtype), dtype)


def argument(where: str, array: Array, t: Attribute) -> Value:
    """An array as the value of an argument; raises EvaluationError where shape or dtype do not fit the type."""
    array = np.asarray(array)
    if not isinstance(t, MemRefType | TensorType):
        return array.astype(dtype_of(t))
    array = same_bits(lambda: where, array, cast(Attribute, t))
    if isinstance(t, TensorType):
        return array
    if not array.flags.c_contiguous:
        raise EvaluationError(f"{where}: a buffer must be C-contiguous; copy it with np.ascontiguousarray")
    return View.of(array)


def same_bits(where: Callable[[], str], array: Array, t: Attribute) -> Array:
    """The array as one of type `t`: kernels hold unsigned integers as signless ones, narrow numbers as bytes.

    `where` says of an array that does not fit what it is; printing a place for each op would take half of an evaluation.
    """
    dtype, shape = _form(t)
    if array.dtype == dtype and array.shape == shape:
        return array
    fits = array.ndim == len(shape) and all(n in (DYNAMIC, m) for n, m in zip(shape, array.shape, strict=True))
    stored = all(d.kind in "iu" or is_narrow(element_type_for(d)) for d in (array.dtype, dtype))
    if not fits or not (array.dtype == dtype or (stored and array.dtype.itemsize == dtype.itemsize)):
        raise EvaluationError(f"{where()}: expected {element_type(t)} {shape}, got {array.dtype} {array.shape}")
    return array if array.dtype == dtype else array.view(dtype)


@lru_cache(maxsize=4096)
def _form(t: Attribute) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """The dtype and the shape of the values of a type."""
    return dtype_of(t), shape_of(t)


def leaf(symbol: SymbolRefAttr) -> str:
    """The last name of a symbol reference: `k` of `@kernels::@k`."""
    nested = symbol.nested_references.data
    return nested[-1].data if nested else symbol.root_reference.data


def callee_of(op: Any, frame: Frame) -> Operation:
    name = leaf(op.callee)
    if name not in frame.machine.functions:
        raise EvaluationError(f"{describe(op)}: no kernel @{name} in the module")
    return frame.machine.functions[name]


@rule(DlOp)
def dl_op(op: DlOp, frame: Frame) -> Sequence[Value]:
    if not op.operands and frame.machine.fact(op, _is_closed):
        # The same in each step of a loop.
        return frame.machine.fact(op, _results)
    operands = [frame.array(v) for v in op.operands]
    results = _results(_known(op, operands, frame), *operands)
    if isinstance(op, DataDependent):
        for result, array in zip(op.results, results, strict=True):
            bind_sizes(dl_shape_of(result), array.shape, frame.machine.sizes)
    return results


def _results(op: DlOp, *operands: Array) -> list[Array]:
    made = op.evaluate(*operands)
    return [same_bits(lambda: f"result of {describe(op)}", a, r.type) for a, r in zip(made, op.results, strict=True)]


def _is_closed(op: DlOp | ScanOp) -> bool:
    """Whether no size of it comes with a call."""
    return all(is_static(dl_shape_of(v)) for v in op.operands) and not has_open_sizes(op)


def _known(op: Evaluated, operands: Sequence[Array], frame: Frame) -> Evaluated:
    """The op for these operands, if its own sizes come with them."""
    if frame.machine.fact(op, _is_closed):
        return op
    shapes, sizes = tuple(a.shape for a in operands), tuple(frame.machine.sizes.items())
    return frame.machine.fact(op, _bound_op, shapes, sizes)


def _bound_op(op: DlOp | Control, shapes: Sequence[tuple[int, ...]], sizes: Sequence[tuple[str, int]]) -> Any:
    own = {str(size) for size in op.decided} if isinstance(op, DataDependent) else set[str]()
    return bound_op(op, shapes, {symbol: size for symbol, size in sizes if symbol not in own})


@rule(Control)
def control(op: Control, frame: Frame) -> Sequence[Value]:
    def run(block: Block, arguments: Sequence[Array]) -> Sequence[Array]:
        return cast("Sequence[Array]", frame.run(block, arguments))

    operands = [frame.array(v) for v in op.operands]
    return _known(op, operands, frame).execute(operands, run) if isinstance(op, ScanOp) else op.execute(operands, run)


def weight_array(op: Operation, symbol: SymbolRefAttr, frame: Frame) -> Array:
    name = leaf(symbol)
    if name not in frame.machine.weights:
        raise EvaluationError(f"{describe(op)}: no weight @{name} in the store")
    return frame.machine.weights[name]


@rule(WeightOp)
def weight(op: WeightOp, frame: Frame) -> Sequence[Value]:
    return (same_bits(lambda: f"weight {op.symbol}", weight_array(op, op.symbol, frame), op.result.type),)


@rule(DispatchOp, func.CallOp)
def dispatch(op: DispatchOp | func.CallOp, frame: Frame) -> Sequence[Value]:
    decided = frame.machine.sizes
    sizes = [int(substitute(s, decided)) for s in op.sizes.sizes] if isinstance(op, DispatchOp) and op.sizes is not None else []
    shapes = [tuple(int(substitute(s, decided)) for s in dl_shape_of(r)) for r in op.results] if sizes else None
    results = _invoke(frame.machine, callee_of(op, frame), [frame.array(v) for v in op.arguments], sizes, shapes)
    if len(results) != len(op.results):
        raise EvaluationError(f"{describe(op)}: {len(results)} results, expected {len(op.results)}")
    return [same_bits(lambda: f"result of {describe(op)}", a, r.type) for a, r in zip(results, op.results, strict=True)]


@rule(DecideOp)
def decide(op: DecideOp, frame: Frame) -> Sequence[Value]:
    frame.machine.sizes[op.symbol] = int(frame.array(op.count))
    return ()
