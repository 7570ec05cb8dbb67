"""A kernel's code, as compiled models keep it."""

from __future__ import annotations

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

    `origins`: the layers in it; `results`: the dtypes of what it gives, which are its last buffers (none: not known);
    `flops`: the floating-point operations of its contractions in one run; `open`: what it makes of the sizes that it takes, in
    a program whose sizes come with a call.
    """

    name: str
    code: bytes
    entries: tuple[int, ...]
    tasks: tuple[Size, ...]
    origins: tuple[str, ...] = ()
    flops: Size = 0
    open: OpenKernel | None = None
    results: tuple[np.dtype[Any], ...] = ()

    @staticmethod
    def of(name: str, object: bytes, tasks: tuple[Size, ...], open: OpenKernel | None = None) -> KernelObject:
        """A kernel whose grid `g` is at the symbol `<name>.<g>` of an object file.

        Raises CompileError for one that lacks a symbol.
        """
        code = linked(object)
        grids = [f"{name}.{g}" for g in range(len(tasks))]
        if missing := [grid for grid in grids if grid not in code.entries]:
            raise CompileError(f"kernel {name}: its object does not define {', '.join(missing)}")
        return KernelObject(name, code.bytes, tuple(code.entries[grid] for grid in grids), tasks, open=open)

    @property
    def size(self) -> int:
        """The bytes of its code."""
        return len(self.code)

    def image(self) -> KernelImage:
        """The kernel in executable memory."""
        loaded = LoadedCode(Code(self.code, {str(g): at for g, at in enumerate(self.entries)}))
        return KernelImage(tuple((loaded.address(str(g)), tasks) for g, tasks in enumerate(self.tasks)), loaded)
