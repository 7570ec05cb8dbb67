"""Foreign functions: call native code (`call`) and Python functions (`dlc.pure_callback`) from traced functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from dlc.argument_validation.validate import call_user_function, validate_arguments
from dlc.arrays import ShapeDtype, TensorInfo
from dlc.dialects import dl
from dlc.dialects.dl.base import shape_of, tensor_type
from dlc.dialects.dl.dtypes import element_type
from dlc.errors import DTypeError, ShapeError
from dlc.frontend.pytree import Tree, flatten, is_array_like, unflatten
from dlc.frontend.trace import Trace, Tracer, current_trace, errors_at_user_line, is_python_scalar, with_user_line
from dlc.ir import ArrayAttr
from dlc.numpy.apply import as_shape, operand
from dlc.runtime.python_ops.foreign_functions import ArrayType, ForeignFunction, PythonFunction, register
from dlc.runtime.python_ops.native_functions import (
    Argument,
    ConstantArgument,
    NativeFunction,
    PointerArgument,
    SizeArgument,
    find_function,
)
from dlc.shapes.dims import Dim, Size
from dlc.shapes.parsing import identifier
from dlc.shapes.traced_dims import TracedDim, untraced

__all__ = ["call", "pure_callback"]


def pure_callback(
    callback: Callable[..., Any], result_shapes: Any, *args: Any, batched: bool | Callable[..., Any] = False
) -> Any:
    """Return `callback(*args)`: a Python function that is called when the compiled function runs.

        y = dlc.pure_callback(scipy.special.jv, dlc.ShapeDtype(x.shape, x.dtype), order, x)

    `callback` takes NumPy arrays in place of the arrays in `args`, and returns arrays of the shapes and dtypes of
    `result_shapes`: a `dlc.ShapeDtype`, anything with a shape and a dtype, or a container of them; or a function of `args` that
    returns one, with a ShapeDtype in place of each array. The callback must be pure: it may run any number of times, or not at
    all if its result is unused. Under `dlc.vmap` it runs once per batch entry, in order. With `batched=True` it runs once for
    the whole batch, which is axis 0 of all arrays and results; or `batched` is another function that does so. It has no
    derivative: define one with `dlc.custom_vjp` or `dlc.custom_jvp`.

    Raises DlcError for an exception of the callback, and ShapeError or DTypeError if its results have other types.
    """
    label = f"dlc.pure_callback({getattr(callback, '__name__', type(callback).__name__)})"
    arrays, tree = _flatten_arrays(label, args)
    result_types, result_tree = _result_types(label, result_shapes, args)
    batched_function = callback if batched is True else batched or None

    def function(results: Callable[..., Any]) -> Callable[..., Sequence[Any]]:
        def call_with_arrays(*values: Any) -> Sequence[Any]:
            leaves, returned_tree = flatten(results(*unflatten(tree, iter(values))))
            if difference := result_tree.first_difference(returned_tree):
                path, expected, got = difference
                raise ShapeError(f"the result{path} is {got}; expected {expected}, as result_shapes specifies")
            return result_tree.reordered_leaves(returned_tree, leaves)

        return call_with_arrays

    foreign_function = PythonFunction(
        label,
        tuple(map(_type_of, arrays)),
        result_types,
        function(callback),
        None if batched_function is None else function(batched_function),
        # The table of functions keeps them alive, so that their ids are unique.
        (_FunctionIdentity(callback), _FunctionIdentity(batched_function), tree, result_tree),
    )
    return unflatten(result_tree, iter(_insert(foreign_function, getattr(callback, "__name__", "callback"), arrays)))


def call(function: Any, result_shapes: Any, *args: Any, batched: Any = None, check_status: bool = False) -> Any:
    """Return the results of a C function, which is called when the compiled function runs.

        n = x.shape[0]
        y = dlc.ffi.call("./libscale.so:scale", dlc.ShapeDtype((n,), np.float32), n, ctypes.c_float(2), x)
        # calls  void scale(int64_t n, float factor, const float *x, float *y)

    `function` is a function of a `ctypes` library, `"library.so:name"`, or the name of a function in a library that the process
    has loaded. Its arguments are those in `args`, in order: the address of the elements (C order) of each array; an `int64_t`
    for a Python integer and a size, a `double` for a Python float, any instance of a ctypes type as it is. The addresses of the
    results follow, which it must write completely. `argtypes` of the ctypes function, if set, are checked. With `check_status`
    it returns an int that is not 0 if it fails. It runs without the GIL, on the thread of the call, and must be pure.

    `result_shapes` is that of `dlc.pure_callback`. Under `dlc.vmap` it is called once per batch entry, in order. `batched` is a
    function for a whole batch: it takes the batch size as `int64_t`, followed by the same arguments, with the batch as axis 0
    of all arrays and results. It has no derivative: define one with `dlc.custom_vjp` or `dlc.custom_jvp`.

    Raises DlcError for a function that is not found or fails, DTypeError for arguments that do not match `argtypes`.
    """
    label = f"dlc.ffi.call({function if isinstance(function, str) else getattr(function, '__name__', 'function')})"
    native, batched_native = (find_function(f) if isinstance(f, str) else f for f in (function, batched))
    for candidate in (native, batched_native):
        if candidate is not None and not (callable(candidate) and hasattr(candidate, "argtypes")):
            expected = "expected a ctypes function or the name of one; dlc.pure_callback calls Python functions"
            raise with_user_line(DTypeError(f"{label}: got a {type(candidate).__name__}; {expected}"))
    arrays: list[Any] = []
    arguments: list[Argument] = []
    for k, value in enumerate(args):
        if is_python_scalar(value) or type(value).__module__ == "ctypes":
            arguments.append(ConstantArgument(value))
            continue
        if not isinstance(value, TracedDim) and not is_array_like(value):
            expected = "expected arrays, numbers and instances of ctypes types"
            raise with_user_line(DTypeError(f"{label}: argument {k} is a {type(value).__name__}; {expected}"))
        arguments.append((SizeArgument if isinstance(value, TracedDim) else PointerArgument)(len(arrays)))
        arrays.append(operand(value))
    result_types, result_tree = _result_types(label, result_shapes, args)
    types = tuple(map(_type_of, arrays))
    foreign_function = NativeFunction(label, types, result_types, native, tuple(arguments), batched_native, check_status)
    with errors_at_user_line():
        foreign_function.require_signature()
    return unflatten(result_tree, iter(_insert(foreign_function, getattr(native, "__name__", "native"), arrays)))


class _FunctionIdentity:
    """A function, compared by identity: callables need not be hashable."""

    def __init__(self, function: object) -> None:
        self.function = function

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _FunctionIdentity) and self.function is other.function

    def __hash__(self) -> int:
        return id(self.function)


def _flatten_arrays(label: str, args: tuple[Any, ...]) -> tuple[list[Any], Tree]:
    leaves, tree = flatten(args)
    for leaf, path in zip(leaves, tree.paths("args"), strict=True):
        if not is_array_like(leaf) and not isinstance(leaf, TracedDim):
            kind = type(leaf).__name__
            expected = "expected arrays, numbers and containers of them; bind other values with functools.partial"
            raise with_user_line(DTypeError(f"{label}: {path} is a {kind}; {expected}"))
    return [operand(leaf) for leaf in leaves], tree


def _type_of(array: Any) -> ArrayType:
    return shape_of(array.value) if isinstance(array, Tracer) else array.shape, array.dtype


def _result_types(label: str, result_shapes: Any, args: tuple[Any, ...]) -> tuple[tuple[ArrayType, ...], Tree]:
    """Return the types of the results, and their structure."""
    if callable(result_shapes):
        leaves, tree = flatten(args)
        specs = (ShapeDtype(x.shape, x.dtype) if hasattr(x, "shape") else x for x in leaves)
        result_shapes = call_user_function(result_shapes, *unflatten(tree, specs))
    leaves, tree = flatten(result_shapes)
    types: list[ArrayType] = []
    for leaf, path in zip(leaves, tree.paths("result_shapes"), strict=True):
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            expected = "expected a dlc.ShapeDtype, or a container of them"
            raise with_user_line(DTypeError(f"{label}: {path} is a {type(leaf).__name__}; {expected}"))
        shape = untraced(as_shape(label, leaf.shape), current_trace())
        types.append((cast("tuple[Size, ...]", shape), np.dtype(leaf.dtype)))
    return tuple(types), tree


def _insert(function: ForeignFunction, name: str, arrays: Sequence[Any]) -> Sequence[Any]:
    """Insert a call into the trace and return its results; outside of traced functions, call it immediately."""
    trace = current_trace()
    if trace is None:
        with errors_at_user_line():
            return function(list(map(np.asarray, arrays)))
    _require_known_sizes(trace, function)
    types = ArrayAttr([tensor_type(shape, element_type(dtype)) for shape, dtype in function.results])
    operands = [trace.value(x) for x in arrays]
    return trace.apply_all(dl.ForeignCallOp, *operands, function=register(function, identifier(name)), types=types)


def _require_known_sizes(trace: Trace, function: ForeignFunction) -> None:
    """Raise ShapeError for a symbolic result size that the operands of a call do not determine."""
    known = {str(n) for shape, _ in function.operands for n in shape if n == Dim.symbol(str(n))}
    for k, (shape, dtype) in enumerate(function.results):
        missing = {name for n in shape if isinstance(n, Dim) for name in n.symbols()} - known
        if missing:
            info = TensorInfo(f"result {k}", shape, dtype)
            problem = f"{function.label}: {info}: {', '.join(sorted(missing))} is not the size of an axis of an argument"
            raise with_user_line(ShapeError(f"{problem}; pass an array with that axis"))


validate_arguments(globals(), validate_first=__all__)
