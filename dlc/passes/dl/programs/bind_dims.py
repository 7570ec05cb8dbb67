"""Bind symbolic dimensions to static sizes."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.dialects.dl.programs.binding import bind_dims
from dlc.ir import Context, ModuleOp, ModulePass


@dataclass(frozen=True)
class BindDimsPass(ModulePass):
    """`bind-dims{sizes="batch=2"}`: replaces symbolic dimensions by sizes, in types and properties, and infers all types again.

        func.func @main(%x: tensor<?x3xf32, #dl.dims<"batch", 3>>) { dl.relu %x : … -> tensor<?x3xf32, …> }
    →   func.func @main(%x: tensor<2x3xf32>) { dl.relu %x : … -> tensor<2x3xf32> }

    Symbols without a size stay. Raises ShapeError where an op does not accept the sizes.
    """

    name = "bind-dims"
    sizes: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        pairs = (entry.rpartition("=") for entry in self.sizes)
        bind_dims(op, {symbol: int(size) for symbol, _, size in pairs})
