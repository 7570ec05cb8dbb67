"""Independent grids of a kernel are joined, and give equal results."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from dlc.backends.opencl.emit import emit_kernel
from dlc.backends.reference import evaluate, evaluate_function
from dlc.compiler import Program
from dlc.dialects import dl
from dlc.dialects.registry import make_context
from dlc.emission.c.kernel import KernelSource
from dlc.ir import ModuleOp, SSAValue, parse_module
from dlc.passes.base import kernels_of
from dlc.passes.loops.cse_kernels import CseKernelsPass
from dlc.passes.loops.forward_stores import ForwardStoresPass
from dlc.passes.loops.vectorize import VectorizePass
from dlc.passes.tiling.bufferize_kernels import BufferizeKernelsPass
from dlc.passes.tiling.memory_effects import StridedElements, StridedRange, may_overlap
from dlc.passes.tiling.tile_kernels import TileKernelsPass
from dlc.target import OPENCL_PROFILES
from tests.passes.programs import Writer, program, randoms
from tests.stages.test_work_groups import PROFILES, lowered

CONTEXT = make_context()


def draw(rng: np.random.Generator) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(0, 3, 2))


def pad_with(b: Writer, x: SSAValue, low: Sequence[int], high: Sequence[int]) -> SSAValue:
    return b(dl.PadOp, x, b.scalar(0.5, like=x), low=(0, *low, 0), high=(0, *high, 0), pad_mode="constant")


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", range(8))
def test_padding_and_interior_are_one_launch(profile: str, seed: int) -> None:
    """A padded convolution, a padded input, and a concatenation of images, each in one launch."""
    rng = np.random.default_rng(seed)
    height, width, channels, results = (int(n) for n in rng.integers(1, [9, 9, 20, 40]))
    x, w, other = randoms((2, height, width, channels), (1, 1, channels, results), (2, height, width, results), seed=seed)

    def body(b: Writer, x: SSAValue, w: SSAValue, other: SSAValue) -> list[SSAValue]:
        y = b(dl.ReluOp, b(dl.ConvOp, x, w, strides=(1, 1), dilations=(1, 1), groups=1))
        joined = b(dl.ConcatOp, b(dl.NegOp, other), b(dl.AbsOp, other), axis=2)
        return [pad_with(b, y, draw(rng), draw(rng)), pad_with(b, x, draw(rng), draw(rng)), pad_with(b, joined, (1, 1), (1, 1))]

    p = program(body, x, w, other)
    expected = p.run()
    lowering = lowered(Program(p.module, p.weights), profile)
    for got, want in zip(evaluate(lowering.module, p.inputs, lowering.weights), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    for kernel in kernels_of(lowering.module):
        assert len(emit_kernel(kernel, OPENCL_PROFILES[profile]).grids) == 1, kernel.sym_name.data


def tiled(text: str, profile: str = "opencl:gpu") -> ModuleOp:
    module, target = parse_module(CONTEXT, text), OPENCL_PROFILES[profile]
    passes = TileKernelsPass(target), VectorizePass(), ForwardStoresPass(), CseKernelsPass()
    for p in (BufferizeKernelsPass(), *passes):
        p.apply(CONTEXT, module)
        module.verify()
    return module


def emitted(module: ModuleOp) -> KernelSource:
    (kernel,) = kernels_of(module)
    return emit_kernel(kernel, OPENCL_PROFILES["opencl:gpu"])


@pytest.mark.parametrize(("start", "grids"), [(64, 1), (63, 2)])
def test_write_after_read_is_not_joined(start: int, grids: int) -> None:
    text = """
    builtin.module {
      func.func @kept(%y: tensor<100xf32>, %z: tensor<64xf32>) -> (tensor<100xf32>, tensor<64xf32>) attributes {kernel} {
        %one = arith.constant 1.0 : f32
        %read = tensor.extract_slice %y[0] [64] [1] : tensor<100xf32> to tensor<64xf32>
        %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
            ins(%read : tensor<64xf32>) outs(%z : tensor<64xf32>) {
        ^bb0(%e: f32, %old: f32):
          %t = arith.negf %e : f32
          linalg.yield %t : f32
        } -> tensor<64xf32>
        %b = tensor.extract_slice %y[START] [36] [1] : tensor<100xf32> to tensor<36xf32>
        %f = linalg.fill ins(%one : f32) outs(%b : tensor<36xf32>) -> tensor<36xf32>
        %y1 = tensor.insert_slice %f into %y[START] [36] [1] : tensor<36xf32> into tensor<100xf32>
        func.return %y1, %r : tensor<100xf32>, tensor<64xf32>
      }
    }
    """.replace("START", str(start))
    module = tiled(text)
    assert len(emitted(module).grids) == grids
    (kernel,) = kernels_of(module)
    y, z = np.arange(100, dtype=np.float32), np.zeros(64, np.float32)
    evaluate_function(kernel, [y, z])
    np.testing.assert_array_equal(z, -np.arange(64))


@pytest.mark.parametrize(("start", "grids"), [(40, 1), (39, 2)])
def test_write_after_write_is_not_joined(start: int, grids: int) -> None:
    text = """
    builtin.module {
      func.func @filled(%y: tensor<100xf32>) -> tensor<100xf32> attributes {kernel} {
        %one = arith.constant 1.0 : f32
        %two = arith.constant 2.0 : f32
        %a = tensor.extract_slice %y[0] [40] [1] : tensor<100xf32> to tensor<40xf32>
        %f = linalg.fill ins(%one : f32) outs(%a : tensor<40xf32>) -> tensor<40xf32>
        %y1 = tensor.insert_slice %f into %y[0] [40] [1] : tensor<40xf32> into tensor<100xf32>
        %b = tensor.extract_slice %y1[START] [60] [1] : tensor<100xf32> to tensor<60xf32>
        %g = linalg.fill ins(%two : f32) outs(%b : tensor<60xf32>) -> tensor<60xf32>
        %y2 = tensor.insert_slice %g into %y1[START] [60] [1] : tensor<60xf32> into tensor<100xf32>
        func.return %y2 : tensor<100xf32>
      }
    }
    """.replace("START", str(start))
    module = tiled(text)
    assert len(emitted(module).grids) == grids
    (kernel,) = kernels_of(module)
    y = np.zeros(100, np.float32)
    evaluate_function(kernel, [y])
    np.testing.assert_array_equal(y[: start + 60], [1] * start + [2] * 60)


def pair(rows: int) -> str:
    """Two products, the second one with `rows` rows."""

    def one(name: str, m: int) -> str:
        return f"""
    %z{name} = linalg.fill ins(%zero : f32) outs(%out{name} : tensor<{m}x64xf32>) -> tensor<{m}x64xf32>
    %r{name} = linalg.generic {{indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>,
        affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}}
        ins(%x{name}, %w : tensor<{m}x32xf32>, tensor<32x64xf32>) outs(%z{name} : tensor<{m}x64xf32>) {{
    ^bb0(%a: f32, %b: f32, %acc: f32):
      %p = arith.mulf %a, %b : f32
      %s = arith.addf %p, %acc : f32
      linalg.yield %s : f32
    }} -> tensor<{m}x64xf32>"""

    given = ", ".join(f"%{n}: tensor<{m}x{k}xf32>" for n, m, k in (("x0", 64, 32), ("x1", rows, 32), ("w", 32, 64)))
    results = f"%out0: tensor<64x64xf32>, %out1: tensor<{rows}x64xf32>"
    types = f"tensor<64x64xf32>, tensor<{rows}x64xf32>"
    return f"""
builtin.module {{
  func.func @pair({given}, {results}) -> ({types}) attributes {{kernel}} {{
    %zero = arith.constant 0.0 : f32{one("0", 64)}{one("1", rows)}
    func.return %r0, %r1 : {types}
  }}
}}
"""


def test_two_grids_with_barriers_are_not_joined() -> None:
    """A joined grid would have a barrier inside a branch."""
    module = tiled(pair(32))
    assert len(emitted(module).grids) == 2


@pytest.mark.parametrize("seed", range(200))
def test_overlaps_are_detected(seed: int) -> None:
    """Compare strided subviews of a buffer, some with merged axes, with their enumerated elements."""
    rng = np.random.default_rng(seed)
    shape = rng.integers(1, 7, 3).tolist()
    strides = [shape[1] * shape[2], shape[2], 1]

    def window() -> StridedElements:
        starts = [int(rng.integers(0, n)) for n in shape]
        steps = [StridedRange(int(s * rng.integers(1, 3)), int(rng.integers(1, 4))) for s in strides]
        return StridedElements(sum(a * s for a, s in zip(starts, strides, strict=True)), tuple(steps))

    a, b = window(), window()

    def places(p: StridedElements) -> set[int]:
        every = product(*(range(s.size or 0) for s in p.ranges))
        return {p.offset + sum(s.stride * i for s, i in zip(p.ranges, at, strict=True)) for at in every}

    assert may_overlap(a, b) or not places(a) & places(b)
