"""What passes have in common: stages that hold them, and a pass over every kernel function of a module."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from dlc.ir import Context, ModuleOp, ModulePass, func


@dataclass(frozen=True)
class Stage:
    """A level of the IR: the passes that lead to it, and what may exist when they are done.

    `host` and `kernels` are names of dialects or single ops, outside and inside the kernels; None where the stage does not
    say, so that anything may exist.
    """

    name: str
    passes: tuple[ModulePass, ...]
    host: frozenset[str] | None = None
    kernels: frozenset[str] | None = None


def kernels_of(module: ModuleOp) -> Iterator[func.FuncOp]:
    """The kernel functions, from the `linalg` stage on: functions that carry the `kernel` attribute."""
    for op in module.ops:
        if isinstance(op, func.FuncOp) and "kernel" in op.attributes:
            yield op
        elif isinstance(op, ModuleOp):
            yield from kernels_of(op)


class KernelPass(ModulePass, ABC):
    """A pass that treats each kernel function by itself."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for kernel in list(kernels_of(op)):
            self.apply_kernel(ctx, kernel)

    @abstractmethod
    def apply_kernel(self, ctx: Context, kernel: func.FuncOp) -> None:
        """Rewrites one kernel in place."""
