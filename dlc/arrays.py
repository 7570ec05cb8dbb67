"""Arrays in memory: what programs return, and buffers at the addresses that native code likes."""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import index
from pathlib import Path
from typing import Any, NoReturn, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from dlc.dims import Size
from dlc.errors import DeviceError, DTypeError, ShapeError

_FIRST_FIELD, _pointer_at = object.__basicsize__, ctypes.c_void_p.from_address
ALIGNMENT = 64  # bytes: a cache line, and the widest vector register


@dataclass(frozen=True)
class TensorInfo:
    """What a program takes or returns: a name, sizes (symbolic ones as `Dim`), and a NumPy dtype."""

    name: str
    shape: tuple[Size, ...]
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return f"{self.name}: {type_text(self.dtype, self.shape)}"


def type_text(dtype: np.dtype[Any], shape: Sequence[Size | str]) -> str:
    """A dtype and sizes in words; of Python's objects the elements are text."""
    return f"{'text' if dtype.hasobject else dtype}[{', '.join(map(str, shape))}]"


class Array(np.ndarray[Any, np.dtype[Any]]):
    """A result of a compiled program: a NumPy array with all that NumPy offers, `__dlpack__` and the buffer among it.

    On the CPU it holds the memory that the program wrote. Operations on it are NumPy's and return plain NumPy arrays.
    """

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False, /) -> Any:
        return array[()] if return_scalar else np.asarray(array)


class ShapeDtype:
    """Stands for an array of which only the shape and the dtype matter: `f.lower(dlc.ShapeDtype((64, 784), np.float32))`."""

    def __init__(self, shape: Sequence[int], dtype: Any) -> None:
        """Raises ShapeError and DTypeError for what is none."""
        try:
            self.shape = tuple(index(size) for size in shape)
            self.dtype: np.dtype[Any] = np.dtype(dtype)
        except TypeError as error:
            raise DTypeError(f"ShapeDtype({shape!r}, {dtype!r}): expected a sequence of sizes and a dtype: {error}") from error
        if any(size < 0 for size in self.shape):
            raise ShapeError(f"ShapeDtype: the shape {self.shape} has a negative size")

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise DTypeError(f"{self!r} has no elements; only .lower takes it in an array's place")

    def __repr__(self) -> str:
        return f"ShapeDtype({self.shape}, {self.dtype})"


def is_lent(value: object) -> bool:
    """Whether it is an array of another library that gives itself by DLPack alone."""
    return hasattr(value, "__dlpack__") and not hasattr(value, "__array__")


def given_array(value: Any) -> NDArray[Any]:
    """What somebody gives where an array is asked for as an array: in the same memory where it is one on the CPU, by NumPy's
    protocols or by DLPack.

    Raises ShapeError for what is none, such as lists of different lengths, and DTypeError for an array that cannot be read.
    """
    try:
        if str(getattr(value, "dtype", None)) == "torch.bfloat16" and not value.requires_grad:
            # NumPy has no such dtype, so that a tensor gives its bits as other numbers only.
            return np.asarray(value.view(sys.modules["torch"].int16)).view(ml_dtypes.bfloat16)
        array: NDArray[Any] = np.from_dlpack(value) if is_lent(value) else np.asarray(value)
    except ValueError as error:
        raise ShapeError(f"not an array: {error}") from error
    except (TypeError, RuntimeError, BufferError) as error:
        # What other libraries say: of a tensor that has a gradient, of one on another device, of a dtype that NumPy has not.
        raise DTypeError(f"a {type(value).__name__} cannot be read: {error}") from error
    if array.dtype.kind == "U" and isinstance(value, list | tuple) and not are_text(np.asarray(value, object)):
        raise DTypeError("a list of text and numbers, of which NumPy makes text")
    return array


def are_text(array: NDArray[Any]) -> bool:
    """Whether all elements are strings."""
    return all(isinstance(element, str) for element in array.reshape(-1).tolist())


def address_of(array: NDArray[Any]) -> int:
    """The address of an array's first element.

    It is the first field of NumPy's array object (`PyArrayObject_fields`, public since compiled extensions read it); NumPy's
    own ways, `ctypes.data` and `__array_interface__`, take two microseconds an array.
    """
    return _pointer_at(id(array) + _FIRST_FIELD).value or 0


def aligned_empty(shape: Sequence[int], dtype: Any, alignment: int = ALIGNMENT) -> NDArray[Any]:
    """An uninitialised C-contiguous array that starts at a multiple of `alignment` bytes.

    Raises DeviceError when there is no memory for it.
    """
    dtype = np.dtype(dtype)
    count = math.prod(shape) * dtype.itemsize
    try:
        memory = np.empty(count + alignment, np.uint8)
    except (MemoryError, ValueError) as error:
        raise DeviceError(f"no memory for a buffer of {count} bytes ({dtype}{list(shape)}); make the sizes smaller") from error
    return np.ndarray(shape, dtype, memory, -address_of(memory) % alignment)


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """`array` itself if it is C-contiguous and starts at a multiple of 64 bytes, else a copy that does."""
    if array.flags.c_contiguous and address_of(array) % ALIGNMENT == 0:
        return array
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def read_npy(path: Path, *, mapped: bool = False) -> NDArray[Any]:
    """The array in an `.npy` file, of numbers only; `mapped` into memory, or read.

    Raises ValueError for a file that is none, and OSError for one that cannot be read.
    """
    with _refused_as_value_error():
        return np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays in an `.npz` file by name, of numbers only; raises as `read_npy` does."""
    with _refused_as_value_error():
        file = np.load(path, allow_pickle=False)
        if isinstance(file, np.lib.npyio.NpzFile):
            with file:
                return {name: file[name] for name in file.files}
    raise ValueError("it is one array, as numpy.save writes it")


@contextmanager
def _refused_as_value_error() -> Generator[None]:
    """Files that NumPy cannot read are ValueErrors."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        # NumPy reads headers with Python's own parser, which raises all kinds of errors; and it takes what it does not know
        # for a pickle, which must not be loaded.
        known = "allow_pickle" in str(error)
        raise ValueError("it holds Python objects, or is of another kind" if known else f"damaged: {error}") from error


def require_unmasked(array: object, where: str) -> None:
    """Raises DTypeError for a masked array that hides elements: programs would compute with what is under the mask."""
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(cast("NDArray[Any]", array)):
        raise DTypeError(f"{where} is a masked array; give its elements a value with .filled(…)")


def named_dtype(name: Any) -> np.dtype[Any]:
    """The dtype called `name`, one of numbers or bools; raises ValueError for any other."""
    dtype = np.dtype(getattr(ml_dtypes, name, name)) if isinstance(name, str) else None
    if dtype is None or dtype.name != name or dtype.kind not in "biufV":
        raise ValueError(f"{name!r} is no dtype of numbers")
    return dtype
