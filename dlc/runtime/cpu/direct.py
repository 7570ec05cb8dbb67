"""Calls of a program from Python that Python takes no part in: machine code looks at the arrays, makes those of the results
and executes the records (from_python.ll). A call costs a microsecond so, instead of six.

Sizes are known to it: of a program whose sizes are open it is for the shapes that calls have again and again.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from struct import Struct
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import Array, TensorInfo, address_of
from dlc.runtime.cpu.context import Context
from dlc.runtime.cpu.open_program import OpenNativeProgram
from dlc.runtime.cpu.program import LAUNCHES_AT_ONCE, NativeProgram
from dlc.runtime.program.host_program import FIRST_INPUT

# The results for arrays that are exactly what the inputs are; None for any others, and while another thread calls it.
DirectCall: TypeAlias = "Callable[..., list[Array] | None]"

# After so many calls with the same shapes, one that Python takes no part in is worth its making, which takes as long as ten.
_ALIKE = 8
# Results up to this size are in memory that NumPy keeps at hand; larger ones in what the program has of its own.
_BY_NUMPY_BYTES = 1 << 15
# An array as from_python.ll reads it: count, type, data, rank, sizes, strides, base, dtype, flags.
_FIELDS = Struct("@qPPiPPPPi")
# NumPy's tables of functions that its place is known in, by their first number.
_KNOWN_TABLES = (1, 2)
_FASTCALL = 0x80
_NEW_FROM_DESCR = 94  # its place in NumPy's table of functions
_WORD = 8


class _State(np.ndarray[Any, np.dtype[np.int64]]):
    """The numbers that from_python.ll reads, and whatever must stay alive for the addresses among them to hold."""

    kept: object


class _MethodDef(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("text", ctypes.c_char_p))


class DirectCalls:
    """Direct calls of one program: `call`, if there is one, is for the shapes of its inputs, or those that come repeatedly."""

    def __init__(self, run: object) -> None:
        self.call: DirectCall | None = None
        program = getattr(run, "__self__", None)
        self._open = program if isinstance(program, OpenNativeProgram) and not program.decides else None
        self._run, self._asked = run, False
        # Of the last call that Python made, how many before it had them too, and what `call` is for.
        self._shapes: list[tuple[int, ...]] = []
        self._alike = 0
        self._shapes_of_call: list[tuple[int, ...]] | None = None

    def made(self, arrays: Sequence[Any]) -> None:
        """Python made a call, with these arrays in the order of the inputs."""
        if self._open is not None:
            self._made_of_open(self._open, [array.shape for array in arrays], arrays)
        elif not self._asked:
            self.call, self._asked = direct_call(self._run), True

    def _made_of_open(self, program: OpenNativeProgram, shapes: list[tuple[int, ...]], arrays: Sequence[Any]) -> None:
        self._alike = self._alike + 1 if shapes == self._shapes else 0
        self._shapes = shapes
        if self._alike >= _ALIKE and shapes != self._shapes_of_call and objects_are_known():
            self.call, self._shapes_of_call = _direct(program, program.bound_context(arrays), shapes), shapes


def direct_call(run: object) -> DirectCall | None:
    """What calls a program whose `run` this is; None where it is none with native code and known sizes that takes arrays as
    they are, and where objects of Python are not as the code expects them.
    """
    program = getattr(run, "__self__", None)
    if not isinstance(program, NativeProgram) or program.has_donors or not objects_are_known():
        return None
    return _direct(program, program.taken_context(), [cast("tuple[int, ...]", info.shape) for info in program.inputs])


def _direct(program: NativeProgram | OpenNativeProgram, context: Context, shapes: Sequence[tuple[int, ...]]) -> DirectCall:
    """What calls a program with arrays of these shapes, which a context is bound to."""
    pool = program.runtime.pool_cell(program.num_threads)
    stopped = np.zeros(1, np.int64)
    rest = partial(_run_rest, program, stopped, context, pool)
    made: list[Callable[[], Array] | None] = []
    for recycler in context.results:
        made.append(recycler.empty if recycler.bytes > _BY_NUMPY_BYTES else None)
    infos = [*program.inputs, *program.outputs]
    sizes = [np.array(shape, np.int64) for shape in (*shapes, *(recycler.shape for recycler in context.results))]
    makers = [*[None] * len(program.inputs), *made]
    types = np.array([_type_words(*each) for each in zip(infos, sizes, makers, strict=True)], np.int64)
    words = [
        0,
        len(program.inputs),
        len(program.outputs),
        address_of(types),
        program.start,
        LAUNCHES_AT_ONCE,
        context.location,
        context.location + FIRST_INPUT * _WORD,
        ctypes.addressof(pool),
        *map(id, (np.ndarray, Array, None, rest)),
        address_of(stopped),
        *_functions(),
    ]
    state = np.array(words, np.int64).view(_State)
    state.kept = program, context, pool, rest, stopped, infos, sizes, makers, types
    return _built_in(program.runtime.call_from_python, state)


def _type_words(info: TensorInfo, sizes: NDArray[np.int64], make: object) -> tuple[int, int, int, int]:
    return id(info.dtype), len(sizes), address_of(sizes), 0 if make is None else id(make)


def _run_rest(
    program: NativeProgram | OpenNativeProgram, stopped: NDArray[np.int64], context: Context, pool: ctypes.c_int64
) -> None:
    program.run_rest(int(stopped[0]), context, pool.value)


@cache
def objects_are_known() -> bool:
    """Whether this Python's and this NumPy's objects are in memory as from_python.ll reads them, and NumPy's functions where it
    finds them.
    """
    array = np.zeros((2, 3), np.float32)
    if sys.implementation.name != "cpython" or np.ndarray.__basicsize__ < _FIELDS.size:
        return False
    _, type, data, rank, sizes, _, _, dtype, flags = _FIELDS.unpack(ctypes.string_at(id(array), _FIELDS.size))
    expected = id(np.ndarray), array.ctypes.data, array.ndim, id(array.dtype), array.flags.num
    if (type, data, rank, dtype, flags) != expected or ctypes.string_at(sizes, 2 * _WORD) != Struct("@2q").pack(*array.shape):
        return False
    version = ctypes.CFUNCTYPE(ctypes.c_uint)(_table()[0] or 0)()
    return version >> 24 in _KNOWN_TABLES


def _table() -> Any:
    """NumPy's functions for compiled extensions."""
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    capsule = cast("Any", import_module("numpy._core._multiarray_umath"))._ARRAY_API
    return ctypes.cast(get(capsule, None), ctypes.POINTER(ctypes.c_void_p))


@cache
def _functions() -> tuple[int, ...]:
    """The addresses of the functions of NumPy and Python, in the order of %State."""
    names = ("PyList_New", "PyList_SetItem", "PyObject_CallObject", "PyEval_SaveThread", "PyEval_RestoreThread", "Py_IncRef")
    pythons = [getattr(ctypes.pythonapi, name) for name in (*names, "Py_DecRef")]
    return _table()[_NEW_FROM_DESCR] or 0, *[ctypes.cast(f, ctypes.c_void_p).value or 0 for f in pythons]


@cache
def _method(function: int) -> _MethodDef:
    """What Python knows of the function at an address; never freed, as its objects refer to it."""
    return _MethodDef(b"dlc_call", function, _FASTCALL, None)


def _built_in(function: int, state: _State) -> DirectCall:
    prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    make = prototype(("PyCFunction_NewEx", ctypes.pythonapi))
    return make(ctypes.addressof(_method(function)), state, None)
