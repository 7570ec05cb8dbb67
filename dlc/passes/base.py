"""Base classes of passes: stages, per-kernel passes, reporting passes and target-dependent passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from dlc.ir import ArgSpec, Context, ModuleOp, ModulePass, func
from dlc.target import Target, resolve


@dataclass(frozen=True)
class Stage:
    """A level of the IR: the passes that lower to it, and the ops that are legal after them.

    `host` and `kernels` are the names of dialects or ops that are legal outside and inside kernels; None allows any op.
    """

    name: str
    passes: tuple[ModulePass, ...]
    host: frozenset[str] | None = None
    kernels: frozenset[str] | None = None


def kernels_of(module: ModuleOp) -> Iterator[func.FuncOp]:
    """Yield the functions with the `kernel` attribute (from the `linalg` stage on), also those of nested modules."""
    for op in module.ops:
        if isinstance(op, func.FuncOp) and "kernel" in op.attributes:
            yield op
        elif isinstance(op, ModuleOp):
            yield from kernels_of(op)


class KernelPass(ModulePass, ABC):
    """A pass that rewrites each kernel function independently."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for kernel in list(kernels_of(op)):
            self.apply_kernel(ctx, kernel)

    @abstractmethod
    def apply_kernel(self, ctx: Context, kernel: func.FuncOp) -> None:
        """Rewrite one kernel in place."""


class ReportingPass(ModulePass, ABC):
    """A pass that reports its decisions, for tools that trace a compilation."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        self.report(ctx, op)

    @abstractmethod
    def report(self, ctx: Context, op: ModuleOp) -> Sequence[Any]:
        """Rewrite a module in place and return the decisions."""


@dataclass(frozen=True)
class TargetPass(ModulePass, ABC):
    """A pass with a target, which is part of its textual form: `tile-kernels{target="cpu:avx2"}`."""

    target: Target = field(default_factory=lambda: resolve("cpu"))

    @classmethod
    def of(cls, spec: ArgSpec, find_target: Callable[[str], Target]) -> Self:
        """Build a pass from its textual form; `find_target` resolves the name of the target.

        Raises ValueError for an unknown option.
        """
        options = {key: value for key, value in spec.parameters.items() if key != "target"}
        result = cls.from_spec(ArgSpec(spec.name, options))
        name = spec.parameters.get("target")
        return result if name is None else replace(result, target=find_target(str(name[0])))

    def spec(self, *, include_default: bool = False) -> ArgSpec:
        options = super().spec(include_default=include_default).parameters
        # A dumped module may be compiled on another machine, where `cpu` resolves to another target.
        return ArgSpec(self.name, {**options, "target": (self.target.name,)})
