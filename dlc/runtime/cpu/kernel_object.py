"""A kernel's code, as compiled models keep it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlc.dims import Size
from dlc.errors import CompileError
from dlc.runtime.cpu.code.loader import Code, LoadedCode, linked
from dlc.runtime.cpu.program import KernelImage
from dlc.runtime.program.host_program import OpenKernel


@dataclass(frozen=True)
class KernelObject:
    """A kernel's code, which runs wherever it lies; its grid `g` has `tasks[g]` tasks and begins at `entries[g]` in it.

    Kernels that were compiled together have the same `code`, of which `size` bytes are this one's functions. `origins`: the
    layers in it; `results`: the dtypes of what it gives, which are its last buffers (none: not known); `flops`: the
    floating-point operations of its contractions in one run; `open`: what it makes of the sizes that it takes, in a program
    whose sizes come with a call.
    """

    name: str
    code: bytes
    entries: tuple[int, ...]
    tasks: tuple[Size, ...]
    size: int
    origins: tuple[str, ...] = ()
    flops: Size = 0
    open: OpenKernel | None = None
    results: tuple[np.dtype[Any], ...] = ()

    @staticmethod
    def of(name: str, object: bytes, tasks: tuple[Size, ...], open: OpenKernel | None = None) -> KernelObject:
        """A kernel whose grid `g` is at the symbol `<name>.<g>` of an object file.

        Raises CompileError for one that lacks a symbol.
        """
        return KernelObject.within(linked(object), name, tasks, open)

    @staticmethod
    def within(code: Code, name: str, tasks: tuple[Size, ...], open: OpenKernel | None = None) -> KernelObject:
        """As `of`, of an object's code, in which there may be others."""
        grids = [f"{name}.{g}" for g in range(len(tasks))]
        if missing := [grid for grid in grids if grid not in code.entries]:
            raise CompileError(f"kernel {name}: its object does not define {', '.join(missing)}")
        entries, size = tuple(code.entries[grid] for grid in grids), sum(code.sizes[grid] for grid in grids)
        return KernelObject(name, code.bytes, entries, tasks, size, open=open)


def images_of(kernels: Sequence[KernelObject]) -> dict[str, KernelImage]:
    """Kernels in executable memory, by name."""
    loaded = {code: LoadedCode(code, {}) for code in {kernel.code for kernel in kernels}}

    def image(kernel: KernelObject) -> KernelImage:
        code = loaded[kernel.code]
        return KernelImage(
            tuple((code.begin + at, tasks) for at, tasks in zip(kernel.entries, kernel.tasks, strict=True)), code
        )

    return {kernel.name: image(kernel) for kernel in kernels}
