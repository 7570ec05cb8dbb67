"""Native functions with a C signature: found by ctypes, called with pointers to arrays and with numbers."""

from __future__ import annotations

import ctypes
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, cast

import numpy as np

from dlc.arrays import address_of, format_type
from dlc.errors import DlcError, DTypeError
from dlc.runtime.python_ops.foreign_functions import Array, ArrayType, ForeignFunction


@dataclass(frozen=True)
class PointerArgument:
    """An argument that is the address of the elements of operand `index`."""

    index: int


@dataclass(frozen=True)
class SizeArgument:
    """An argument that is the value of operand `index`, an i64 of rank 0, such as a size."""

    index: int


@dataclass(frozen=True)
class ConstantArgument:
    """An argument with a constant value: a number, or an instance of a ctypes type."""

    value: Any

    @property
    def key(self) -> Hashable:
        return cast("type[Any]", type(self.value)), getattr(self.value, "value", self.value)


Argument: TypeAlias = "PointerArgument | SizeArgument | ConstantArgument"
# The types of elements; NumPy has a dtype for each.
_NUMBERS = (
    *(ctypes.c_bool, ctypes.c_float, ctypes.c_double),
    *(ctypes.c_int8, ctypes.c_int16, ctypes.c_int32, ctypes.c_int64),
    *(ctypes.c_uint8, ctypes.c_uint16, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_longlong, ctypes.c_ulonglong),
)


@dataclass(frozen=True)
class NativeFunction(ForeignFunction):
    """A C function of `arguments`, followed by the addresses of the results.

    Attributes:
        function: The ctypes function.
        arguments: Its arguments before the results.
        batched: A function of the batch size, an `int64_t`, followed by the same arguments for a whole batch; None: `function`
            is called for each batch entry.
        checks_status: Whether it returns an `int` that is 0 unless it fails.
    """

    function: Any
    arguments: tuple[Argument, ...]
    batched: Any = None
    checks_status: bool = False

    @property
    def key(self) -> Hashable:
        arguments = tuple(a.key if isinstance(a, ConstantArgument) else a for a in self.arguments)
        functions = tuple(_identity(f) for f in (self.function, self.batched))
        return functions, arguments, self.operands, self.results, self.checks_status

    @property
    def has_batched_form(self) -> bool:
        return self.batched is not None

    def run(self, operands: Sequence[Array], results: Sequence[ArrayType]) -> Sequence[Array]:
        return self._call(self.function, [], operands, results)

    def run_batched(self, operands: Sequence[Array], results: Sequence[ArrayType]) -> Sequence[Array]:
        return self._call(self.batched, [ctypes.c_int64(len(operands[0]))], operands, results)

    def require_signature(self) -> None:
        """Raise DTypeError unless the arguments match `argtypes`, where the ctypes function has them."""
        for function, leading in ((self.function, 0), (self.batched, 1)):
            argtypes = None if function is None else _argtypes(function)
            if argtypes is None:
                continue
            types = [self.operands[a.index] if isinstance(a, PointerArgument) else None for a in self.arguments]
            types = [*(None for _ in range(leading)), *types, *self.results]
            if len(argtypes) != len(types):
                expected = f"{len(self.arguments)} arguments and {len(self.results)} results"
                raise DTypeError(f"{self.label}: its argtypes have {len(argtypes)} entries; expected {len(types)}: {expected}")
            for k, (argtype, array_type) in enumerate(zip(argtypes, types, strict=True)):
                element = _element_dtype(argtype)
                if array_type is not None and element is not None and element != array_type[1]:
                    got = format_type(array_type[1], array_type[0])
                    raise DTypeError(f"{self.label}: argument {k} is {got}; the C function takes a pointer to {element}")

    def _call(
        self, function: Any, leading: Sequence[Any], operands: Sequence[Array], results: Sequence[ArrayType]
    ) -> Sequence[Array]:
        inputs = list(map(np.ascontiguousarray, operands))
        outputs = [np.empty(cast("tuple[int, ...]", shape), dtype) for shape, dtype in results]
        arguments: list[Any] = [*leading]
        for argument in self.arguments:
            match argument:
                case PointerArgument(index=index):
                    arguments.append(inputs[index].reshape(operands[index].shape))
                case SizeArgument(index=index):
                    # The entries of a batch have the same sizes.
                    arguments.append(ctypes.c_int64(int(inputs[index].flat[0])))
                case ConstantArgument(value=value):
                    arguments.append(_constant(value))
        arguments += outputs
        argtypes = _argtypes(function) or [None] * len(arguments)
        try:
            status = function(*map(_convert, arguments, argtypes))
        except ctypes.ArgumentError as error:
            raise DTypeError(str(error)) from error
        if self.checks_status and status:
            raise DlcError(f"it returned status {status}")
        return outputs


def find_function(symbol: str) -> Any:
    """Return the ctypes function `library:name`, or `name` in the libraries that this process has loaded.

    Raises DlcError if there is none.
    """
    library, _, name = symbol.rpartition(":")
    try:
        return getattr(_library(library or None), name)
    except (OSError, AttributeError) as error:
        hint = "expected 'libname.so:function', or the name of a function in a library that is loaded"
        raise DlcError(f"dlc.ffi.call: {symbol!r} was not found: {error}; {hint}") from None


@lru_cache
def _library(path: str | None) -> ctypes.CDLL:
    return ctypes.CDLL(path)


def _identity(function: Any) -> Hashable:
    """Return the address of a ctypes function with its argument types: each access to a library makes another object."""
    if function is None:
        return None
    return ctypes.cast(function, ctypes.c_void_p).value, tuple(_argtypes(function) or ())


def _argtypes(function: Any) -> Sequence[Any] | None:
    return cast("Sequence[Any] | None", getattr(function, "argtypes", None))


def _element_dtype(argtype: Any) -> np.dtype[Any] | None:
    """Return the dtype to which an argument type points; None if it is no pointer to numbers."""
    # `_type_` of a pointer type is a type, that of a number a format character.
    target = getattr(argtype, "_type_", None)
    return np.dtype(cast(Any, target)) if isinstance(target, type) and target in _NUMBERS else None


def _constant(value: Any) -> Any:
    if isinstance(value, bool | int):
        return ctypes.c_int64(value)
    return ctypes.c_double(value) if isinstance(value, float) else value


def _convert(argument: Any, argtype: Any) -> Any:
    """Convert an argument to the type that the ctypes function declares."""
    if not isinstance(argument, np.ndarray):
        # A declared type accepts the number, not an instance of another type.
        is_other = argtype is not None and not isinstance(argument, argtype)
        return argument.value if is_other and hasattr(argument, "value") else argument
    array = cast(Array, argument)
    if argtype is None or argtype is ctypes.c_void_p:
        return ctypes.c_void_p(address_of(array))
    if _element_dtype(argtype) is not None:
        return array.ctypes.data_as(argtype)
    return array
