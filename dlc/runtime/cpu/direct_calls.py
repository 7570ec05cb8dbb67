"""Direct calls: call a program from Python without running Python code (python_call.ll).

Machine code checks the argument arrays, creates the result arrays and executes the bytecode. A call takes one microsecond
instead of six. A direct call is for fixed shapes; a program with symbolic sizes gets one for shapes that are called repeatedly.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from struct import Struct
from threading import Lock
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import Array, TensorInfo, address_of
from dlc.runtime.cpu.context import Context
from dlc.runtime.cpu.program import LAUNCHES_PER_SLICE, NativeProgram
from dlc.runtime.program.host_program import FIRST_INPUT_SLOT

# Returns the results for arrays that match the inputs exactly; None for other arrays, and while other threads use all states.
DirectCall: TypeAlias = "Callable[..., list[Array] | None]"

# Creating a direct call takes as long as ten calls, so wait for this many consecutive calls with the same shapes.
_MIN_REPEATED_CALLS = 8
# The maximum number of direct calls at once, each with a context of its own.
_MAX_CONCURRENT_CALLS = 16
# The index in a state's words of the next state, and of whether a call found all states in use.
_NEXT_STATE_INDEX, _BUSY_INDEX = 22, 23
# Smaller results are allocated by NumPy, which caches small blocks; larger ones come from the program's buffer pool.
_MAX_NUMPY_ALLOCATED_BYTES = 1 << 15
# The fields of an array object that python_call.ll reads: refcount, type, data, ndim, shape, strides, base, dtype, flags.
_ARRAY_FIELDS = Struct("@qPPiPPPPi")
# Major versions of NumPy's C API in which the index below is valid.
_KNOWN_API_VERSIONS = (1, 2)
_METH_FASTCALL = 0x80
_NEW_FROM_DESCR_INDEX = 94  # PyArray_NewFromDescr in NumPy's C API table.
_WORD_BYTES = 8


class _State(np.ndarray[Any, np.dtype[np.int64]]):
    """The words that python_call.ll reads; `references` keeps alive all objects whose addresses are among them."""

    program: NativeProgram
    shapes: list[tuple[int, ...]]
    successor: _State | None
    references: object


# Guards the chains of states.
_extension_lock = Lock()


class _MethodDef(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("text", ctypes.c_char_p))


class DirectCalls:
    """The direct calls of one program: `call` is for static shapes, or for frequent shapes; None if missing."""

    def __init__(self, run: object) -> None:
        self.call: DirectCall | None = None
        self._program = _program_of(run)
        self._min_repeats = _MIN_REPEATED_CALLS if self._program is not None and self._program.host.symbols else 0
        # The shapes of the last call through Python, how often they were repeated, and the shapes of `call`.
        self._shapes: list[tuple[int, ...]] = []
        self._repeats = 0
        self._shapes_of_call: list[tuple[int, ...]] | None = None

    def record(self, arrays: Sequence[Any]) -> None:
        """Record a call through Python, with these arrays in the order of the inputs."""
        if self._program is None:
            return
        shapes = [array.shape for array in arrays]
        self._repeats = self._repeats + 1 if shapes == self._shapes else 0
        self._shapes = shapes
        if shapes == self._shapes_of_call:
            extend_if_busy(self.call)
        elif self._repeats >= self._min_repeats:
            self.call, self._shapes_of_call = _build_direct_call(self._program, shapes), shapes


def _program_of(run: object) -> NativeProgram | None:
    """Return the native program whose `run` method this is; None if it has no direct calls.

    Direct calls need a supported Python and NumPy.
    """
    program = getattr(run, "__self__", None)
    is_supported = isinstance(program, NativeProgram) and program.has_direct_calls and is_supported_layout()
    return program if is_supported else None


def _build_direct_call(program: NativeProgram, shapes: list[tuple[int, ...]]) -> DirectCall:
    """Return a direct call for arrays of these shapes."""
    return _new_builtin(program.runtime.call_from_python, _new_state(program, shapes))


def extend_if_busy(call: DirectCall | None) -> None:
    """Let one more thread use a direct call at the same time, if a thread has found all of its states in use."""
    if call is None:
        return
    head = cast(_State, cast(Any, call).__self__)
    if not head[_BUSY_INDEX]:
        return
    with _extension_lock:
        head[_BUSY_INDEX] = 0
        last, count = head, 1
        while last.successor is not None:
            last, count = last.successor, count + 1
        if count < _MAX_CONCURRENT_CALLS:
            last.successor = _new_state(head.program, head.shapes)
            last[_NEXT_STATE_INDEX] = address_of(last.successor)


def _new_state(program: NativeProgram, shapes: list[tuple[int, ...]]) -> _State:
    """Return the state of a direct call, with a context of its own."""
    context = program.acquire_context(shapes)
    program.bind_collectives(context)
    pool = program.runtime.pool_cell(program.num_threads, program.cpus)
    next_record = np.zeros(1, np.int64)
    resume = partial(_resume, program, next_record, context, pool)
    allocators: list[Callable[[], Array] | None] = []
    for buffer_pool in context.results:
        allocators.append(buffer_pool.empty if buffer_pool.bytes > _MAX_NUMPY_ALLOCATED_BYTES else None)
    infos = [*program.inputs, *program.outputs]
    sizes = [np.array(shape, np.int64) for shape in (*shapes, *(buffer_pool.shape for buffer_pool in context.results))]
    producers = [*[None] * len(program.inputs), *allocators]
    types = np.array([_type_words(*each) for each in zip(infos, sizes, producers, strict=True)], np.int64)
    words = [
        0,
        len(program.inputs),
        len(program.outputs),
        address_of(types),
        program.start,
        LAUNCHES_PER_SLICE,
        context.slots_address,
        context.slots_address + FIRST_INPUT_SLOT * _WORD_BYTES,
        ctypes.addressof(pool),
        *map(id, (np.ndarray, Array, None, resume)),
        address_of(next_record),
        *_function_addresses(),
        0,
        0,
    ]
    state = np.array(words, np.int64).view(_State)
    state.program, state.shapes, state.successor = program, shapes, None
    state.references = context, pool, resume, next_record, infos, sizes, producers, types
    return state


def _type_words(info: TensorInfo, sizes: NDArray[np.int64], allocator: object) -> tuple[int, int, int, int]:
    return id(info.dtype), len(sizes), address_of(sizes), 0 if allocator is None else id(allocator)


def _resume(program: NativeProgram, next_record: NDArray[np.int64], context: Context, pool: ctypes.c_int64) -> None:
    program.resume(int(next_record[0]), context, pool.value)


@cache
def is_supported_layout() -> bool:
    """Return whether array objects of this Python and NumPy have the layout that python_call.ll expects."""
    array = np.zeros((2, 3), np.float32)
    if sys.implementation.name != "cpython" or np.ndarray.__basicsize__ < _ARRAY_FIELDS.size:
        return False
    _, type, data, rank, sizes, _, _, dtype, flags = _ARRAY_FIELDS.unpack(ctypes.string_at(id(array), _ARRAY_FIELDS.size))
    expected = id(np.ndarray), array.ctypes.data, array.ndim, id(array.dtype), array.flags.num
    if (type, data, rank, dtype, flags) != expected or ctypes.string_at(sizes, 2 * _WORD_BYTES) != Struct("@2q").pack(
        *array.shape
    ):
        return False
    version = ctypes.CFUNCTYPE(ctypes.c_uint)(_numpy_api()[0] or 0)()
    return version >> 24 in _KNOWN_API_VERSIONS


def _numpy_api() -> Any:
    """Return NumPy's C API table."""
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    capsule = cast("Any", import_module("numpy._core._multiarray_umath"))._ARRAY_API
    return ctypes.cast(get(capsule, None), ctypes.POINTER(ctypes.c_void_p))


@cache
def _function_addresses() -> tuple[int, ...]:
    """Return the addresses of the functions of NumPy and Python, in the order of %State."""
    names = ("PyList_New", "PyList_SetItem", "PyObject_CallObject", "PyEval_SaveThread", "PyEval_RestoreThread", "Py_IncRef")
    python_functions = [getattr(ctypes.pythonapi, name) for name in (*names, "Py_DecRef")]
    return _numpy_api()[_NEW_FROM_DESCR_INDEX] or 0, *[ctypes.cast(f, ctypes.c_void_p).value or 0 for f in python_functions]


@cache
def _method_def(function: int) -> _MethodDef:
    """Return the PyMethodDef of the function at an address; it is never freed, as function objects refer to it."""
    return _MethodDef(b"dlc_call", function, _METH_FASTCALL, None)


def _new_builtin(function: int, state: _State) -> DirectCall:
    prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    new_function = prototype(("PyCFunction_NewEx", ctypes.pythonapi))
    return new_function(ctypes.addressof(_method_def(function)), state, None)
