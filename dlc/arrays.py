"""Arrays in memory: descriptions, conversion to NumPy, alignment, and `.npy` files."""

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

from dlc.errors import DeviceError, DTypeError, ShapeError
from dlc.shapes.dims import Size
from dlc.shapes.traced_dims import TracedDim

_DATA_POINTER_OFFSET, _pointer_at = object.__basicsize__, ctypes.c_void_p.from_address
ALIGNMENT_BYTES = 64  # bytes: a cache line, and the widest vector register


@dataclass(frozen=True)
class TensorInfo:
    """Name, shape (symbolic dimensions as `Dim`) and NumPy dtype of an input, output or weight."""

    name: str
    shape: tuple[Size, ...]
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return f"{self.name}: {format_type(self.dtype, self.shape)}"


def format_type(dtype: np.dtype[Any], shape: Sequence[Size | str]) -> str:
    """Format a dtype and shape as `float32[2, 3]`; arrays of Python objects contain strings and are formatted as `string`."""
    return f"{'string' if dtype.hasobject else dtype}[{', '.join(map(str, shape))}]"


class Array(np.ndarray[Any, np.dtype[Any]]):
    """A result of a compiled program: a NumPy array, including the buffer protocol and `__dlpack__`.

    On the CPU it owns the memory that the program wrote. Operations on it are NumPy's and return plain NumPy arrays.
    """

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False, /) -> Any:
        return array[()] if return_scalar else np.asarray(array)


class ShapeDtype:
    """A placeholder for an array with a shape and a dtype but no elements: `f.lower(dlc.ShapeDtype((64, 784), np.float32))`.

    In a traced function, sizes may be symbolic sizes of its arrays.
    """

    def __init__(self, shape: Sequence[int], dtype: Any) -> None:
        """Raises ShapeError for negative sizes and DTypeError for an invalid shape or dtype."""
        try:
            self.shape: tuple[int, ...] = tuple(size if isinstance(size, TracedDim) else index(size) for size in shape)
            self.dtype: np.dtype[Any] = np.dtype(dtype)
        except TypeError as error:
            raise DTypeError(f"ShapeDtype({shape!r}, {dtype!r}): expected a sequence of sizes and a dtype: {error}") from error
        if any(not isinstance(cast(object, size), TracedDim) and size < 0 for size in self.shape):
            raise ShapeError(f"ShapeDtype: the shape {self.shape} has a negative size")

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise DTypeError(f"{self!r} has no elements; pass it to .lower only")

    def __repr__(self) -> str:
        return f"ShapeDtype({self.shape}, {self.dtype})"


def supports_only_dlpack(value: object) -> bool:
    """Return whether a value is an array of another library that can be read only through DLPack."""
    return hasattr(value, "__dlpack__") and not hasattr(value, "__array__")


# PyTorch's dtypes that NumPy does not have.
_TENSOR_DTYPES = {
    f"torch.{name}": np.dtype(getattr(ml_dtypes, name))
    for name in ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")
}


def to_numpy(value: Any) -> NDArray[Any]:
    """Convert a value to a NumPy array, without a copy for arrays on the CPU (NumPy's protocols or DLPack).

    Raises ShapeError for a value that is not an array, such as nested lists of different lengths, and DTypeError for an array
    that cannot be read.
    """
    try:
        dtype = _TENSOR_DTYPES.get(str(getattr(value, "dtype", None)))
        if dtype is not None and not value.requires_grad:
            # NumPy does not have this dtype, so the tensor's bits are read as integers.
            return np.asarray(value.view(getattr(sys.modules["torch"], f"uint{8 * dtype.itemsize}"))).view(dtype)
        array: NDArray[Any] = np.from_dlpack(value) if supports_only_dlpack(value) else np.asarray(value)
    except ValueError as error:
        raise ShapeError(f"not an array: {error}") from error
    except (TypeError, RuntimeError, BufferError) as error:
        # Errors of other libraries: a tensor that requires a gradient, is on another device, or has a dtype unknown to NumPy.
        raise DTypeError(f"a {type(value).__name__} cannot be read: {error}") from error
    if array.dtype.kind == "U" and isinstance(value, list | tuple) and not are_strings(np.asarray(value, object)):
        raise DTypeError("a list of strings and numbers, which NumPy would convert to strings")
    return array


def are_strings(array: NDArray[Any]) -> bool:
    """Return whether all elements are strings."""
    return all(isinstance(element, str) for element in array.reshape(-1).tolist())


def address_of(array: NDArray[Any]) -> int:
    """Return the address of an array's first element.

    It reads the first field of NumPy's array object (`PyArrayObject_fields`, part of the public ABI); `ctypes.data` and
    `__array_interface__` take two microseconds per array.
    """
    return _pointer_at(id(array) + _DATA_POINTER_OFFSET).value or 0


def aligned_empty(shape: Sequence[int], dtype: Any, alignment: int = ALIGNMENT_BYTES) -> NDArray[Any]:
    """Return an uninitialized C-contiguous array that starts at a multiple of `alignment` bytes.

    Raises DeviceError when there is not enough memory.
    """
    dtype = np.dtype(dtype)
    count = math.prod(shape) * dtype.itemsize
    try:
        memory = np.empty(count + alignment, np.uint8)
    except (MemoryError, ValueError) as error:
        raise DeviceError(f"out of memory: a buffer of {count} bytes ({dtype}{list(shape)}); reduce the sizes") from error
    return np.ndarray(shape, dtype, memory, -address_of(memory) % alignment)


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """Return `array` itself if it is C-contiguous and 64-byte aligned, else an aligned copy."""
    if array.flags.c_contiguous and address_of(array) % ALIGNMENT_BYTES == 0:
        return array
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def read_npy(path: Path, *, mapped: bool = False) -> NDArray[Any]:
    """Read the array in an `.npy` file; `mapped`: memory-map it. Pickled objects are an error.

    Raises ValueError for an invalid file and OSError for one that cannot be read.
    """
    with _as_value_errors():
        array = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    if isinstance(array, np.lib.npyio.NpzFile):
        array.close()
        raise ValueError("it contains arrays by name, as numpy.savez writes them")
    return array


def read_npz(path: Path) -> dict[str, NDArray[Any]]:
    """Read the arrays in an `.npz` file by name; pickled objects are an error. Raises as `read_npy` does."""
    with _as_value_errors():
        file = np.load(path, allow_pickle=False)
        if isinstance(file, np.lib.npyio.NpzFile):
            with file:
                return {name: file[name] for name in file.files}
    raise ValueError("it contains one array, as numpy.save writes it")


@contextmanager
def _as_value_errors() -> Generator[None]:
    """Convert NumPy's errors about invalid files to ValueError."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        # NumPy parses headers with Python's parser, which raises all kinds of errors, and takes unknown content for a pickle,
        # which must not be loaded.
        is_pickle = "allow_pickle" in str(error)
        raise ValueError("it contains Python objects, or has another format" if is_pickle else f"damaged: {error}") from error


def require_unmasked(array: object, where: str) -> None:
    """Raise DTypeError for a masked array with masked elements: programs would compute with the values under the mask."""
    if isinstance(array, np.ma.MaskedArray) and np.ma.is_masked(cast("NDArray[Any]", array)):
        raise DTypeError(f"{where} is a masked array; give its elements a value with .filled(…)")


def named_dtype(name: Any) -> np.dtype[Any]:
    """Return the numeric or boolean dtype called `name`; raise ValueError for any other name."""
    dtype = np.dtype(getattr(ml_dtypes, name, name)) if isinstance(name, str) else None
    if dtype is None or dtype.name != name or dtype.kind not in "biufV":
        raise ValueError(f"{name!r} is not a numeric dtype")
    return dtype
