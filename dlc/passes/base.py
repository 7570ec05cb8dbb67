"""What passes have in common: stages that hold them, a pass over every kernel function, and one that goes by a target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from dlc.ir import ArgSpec, Context, ModuleOp, ModulePass, func
from dlc.target import Target, resolve


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


class TellingPass(ModulePass, ABC):
    """A pass that says what it decided, for who watches a compilation."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        self.tell(ctx, op)

    @abstractmethod
    def tell(self, ctx: Context, op: ModuleOp) -> Sequence[Any]:
        """Rewrites a module in place, and says what was decided."""


@dataclass(frozen=True)
class TargetPass(ModulePass, ABC):
    """A pass that goes by what is known of the target; only its text names it: `tile-kernels{target="cpu:avx2"}`."""

    target: Target = field(default_factory=lambda: resolve("cpu"))

    @classmethod
    def of(cls, spec: ArgSpec, named: Callable[[str], Target]) -> Self:
        """The pass that a text says, with the target that its name means.

        Raises ValueError for an option that there is not.
        """
        options = {key: value for key, value in spec.parameters.items() if key != "target"}
        made = cls.from_spec(ArgSpec(spec.name, options))
        name = spec.parameters.get("target")
        return made if name is None else replace(made, target=named(str(name[0])))

    def spec(self, *, include_default: bool = False) -> ArgSpec:
        options = super().spec(include_default=include_default).parameters
        # A dumped module goes on elsewhere: what `cpu` is there is another target.
        return ArgSpec(self.name, {**options, "target": (self.target.name,)})
