"""The code of a kernel, as stored in artifacts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlc.errors import CompileError
from dlc.runtime.cpu.code.loader import LoadedCode, MachineCode, link_object
from dlc.runtime.cpu.program import LoadedKernel
from dlc.runtime.program.host_program import KernelSignature
from dlc.shapes.dims import Size


@dataclass(frozen=True)
class KernelObject:
    """A kernel's position-independent code.

    Attributes:
        code: The code, which may also contain other kernels.
        entries: The offset in the code of the function of each grid.
        tasks: The number of tasks of each grid.
        size: The size in bytes of this kernel's functions.
        signature: Its size parameters and the byte sizes of its buffers.
        origins: The model layers that the kernel computes.
        flops: The floating-point operations of its contractions in one run.
        results: The dtypes of its results, which are its last buffers (empty if unknown).
    """

    name: str
    code: bytes
    entries: tuple[int, ...]
    tasks: tuple[Size, ...]
    size: int
    signature: KernelSignature
    origins: tuple[str, ...] = ()
    flops: Size = 0
    results: tuple[np.dtype[Any], ...] = ()

    @staticmethod
    def of(name: str, object: bytes, tasks: tuple[Size, ...], signature: KernelSignature) -> KernelObject:
        """Return a kernel whose grid `g` is at the symbol `<name>.<g>` of an object file.

        Raises CompileError if a symbol is missing.
        """
        return KernelObject.within(link_object(object), name, tasks, signature)

    @staticmethod
    def within(code: MachineCode, name: str, tasks: tuple[Size, ...], signature: KernelSignature) -> KernelObject:
        """Return a kernel from relocated code, which may contain other kernels; see `of`."""
        grids = [f"{name}.{g}" for g in range(len(tasks))]
        if missing := [grid for grid in grids if grid not in code.entries]:
            raise CompileError(f"kernel {name}: its object does not define the symbols {', '.join(missing)}")
        entries, size = tuple(code.entries[grid] for grid in grids), sum(code.sizes[grid] for grid in grids)
        return KernelObject(name, code.bytes, entries, tasks, size, signature)


def load_kernels(kernels: Sequence[KernelObject]) -> dict[str, LoadedKernel]:
    """Load kernels into executable memory; return them by name."""
    loaded = {code: LoadedCode(code, {}) for code in {kernel.code for kernel in kernels}}

    def load(kernel: KernelObject) -> LoadedKernel:
        code = loaded[kernel.code]
        return LoadedKernel(
            tuple((code.begin + offset, tasks) for offset, tasks in zip(kernel.entries, kernel.tasks, strict=True)), code
        )

    return {kernel.name: load(kernel) for kernel in kernels}
