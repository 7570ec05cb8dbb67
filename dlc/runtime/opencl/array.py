"""Arrays on a device: results that stay where they were computed until somebody looks at them."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.typing import NDArray

from dlc.arrays import Array, aligned_empty
from dlc.errors import DeviceError
from dlc.runtime.opencl.devices import Session, choose, open_device
from dlc.runtime.opencl.driver import opencl, reported
from dlc.target import is_opencl

# From this size on NumPy asks the system for large pages, as drivers for processors do not: a third of resnet18's time on PoCL.
# Drivers also take longer to make a buffer of host memory than to make one and to fill it.
_LARGE_BYTES = 4 << 20


class DeviceArray(NDArrayOperatorsMixin):
    """A read-only array in a device's memory.

    A model for the same device takes it as it is. Whatever looks at the numbers (NumPy's functions, operators, indexing,
    `to("cpu")`) fetches them, once; it waits then for the calls that compute them.
    """

    def __init__(self, session: Session, buffer: Any, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        self.session, self.buffer = session, buffer
        self.shape, self.dtype = tuple(shape), dtype
        self._fetched: Array | None = None

    @property
    def device(self) -> str:
        """The target that means where it is."""
        platform, device = self.session.device.place
        return f"opencl:{platform}:{device}"

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def to(self, target: str) -> Array | DeviceArray:
        """The array on another target, `cpu` or a device; itself if it is there.

        Raises DeviceError for a target that has no memory of its own.
        """
        if target == "cpu":
            return self._fetch()
        session = _session(target)
        return self if session is self.session else upload(self._fetch(), session)

    def _fetch(self) -> Array:
        if self._fetched is None:
            array = aligned_empty(self.shape, self.dtype)
            if self.nbytes:
                with reported("reading ", self):
                    # As bytes: drivers know nothing of dtypes.
                    opencl().enqueue_copy(self.session.queue, array.reshape(-1).view(np.uint8), self.buffer)
            array.flags.writeable = False
            self._fetched = array.view(Array)
        return self._fetched

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        array = np.asarray(self._fetch())
        if dtype is not None and np.dtype(dtype) != array.dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def __array_ufunc__(self, ufunc: Callable[..., Any], method: str, *operands: Any, **keywords: Any) -> Any:
        return getattr(ufunc, method)(*(np.asarray(x) if isinstance(x, DeviceArray) else x for x in operands), **keywords)

    def __getitem__(self, index: Any) -> Any:
        return np.asarray(self)[index]

    def __len__(self) -> int:
        return len(np.asarray(self))

    def __bool__(self) -> bool:
        return bool(np.asarray(self))

    def __float__(self) -> float:
        return float(np.asarray(self))

    def __int__(self) -> int:
        return int(np.asarray(self))

    def __dlpack__(self, **keywords: Any) -> Any:
        return self._fetch().copy().__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._fetch().__dlpack_device__()

    def tolist(self) -> Any:
        """The numbers as nested lists."""
        return self._fetch().tolist()

    def astype(self, dtype: Any) -> NDArray[Any]:
        """A copy on the CPU in another dtype."""
        return np.asarray(self).astype(dtype)

    def __repr__(self) -> str:
        return f"<dlc array {self.dtype}{list(self.shape)} on {self.device}>"


def upload(array: NDArray[Any], session: Session) -> DeviceArray:
    """A copy of an array on a device; changing `array` afterwards changes nothing there."""
    return DeviceArray(session, buffer_of(array, session), array.shape, array.dtype)


def buffer_of(array: NDArray[Any], session: Session, *, constant: bool = False) -> Any:
    """A new buffer with an array's elements in it, in C order; a `constant` one, which nobody writes to, may be the array."""
    cl = opencl()
    if not array.nbytes:
        return new_buffer(session, 0)
    host = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    access = cl.mem_flags.READ_ONLY if constant else cl.mem_flags.READ_WRITE
    with reported(session.device, ": ", array.nbytes, " bytes of memory"):
        if constant and session.device.kind == "cpu":
            return _buffer_in(host, session, access)
        if host.nbytes < _LARGE_BYTES:
            return cl.Buffer(session.context, access | cl.mem_flags.COPY_HOST_PTR, hostbuf=host)
        buffer = new_buffer(session, host.nbytes)
        cl.enqueue_copy(session.uploads, buffer, host)
        return buffer


def _buffer_in(host: NDArray[np.uint8], session: Session, access: int) -> Any:
    """A new buffer that is `host`: a view for it alone, which goes when the queue is through with what was said before."""
    weakref.finalize(host, session.queue.finish)
    cl = opencl()
    return cl.Buffer(session.context, access | cl.mem_flags.USE_HOST_PTR, hostbuf=host)


def new_buffer(session: Session, size: int) -> Any:
    """A new buffer of `size` bytes; what is in it is not defined."""
    cl = opencl()
    if size > session.device.buffer_bytes:
        raise DeviceError(f"{session.device}: a buffer of {size} bytes; it holds {session.device.buffer_bytes} in one")
    with reported(session.device, ": ", size, " bytes of memory"):
        if session.device.kind == "cpu" and size >= _LARGE_BYTES:
            return _buffer_in(aligned_empty((size,), np.uint8), session, cl.mem_flags.READ_WRITE)
        # There are no empty buffers.
        return cl.Buffer(session.context, cl.mem_flags.READ_WRITE, max(1, size))


def put(array: Any, target: str, wanted: str | None = None) -> Array | DeviceArray:
    """An array on a target, `cpu` or a device; itself if it is there already."""
    if isinstance(array, DeviceArray):
        return array.to(target)
    host = np.asarray(array)
    return host.view(Array) if target == "cpu" else upload(host, _session(target, wanted))


def _session(target: str, wanted: str | None = None) -> Session:
    if not is_opencl(target):
        raise DeviceError(f"arrays are on 'cpu' or on an OpenCL device, such as 'opencl:0:0'; {target!r} is neither")
    return open_device(choose(target, wanted)[0])
