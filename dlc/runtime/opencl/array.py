"""Device arrays: results stay on the device until they are read."""

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
from dlc.runtime.opencl.devices import Session, open_device, select_device
from dlc.runtime.opencl.driver import driver_errors, opencl
from dlc.target import is_opencl

# From this size on, NumPy requests huge pages and CPU drivers do not: a third of resnet18's time on PoCL. Drivers also take
# longer to copy a large buffer at creation than to create it and copy afterwards.
_MIN_HOST_ALLOCATION_BYTES = 4 << 20


class DeviceArray(NDArrayOperatorsMixin):
    """A read-only array in device memory.

    Models for the same device take it as an input without a copy. Reading its values (NumPy functions, operators, indexing,
    `to("cpu")`) waits for the calls that compute them and copies them to the host once.
    """

    def __init__(self, session: Session, buffer: Any, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        self.session, self.buffer = session, buffer
        self.shape, self.dtype = tuple(shape), dtype
        self._fetched: Array | None = None

    @property
    def device(self) -> str:
        """The target name of the device."""
        platform, device = self.session.device.device_index
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
        """Copy the array to another target, `cpu` or a device; return the array itself if it is already there.

        Raises DeviceError for other targets.
        """
        if target == "cpu":
            return self._fetch()
        session = _session(target)
        return self if session is self.session else upload(self._fetch(), session)

    def _fetch(self) -> Array:
        if self._fetched is None:
            array = aligned_empty(self.shape, self.dtype)
            if self.nbytes:
                with driver_errors("reading ", self):
                    # Copy as bytes: PyOpenCL does not support all dtypes.
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
        """Return the elements as nested lists."""
        return self._fetch().tolist()

    def astype(self, dtype: Any) -> NDArray[Any]:
        """Return a copy on the CPU with another dtype."""
        return np.asarray(self).astype(dtype)

    def __repr__(self) -> str:
        return f"<dlc array {self.dtype}{list(self.shape)} on {self.device}>"


def upload(array: NDArray[Any], session: Session) -> DeviceArray:
    """Copy an array to a device; later changes of `array` have no effect there."""
    return DeviceArray(session, create_buffer(array, session), array.shape, array.dtype)


def create_buffer(array: NDArray[Any], session: Session, *, constant: bool = False) -> Any:
    """Create a buffer with an array's elements in C order; a `constant` buffer is read-only and may use the array's memory."""
    cl = opencl()
    if not array.nbytes:
        return allocate_buffer(session, 0)
    host = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    access = cl.mem_flags.READ_ONLY if constant else cl.mem_flags.READ_WRITE
    with driver_errors(session.device, ": ", array.nbytes, " bytes of memory"):
        if constant and session.device.kind == "cpu":
            return _wrap_host_memory(host, session, access)
        if host.nbytes < _MIN_HOST_ALLOCATION_BYTES:
            return cl.Buffer(session.context, access | cl.mem_flags.COPY_HOST_PTR, hostbuf=host)
        buffer = allocate_buffer(session, host.nbytes)
        cl.enqueue_copy(session.uploads, buffer, host)
        return buffer


def _wrap_host_memory(host: NDArray[np.uint8], session: Session, access: int) -> Any:
    """Create a buffer that uses `host` as its memory.

    `host` must be a view of its own: it is freed after the queue has finished.
    """
    weakref.finalize(host, session.queue.finish)
    cl = opencl()
    return cl.Buffer(session.context, access | cl.mem_flags.USE_HOST_PTR, hostbuf=host)


def allocate_buffer(session: Session, size: int) -> Any:
    """Allocate an uninitialized buffer of `size` bytes."""
    cl = opencl()
    if size > session.device.buffer_bytes:
        raise DeviceError(
            f"{session.device}: a buffer of {size} bytes exceeds the device's maximum of {session.device.buffer_bytes} bytes"
        )
    with driver_errors(session.device, ": ", size, " bytes of memory"):
        if session.device.kind == "cpu" and size >= _MIN_HOST_ALLOCATION_BYTES:
            return _wrap_host_memory(aligned_empty((size,), np.uint8), session, cl.mem_flags.READ_WRITE)
        # OpenCL has no empty buffers.
        return cl.Buffer(session.context, cl.mem_flags.READ_WRITE, max(1, size))


def to_target(array: Any, target: str, preferred: str | None = None) -> Array | DeviceArray:
    """Copy an array to a target, `cpu` or a device; return the array itself if it is already there."""
    if isinstance(array, DeviceArray):
        return array.to(target)
    host = np.asarray(array)
    return host.view(Array) if target == "cpu" else upload(host, _session(target, preferred))


def _session(target: str, preferred: str | None = None) -> Session:
    if not is_opencl(target):
        raise DeviceError(f"arrays are on 'cpu' or on an OpenCL device, such as 'opencl:0:0'; {target!r} is neither")
    return open_device(select_device(target, preferred)[0])
