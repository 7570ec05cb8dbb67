"""Rules choose good plans for machines that differ in registers, vectors and caches; checked by plan and by assembly."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np
import pytest

from dlc.arrays import ALIGNMENT_BYTES
from dlc.backends.cpu.llvm import assembly
from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.emission.llvm.kernel import emit_kernel
from dlc.ir import Context, ModuleOp, SSAValue, func, i32
from dlc.passes.base import kernels_of
from dlc.passes.tiling.blocking.blocked_tiles import BlockedTiles
from dlc.passes.tiling.choose_tiles import choose_tiles
from dlc.passes.tiling.form_nests import form_loop_nests
from dlc.passes.tiling.loop_nests import NestOp, SizedLoopNest
from dlc.passes.tiling.plan import ThreadTiles
from dlc.passes.tiling.plan_kinds import ThreadPlan
from dlc.passes.tiling.tasks.tile_rules import row_tile
from dlc.passes.tiling.tile_kernels import TileKernelsPass
from dlc.pipelines import stages_of
from dlc.target import CPU_LEVELS
from tests.passes.programs import Writer, program


@dataclass(frozen=True)
class Machine:
    """A processor: the level that dlc selects for it, and the data caches of a core."""

    level: str
    l1_bytes: int
    l2_bytes: int


MACHINES = {
    "Haswell": Machine("cpu:avx2", 32 << 10, 256 << 10),
    "Skylake": Machine("cpu:avx2", 32 << 10, 256 << 10),
    "Zen 2": Machine("cpu:avx2", 32 << 10, 512 << 10),
    "Zen 3": Machine("cpu:avx2", 32 << 10, 512 << 10),
    # Four cores share 2 MB.
    "Alder Lake E-core": Machine("cpu:avx2_vnni", 32 << 10, 512 << 10),
    "Skylake-SP": Machine("cpu:avx512", 32 << 10, 1 << 20),
    "Zen 4": Machine("cpu:avx512_bf16", 32 << 10, 1 << 20),
    "Zen 5": Machine("cpu:avx512_bf16", 48 << 10, 1 << 20),
    "Emerald Rapids": Machine("cpu:avx512_fp16", 48 << 10, 2 << 20),
    "Graviton 2": Machine("cpu:aarch64", 64 << 10, 1 << 20),
    "Graviton 3": Machine("cpu:aarch64_i8mm", 64 << 10, 1 << 20),
}
RNG = np.random.default_rng(0)
# Operands are floats, or words of packed integers.
WORD_BYTES = 4


def convolution(
    kernel: int, strides: int, channels: tuple[int, int], groups: int = 1, activation: type[DlOp] = dl.ReluOp
) -> Callable[[Writer, SSAValue], SSAValue]:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        w = b.weight(RNG.standard_normal((kernel, kernel, *channels), np.float32))
        return b(activation, b(dl.ConvOp, x, w, strides=(strides, strides), dilations=(1, 1), groups=groups))

    return body


def product(k: int, n: int) -> Callable[[Writer, SSAValue], SSAValue]:
    return lambda b, x: b(dl.MatmulOp, x, b.weight(RNG.standard_normal((k, n), np.float32)))


def integer_product(max_weight: int) -> Callable[[Writer, SSAValue], SSAValue]:
    def body(b: Writer, x: SSAValue) -> SSAValue:
        w = b.weight(RNG.integers(-max_weight, max_weight, (256, 128), np.int8, endpoint=True))
        return b(dl.MatmulOp, *(b(dl.CastOp, v, to=i32) for v in (x, w)))

    return body


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def integers(*shape: int) -> np.ndarray:
    return RNG.integers(0, 255, shape, np.uint8, endpoint=True)


@dataclass(frozen=True)
class Case:
    """A contraction kernel: its body and input, and the maximum instructions per multiply-add of its innermost loop.

    Multiplications of integers count as multiply-adds; without VNNI, other instructions add the products.
    """

    body: Callable[[Writer, SSAValue], SSAValue]
    input: np.ndarray
    x86_64: float = 2.0
    aarch64: float = 2.0


CASES = {
    "product of 128 rows": Case(product(768, 768), floats(128, 768)),
    "product of 8 rows": Case(product(768, 768), floats(8, 768)),
    "1x1 convolution of 14x14": Case(convolution(1, 1, (256, 512)), floats(1, 14, 14, 256)),
    "1x1 convolution of 7x7": Case(convolution(1, 1, (512, 2048)), floats(1, 7, 7, 512)),
    "1x1 convolution to 40 channels": Case(convolution(1, 1, (144, 40)), floats(1, 28, 28, 144), 2.6),
    "1x1 convolution of 7x7, SiLU": Case(convolution(1, 1, (192, 1152), 1, dl.SiluOp), floats(1, 7, 7, 192)),
    "3x3 convolution, stride 2": Case(convolution(3, 2, (128, 128)), floats(1, 57, 57, 128)),
    "7x7 convolution of 3 channels": Case(convolution(7, 2, (3, 64)), floats(1, 230, 230, 3)),
    "depthwise convolution": Case(convolution(3, 1, (1, 96), 96), floats(1, 58, 58, 96), 1.8, 2.2),
    "product of bytes": Case(integer_product(127), integers(196, 256), 3.1, 3.0),
    "product of bytes and 7-bit weights": Case(integer_product(64), integers(196, 256), 2.1, 3.0),
}
LEVELS = dict.fromkeys(machine.level for machine in MACHINES.values())


@cache
def tiled(case: str, level: str) -> tuple[Sequence[tuple[SizedLoopNest, ThreadPlan]], str]:
    """Return the nests of the contraction kernel with their plans, and the kernel's assembly."""
    target, module = CPU_LEVELS[level], program(CASES[case].body, CASES[case].input).module
    plans: list[tuple[SizedLoopNest, ThreadPlan]] = []
    for stage in stages_of(target):
        for step in stage.passes:
            if isinstance(step, TileKernelsPass):
                nests = [nest.specialize({}) for nest in form_loop_nests(contraction_kernel(module))]
                plans = [(nest, choose_tiles(nest, target)) for nest in nests]
            step.apply(Context(), module)
    return plans, assembly(emit_kernel(contraction_kernel(module), target).text, target)


def contraction_kernel(module: ModuleOp) -> func.FuncOp:
    return next(k for k in kernels_of(module) if k.sym_name.data.startswith(("conv", "matmul")))


def contractions(case: str, level: str) -> Iterator[tuple[SizedLoopNest, ThreadTiles, NestOp, int]]:
    """Yield each contraction with its nest, its plan, and the dimension of its vectors."""
    for nest, plan in tiled(case, level)[0]:
        for op in nest.ops:
            if op.is_contraction:
                assert isinstance(plan, ThreadTiles)
                yield nest, plan, op, next(d for d in plan.register if op.output.stride(d) == 1)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("case", CASES)
def test_plans_are_legal_and_fit_the_registers(case: str, level: str) -> None:
    target = CPU_LEVELS[level]
    for nest, plan in tiled(case, level)[0]:
        plan.check(nest)
    for _, plan, _, lane in contractions(case, level):
        vectors = -(-plan.tile(lane) // target.lanes(4))
        rows = prod(size for d, size in plan.register.items() if d != lane)
        # One operand of the multiply-adds stays in registers, a vector of the other one is streamed.
        assert rows * vectors + min(rows, vectors) + 1 <= target.vector_registers


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("case", CASES)
def test_operands_of_register_tiles_fit_the_caches(case: str, name: str) -> None:
    machine = MACHINES[name]
    for nest, plan, op, lane in contractions(case, machine.level):
        block = {**nest.extents, **(plan.blocks if isinstance(plan, BlockedTiles) else {})}
        steps = prod(block[d] for d in op.reductions)
        rows = prod(size for d, size in plan.register.items() if d != lane)
        panel_bytes, rows_bytes = (n * steps * WORD_BYTES for n in (plan.tile(lane), rows))
        # A panel is read again by the next rows; the lines of rows stay until all their elements are read.
        assert panel_bytes <= machine.l2_bytes // 2
        assert min(rows_bytes, rows * ALIGNMENT_BYTES) <= machine.l1_bytes // 2


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("case", CASES)
def test_innermost_loops_have_few_instructions(case: str, level: str) -> None:
    code = tiled(case, level)[1]
    # A division is part of an epilogue. The last loop runs longest: the one before it only prefetches.
    loops = [loop for loop in innermost_loops(code) if not any("div" in line for line in loop)]
    loop = max(reversed(loops), key=multiply_adds)
    assert len(loop) / multiply_adds(loop) <= getattr(CASES[case], CPU_LEVELS[level].architecture)
    # Integer products need temporary registers, of which LLVM keeps some in memory; so does an unrolled loop of 28 accumulators.
    max_spills = 3 if "bytes" in case else 4 if case.startswith("1x1 convolution") else 0
    assert sum("Spill" in line for line in loop) <= max_spills


# Multiply-adds and sums of products, and jumps to a label.
_MULTIPLY_ADD = re.compile(r"(?:\{vex\}\s+)?(?:vfn?madd\d+ps|v?pmaddwd|v?pmaddubsw|vpdpbusd|fmla|smull2?|usdot)\s")
_JUMP = re.compile(r"(?:j[a-z]+|b\.[a-z]+|cbn?z|tbn?z)\s.*?(\.LBB\w+)")


def innermost_loops(code: str) -> Iterator[list[str]]:
    """Yield the instructions of each loop of one basic block."""
    label, instructions = "", list[str]()
    for line in code.splitlines():
        if start := re.match(r"(\.LBB\w+):", line):
            label, instructions = start[1], []
        elif re.match(r"\t[a-z{]", line):
            instructions.append(line.strip())
            if (jump := _JUMP.match(line.strip())) and jump[1] == label:
                yield list(instructions)


def multiply_adds(loop: Sequence[str]) -> int:
    return sum(_MULTIPLY_ADD.match(line) is not None for line in loop)


@pytest.mark.parametrize("level", LEVELS)
def test_costs_have_the_smallest_l1_cache_of_a_level(level: str) -> None:
    l1_bytes = min(machine.l1_bytes for machine in MACHINES.values() if machine.level == level)
    assert CPU_LEVELS[level].costs.l1_bytes == l1_bytes


@pytest.mark.parametrize(("extent", "rows"), [(7, 4), (14, 5), (16, 6), (28, 6), (56, 6), (128, 6)])
def test_partial_row_tiles_cost_the_latency_of_a_multiply_add(extent: int, rows: int) -> None:
    costs = CPU_LEVELS["cpu:avx2"].costs
    assert row_tile(costs, extent, 6, costs.latency_hiding_accumulators / 2) == rows
