"""The cost model of a device as data: measured costs that passes use for decisions, with the conditions of the measurement."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

# A maximum number of rows that is never reached.
UNLIMITED_ROWS = sys.maxsize


@dataclass(frozen=True)
class WinogradCosts:
    """Costs of a Winograd convolution in addition to its multiply-adds.

    The unit is a multiply-add of a direct convolution. The costs were measured on AVX-512: on shorter vectors, weights cost
    less and images more. Strips were measured on AVX2 on a loaded machine: they take a third to two thirds of the time.

    Attributes:
        input: The cost per element that the input transform reads.
        output: The cost per element that the output transform writes.
        runtime_weight: The cost per weight if weights, their packed panels or their gradients are transformed at run time.
        weight: The cost per weight that is read from memory.
        gain: The minimum speedup, since transformed weights need more memory.
        cached_bytes: The size of tiles and products above which they are computed in strips.
        strip_bytes: The approximate size of a strip.
        max_strips: The maximum number of strips, since each strip has separate ops.
    """

    input: int = 15
    output: int = 15
    runtime_weight: int = 30
    weight: int = 16
    gain: float = 1.15
    cached_bytes: int = 4 << 20
    strip_bytes: int = 2 << 20
    max_strips: int = 8


@dataclass(frozen=True)
class PrefetchCosts:
    """Prefetching of rows of packed weights.

    Measured on matrix products of 8 to 128 rows.

    Attributes:
        prefetch_distance: The prefetch distance in k iterations. With a smaller distance lines arrive too late; with a larger
            one more lines are evicted before use.
        line_bytes: The size of a cache line.
        min_steps: The minimum iterations of a loop. Shorter loops end before prefetching is profitable.
        min_rows: The minimum rows of a product. A single row reads its weights sequentially, where the hardware prefetcher
            suffices: software prefetching took a third longer (Zen 3: 33 instead of 24 ms for a token of GPT-2).
        word_bytes: The prefetch distance in bytes of packed weights that are unpacked, for any number of rows. The instructions
            that unpack them fill the out-of-order window, so that later loads start late (Zen 5, a row times 6-bit weights:
            26 GB/s without prefetching, 32, 38 and 46 GB/s with distances of 1, 2 and 4 KB; 8 KB is faster still for 4 bits and
            on AVX2).
        next_panel_rows: The maximum rows of a product whose register tiles prefetch the next panel, each a part of it, instead
            of the next rows of the current one. This costs fewer instructions, and the first tile does not wait for memory
            (products of 16 rows: 61 to 91 % of the peak on Zen 3, 76 to 89 % with AVX-512 on Zen 4).
        interleaved_rows: The minimum rows for which prefetches of the output, and of operands of the epilogue, are interleaved
            with the computation line by line. With fewer rows they precede it, because a k iteration is too short.
    """

    prefetch_distance: int = 8
    line_bytes: int = 64
    min_steps: int = 32
    min_rows: int = 2
    word_bytes: int = 8192
    next_panel_rows: int = 0
    interleaved_rows: int = 4


@dataclass(frozen=True)
class UnrollingCosts:
    """Unrolling of the innermost loops of contractions.

    Attributes:
        factor: The k iterations per iteration of the unrolled loop, for floats. With 4 instead of 2, resnet50 and vit_b16 took
            5 to 10 % less time on Emerald Rapids, although LLVM spills two of 28 accumulators in 1×1 convolutions of 7×7
            images, which take 6.5 instead of 4.7 ms.
        integer_factor: The same for integers, whose k iterations have more instructions.
        min_steps: The minimum k iterations of a loop. Loops of 64 are 4 to 6 % faster in convolutions, 0 to 3 % slower in
            attention.
        min_rows: The minimum rows of a register tile.
        max_iteration_ops: The maximum ops of a k iteration. The overhead of longer iterations is small, and LLVM spills more in
            longer blocks (Zen 5, AVX2, 32 rows times weights in blocks of 32: 10 to 20 % of the time).
    """

    factor: int = 4
    integer_factor: int = 2
    min_steps: int = 48
    min_rows: int = 2
    max_iteration_ops: int = 100


@dataclass(frozen=True)
class GroupContractionCosts:
    """Costs of a contraction on a device with work-groups, in clock cycles of one compute unit (`contraction_cost.py`).

    Fitted to the times of 172 plans for 21 contractions on an H100 and an H200, with a mean error of 9 %; most of them are in
    `tests/passes/tiling/test_contraction_cost.py`.

    Attributes:
        warp_items: The work-items of a warp, which run in lockstep.
        schedulers: The schedulers of a compute unit; each runs some warps.
        registers: The 32-bit registers of a compute unit.
        max_resident_items: The maximum number of resident work-items of a compute unit.
        overhead_registers: The registers of a work-item in addition to accumulators and operands.
        multiply: The cost of a multiply-add for all work-items of a warp.
        local_load: The cost of an element read from local memory, for all work-items of a warp.
        global_load: The cost of an element that the group reads from global memory.
        scalar_load_factor: The cost factor of unaligned elements, which are loaded one at a time.
        exposed_share: The fraction of the shorter one of computing and loading that does not overlap.
        group_start: The cost of starting and finishing a group.
        stall: The cost of the stall between two chunks of the reduction.
        stall_per_step: The additional cost of this stall per k iteration of the chunk.
        latency_hiding_warps: The number of resident warps that hide half of a stall.
    """

    warp_items: int = 32
    schedulers: int = 4
    registers: int = 1 << 16
    max_resident_items: int = 2048
    overhead_registers: int = 24
    multiply: float = 0.25
    local_load: float = 0.63
    global_load: float = 0.084
    scalar_load_factor: float = 2.25
    exposed_share: float = 0.13
    group_start: float = 3300.0
    stall: float = 274.0
    stall_per_step: float = 3.6
    latency_hiding_warps: float = 8.2


@dataclass(frozen=True)
class MatrixUnitCosts:
    """Costs of a k iteration of a contraction on matrix units (tensor cores), in multiply-adds of a compute unit.

    Measured on an H100 (docs/performance.experiments.md, "Matrix units").

    Attributes:
        operand_load: The cost of loading a row or column of a warp tile.
        min_step: The minimum cost of a k iteration.
        min_per_accumulator: An addition to the minimum cost per accumulator of a warp tile.
        max_resident_tiles: The maximum number of warp tiles that a compute unit runs concurrently.
        max_accumulators: The maximum number of accumulators in the registers of a compute unit.
    """

    operand_load: int = 128
    min_step: int = 25000
    min_per_accumulator: int = 33
    max_resident_tiles: int = 16
    max_accumulators: int = 1 << 15


@dataclass(frozen=True)
class SplitReductionCosts:
    """Costs of a contraction with and without a split reduction.

    The unit, called a step, is a k iteration of a nearly empty work-group (16 ns). Measured on an H100 and an H200
    (docs/performance.experiments.md, "Split reductions and few rows").

    Attributes:
        min_step: The fixed cost of a k iteration, in addition to that of its results.
        results_per_step: The results that a compute-bound step computes.
        operand_load: The cost of loading an element of both operands, in results.
        cooperative_columns: The columns of a step if there are few rows.
        cooperative_step: The cost of a step of `cooperative_columns` columns.
        kernel_steps: The cost of the kernel that sums the chunks.
        partial_sums_per_step: The partial sums that this kernel reads and writes per step.
        max_time_ratio: The maximum time with a split reduction, relative to the time without it.
        count_tolerance: The smallest number of chunks is chosen whose time is within this factor of the optimum.
    """

    min_step: float = 0.75
    results_per_step: int = 3300
    operand_load: int = 9
    cooperative_columns: int = 32
    cooperative_step: float = 0.3
    kernel_steps: int = 400
    partial_sums_per_step: int = 10_000
    max_time_ratio: float = 0.8
    count_tolerance: float = 1.05


@dataclass(frozen=True)
class GroupCosts:
    """Costs of contractions on a device with work-groups.

    Attributes:
        few_rows: The maximum rows of a contraction that is computed as matrix-vector products.
        min_items: The work-items of the smallest group that amortizes its launch; group sizes are multiples of it.
        resident_groups: The groups that a compute unit runs concurrently.
        contractions: The costs of contractions without matrix units.
        matrix_units: The costs of contractions on matrix units.
        split_reductions: The costs of split reductions.
    """

    few_rows: int = 4
    min_items: int = 32
    resident_groups: int = 4
    contractions: GroupContractionCosts = field(default_factory=GroupContractionCosts)
    matrix_units: MatrixUnitCosts = field(default_factory=MatrixUnitCosts)
    split_reductions: SplitReductionCosts = field(default_factory=SplitReductionCosts)


@dataclass(frozen=True)
class SectionCosts:
    """Costs of launches and of running them concurrently, in seconds and per second.

    Measured on Zen 5 with AVX2 (`benchmarks/concurrency.py inter-op`: 115 GFLOP/s for layers of 16×64×64).

    Attributes:
        flops_per_second: FLOPs of contractions on one processor.
        bytes_per_second: Bytes of arguments that one processor reads and writes, mostly from its cache.
        launch_seconds: The time of an empty launch.
        fork_join_seconds: The time of an empty fork and join of spinning threads (benchmarks/fork_join.py, Zen 4).
    """

    flops_per_second: float = 1e11
    bytes_per_second: float = 5e10
    launch_seconds: float = 1e-7
    fork_join_seconds: float = 1.5e-6


@dataclass(frozen=True)
class CostModel:
    """Costs on a device that passes use for decisions; the unit of work is a multiply-add of a contraction.

    Measured on AVX2. "Steps" are k iterations.

    Attributes:
        task_work: The preferred work of a task: about 5 µs on one core, ten times the cost of handing it to another thread.
        kernel_work: The cost of an additional kernel: its launch, and fewer tiles to distribute.
        elementwise_work: The cost of an element of any other op, which is bound by memory or by transcendental functions.
        streaming_work: The work of a contraction's point that reads an element which no other point reads, as in a
            matrix-vector product: a read from the L2 cache takes as long as four multiply-adds (Zen 5: 7.5 µs for 512×512
            floats).
        vectors: The vectors per step of an elementwise op.
        single_vector_slowdown: The slowdown of a contraction with one vector per row: each multiply-add loads its own
            broadcast operand.
        min_vector_bytes: The size below which shorter vectors are not faster. Channel groups of a convolution with fewer
            outputs share a vector, at the cost of one instruction to broadcast each input.
        panel_vectors: The preferred vectors of a panel of packed weights. With 16 registers, a tile of 4 rows × 3 vectors needs
            fewer loads than 6 × 2 (Zen 5 with AVX2, products of 64 to 1,500 rows: 1 to 6 % faster; Zen 3: equal).
        few_rows: The maximum rows of a contraction that leaves registers free.
        max_packed_pair_rows: The maximum rows that are multiplied by int4/int8 weights as packed pairs of 16 bits, if they may
            be rounded.
        max_row_elements: The maximum row length for which kernels store rows in local buffers. A few rows must fit in the L2
            cache and on the stack.
        row_tiles: The register tiles that share the operands of a contraction in fused attention; 0 means that contractions
            and the ops that consume them are separate kernels.
        stack_bytes: The available stack of a thread, without the caller's frames.
        way_bytes: The size of a way of the L1 cache.
        cache_ways: The number of ways of the L1 cache.
        latency_hiding_accumulators: The accumulator vectors of a register tile that hide the latency of multiply-adds and of
            the loads of their operands.
        independent_accumulators: The accumulator vectors that hide the latency of multiply-adds alone: with fewer, a k
            iteration waits for the previous one (4 cycles, two multiply-adds per cycle).
        exposed_latency_slowdown: The slowdown of a contraction with fewer accumulators than hide its latency.
        max_l1_accumulators: The maximum accumulator vectors if a tile's vectors stay in the L1 cache: more reuse saves nothing
            there, and the epilogue of a larger tile delays the next tile.
        unblocked_steps: The maximum steps of a reduction that is one cache block, so that partial sums need not be stored.
        block_steps: The approximate steps of a cache block of a longer reduction.
        block_lines: The same if each step reads separate cache lines.
        min_block_tasks: The minimum number of tasks with cache blocks.
        block_elements: The maximum elements of a block, which fit the L2 cache.
        outer_cache_blocks: The maximum blocks in an outer cache: of an operand that large parts of a task reuse, or of packed
            weights that are read completely for a few rows at a time.
        unpacked_row_block: The rows that are read at a time from a large operand that few tiles read, without packing.
        max_l1_partial_sums: The maximum partial sums in the L1 cache for such an operand.
        min_tiles_per_panel: The minimum register tiles that read a packed panel of an operand larger than the L1 cache.
        max_unpacked_panel_bytes: The maximum size of a panel of weights that is unpacked once for several register tiles. It
            shares the L2 cache with the rows; 0 if each tile unpacks its weights.
        winograd: The costs of Winograd convolutions; None if the device does not use them.
        prefetch: The costs of prefetching; None if the device does not use it.
        unrolling: The unrolling of contractions; None if it is left to the code generator.
        sections: The costs of running launches concurrently.
        groups: The costs on devices with work-groups.
    """

    task_work: int = 1 << 19
    kernel_work: int = 1 << 20
    elementwise_work: int = 16
    streaming_work: int = 4
    vectors: int = 4
    single_vector_slowdown: float = 1.15
    min_vector_bytes: int = 32
    panel_vectors: int = 2
    few_rows: int = 4
    max_packed_pair_rows: int = 32
    max_row_elements: int = 1 << 16
    row_tiles: int = 4
    stack_bytes: int = 4 << 20
    way_bytes: int = 1 << 12
    cache_ways: int = 8
    latency_hiding_accumulators: int = 12
    independent_accumulators: int = 8
    exposed_latency_slowdown: float = 1.06
    max_l1_accumulators: int = 16
    unblocked_steps: int = 1024
    block_steps: int = 256
    block_lines: int = 100
    min_block_tasks: int = 4
    block_elements: int = 1 << 17
    outer_cache_blocks: int = 2
    unpacked_row_block: int = 8
    max_l1_partial_sums: int = 1 << 12
    min_tiles_per_panel: int = 8
    max_unpacked_panel_bytes: int = 0
    winograd: WinogradCosts | None = field(default_factory=WinogradCosts)
    prefetch: PrefetchCosts | None = field(default_factory=PrefetchCosts)
    unrolling: UnrollingCosts | None = None
    sections: SectionCosts = field(default_factory=SectionCosts)
    groups: GroupCosts = field(default_factory=GroupCosts)

    @property
    def l1_bytes(self) -> int:
        """The size of the L1 cache."""
        return self.cache_ways * self.way_bytes
