"""Kernels of one product each, for the tests of how contractions are tiled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlc.backends.reference import evaluate_function
from dlc.dialects.registry import make_context
from dlc.ir import ModuleOp, func, parse_module
from dlc.passes.base import kernels_of
from dlc.passes.tiling.bufferize_kernels import BufferizeKernelsPass

CONTEXT = make_context()


@dataclass(frozen=True)
class Product:
    """The product b m k l, b k l n → b m n (einsum); the letters also give the memory layout of the operands' axes."""

    left: str
    right: str
    sizes: dict[str, int]

    def shape(self, axes: str) -> tuple[int, ...]:
        return tuple(self.sizes[a] for a in axes)

    def module(self) -> ModuleOp:
        axes, out = "bmnkl", "bmn"
        maps = ", ".join(f"affine_map<({', '.join(axes)}) -> ({', '.join(t)})>" for t in (self.left, self.right, out))
        x, w, y = (f"tensor<{'x'.join(map(str, self.shape(t)))}xf32>" for t in (self.left, self.right, out))
        return parse_module(
            CONTEXT,
            f"""
            func.func @product(%x: {x}, %w: {w}, %y: {y}) -> {y} attributes {{kernel}} {{
              %zero = arith.constant 0.0 : f32
              %z = linalg.fill ins(%zero : f32) outs(%y : {y}) -> {y}
              %r = linalg.generic {{indexing_maps = [{maps}],
                  iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}}
                  ins(%x, %w : {x}, {w}) outs(%z : {y}) {{
              ^bb0(%a: f32, %b: f32, %acc: f32):
                %p = arith.mulf %a, %b : f32
                %s = arith.addf %p, %acc : f32
                linalg.yield %s : f32
              }} -> {y}
              func.return %r : {y}
            }}""",
        )

    def kernel(self) -> tuple[ModuleOp, func.FuncOp]:
        """Return a module of one kernel on buffers."""
        module = self.module()
        BufferizeKernelsPass().apply(CONTEXT, module)
        (kernel,) = kernels_of(module)
        return module, kernel

    def check(self, kernel: func.FuncOp) -> None:
        rng = np.random.default_rng(1)
        x, w = (rng.standard_normal(self.shape(t)).astype(np.float32) for t in (self.left, self.right))
        y = np.full(self.shape("bmn"), np.nan, np.float32)
        evaluate_function(kernel, [x, w, y])
        np.testing.assert_allclose(y, np.einsum(f"{self.left},{self.right}->bmn", x, w), rtol=1e-4, atol=1e-4)
