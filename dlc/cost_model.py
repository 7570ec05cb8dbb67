"""The cost model of a device as data: measured costs that passes use for decisions, with the conditions of the measurement."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class WinogradCosts:
    """Costs of a Winograd convolution in addition to its multiply-adds, in multiply-adds at the rate of a direct convolution.

    `input` is the cost per element that the input transform reads, `output` per element that the output transform writes,
    `weight` per weight that is read from memory, and `runtime_weight` per weight if weights, their packed panels or their
    gradients are transformed at run time. Winograd must be faster by at least the factor `gain`, since transformed weights
    need more memory. Measured on AVX-512; on shorter vectors, weights cost less and images more.

    If tiles and products exceed `cached_bytes`, they are computed in strips of about `strip_bytes`. There are at most
    `max_strips`, since each strip has separate ops. Measured on AVX2, on a loaded machine: strips take a third to two thirds
    of the time without them.
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
    """Prefetching of rows of packed weights: `prefetch_distance` steps ahead, in loops of at least `min_steps` iterations.

    Measured on matrix products of 8 to 128 rows. With a smaller distance lines arrive too late; with a larger one more
    lines are evicted before use. Shorter loops end before prefetching is profitable. A single row reads its weights from
    memory sequentially, where the hardware prefetcher suffices: software prefetching took a third longer (Zen 3: 33 instead
    of 24 ms for a token of GPT-2), hence `min_rows`.

    The output, and operands of the epilogue, are prefetched line by line: interleaved with the computation if a step has at
    least `interleaved_rows` rows, which take long enough, and before it otherwise.
    """

    prefetch_distance: int = 8
    line_bytes: int = 64
    min_steps: int = 32
    min_rows: int = 2
    interleaved_rows: int = 4


@dataclass(frozen=True)
class GroupContractionCosts:
    """Costs of a contraction on a device with work-groups, in clock cycles of one compute unit (`contraction_cost.py`).

    A warp is `warp_items` work-items in lockstep; each of the `schedulers` schedulers of a compute unit runs some warps. A unit
    has `registers` 32-bit registers and at most `max_resident_items` resident work-items; an item needs `overhead_registers`
    in addition to those for accumulators and operands.

    For all items of a warp, a multiply-add costs `multiply`, and an element read from local memory `local_load`. An element
    that the group reads from global memory costs `global_load`. Unaligned elements, which are loaded one at a time, cost
    `scalar_load_factor` as much. Computing and loading overlap, except for the share `exposed_share` of the shorter one.

    Starting and finishing a group costs `group_start` cycles. Between two chunks of the reduction a group stalls for `stall`
    cycles plus `stall_per_step` cycles per step of the chunk; `latency_hiding_warps` resident warps hide half of this.

    Fitted to the times of 172 plans for 21 contractions on an H100 and an H200, with a mean error of 9 %; most of them are in
    `tests/passes/tiling/test_contraction_cost.py`.
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
    """Costs of a step of a contraction on matrix units (tensor cores), in multiply-adds of a compute unit.

    Loading a row or column of a warp tile costs `operand_load`. A step costs at least `min_step`, plus `min_per_accumulator`
    per accumulator of a warp tile. A compute unit runs up to `max_resident_tiles` warp tiles concurrently, with up to
    `max_accumulators` accumulators in its registers. Measured on an H100 (docs/performance.experiments.md, "Matrix units").
    """

    operand_load: int = 128
    min_step: int = 25000
    min_per_accumulator: int = 33
    max_resident_tiles: int = 16
    max_accumulators: int = 1 << 15


@dataclass(frozen=True)
class SplitReductionCosts:
    """Costs of a contraction with and without a split reduction, in steps of a nearly empty work-group (16 ns).

    A step costs at least `min_step`. A compute-bound step computes `results_per_step` results; loading an element of both
    operands costs as much as `operand_load` results. With few rows, a step of `cooperative_columns` columns costs
    `cooperative_step`.

    Splitting adds `kernel_steps` for the kernel that sums the chunks; it reads and writes `partial_sums_per_step` partial sums
    per step. A reduction is split only if the time drops to the share `max_time_ratio` or less. Of the numbers of chunks whose
    time is within the factor `count_tolerance` of the optimum, the smallest is chosen.

    Measured on an H100 and an H200 (docs/performance.experiments.md, "Split reductions and few rows").
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
    """Costs of contractions on a device with work-groups. Up to `few_rows` rows are computed as matrix-vector products."""

    few_rows: int = 4
    contractions: GroupContractionCosts = field(default_factory=GroupContractionCosts)
    matrix_units: MatrixUnitCosts = field(default_factory=MatrixUnitCosts)
    split_reductions: SplitReductionCosts = field(default_factory=SplitReductionCosts)


@dataclass(frozen=True)
class CostModel:
    """Costs on a device that passes use for decisions; the unit of work is a multiply-add of a contraction.

    Tasks: a task should have `task_work`, about 5 µs on one core and ten times the cost of handing it to another thread.
    `kernel_work` is the cost of an additional kernel: its launch, and fewer tiles to distribute. `elementwise_work` is the cost
    of an element of any other op, which is bound by memory or by transcendental functions. `stack_bytes` is the available
    stack of a thread, without the caller's frames.

    Registers: a step of an elementwise op processes `vectors` vectors. A contraction with one vector per row is
    `single_vector_slowdown` times as slow, since each multiply-add loads its own broadcast operand. One with up to `few_rows`
    rows has free registers. Vectors shorter than `min_vector_bytes` are not faster, so channel groups of a convolution with
    fewer outputs share a vector, at the cost of one instruction to broadcast each input. Up to `max_packed_pair_rows` rows that
    may be rounded are multiplied by int4/int8 weights as packed pairs of 16 bits.

    Rows: kernels store rows of up to `max_row_elements` elements in local buffers; a few rows must fit in the L2 cache and on
    the stack. In fused attention `row_tiles` register tiles share the operands of a contraction; 0 means that contractions and
    the ops that consume them are separate kernels.

    Cache blocking:
    - The L1 cache has `cache_ways` ways of `way_bytes`.
    - An operand that exceeds it is packed in panels if at least `min_tiles_per_panel` register tiles read it.
    - A reduction of up to `unblocked_steps` steps is one block, so that partial sums need not be stored. Longer ones have
      blocks of about `block_steps`, or `block_lines` if each step reads separate cache lines.
    - A block has up to `block_elements` elements, which fit the L2 cache, and there are at least `min_block_tasks` tasks. An
      operand that large parts of a task reuse may have `outer_cache_blocks` times as many elements, in an outer cache; so may
      packed weights that are read completely for a few rows at a time.
    - A larger operand that few tiles read is read in place, `unpacked_row_block` rows at a time, with up to
      `max_l1_partial_sums` partial sums in the L1 cache.

    Measured on AVX2. `winograd` and `prefetch` are None if the device does not use them; `groups` applies to devices with
    work-groups.
    """

    task_work: int = 1 << 19
    kernel_work: int = 1 << 20
    elementwise_work: int = 16
    vectors: int = 4
    single_vector_slowdown: float = 1.15
    min_vector_bytes: int = 32
    few_rows: int = 4
    max_packed_pair_rows: int = 32
    max_row_elements: int = 1 << 16
    row_tiles: int = 4
    stack_bytes: int = 4 << 20
    way_bytes: int = 1 << 12
    cache_ways: int = 8
    unblocked_steps: int = 1024
    block_steps: int = 256
    block_lines: int = 100
    min_block_tasks: int = 4
    block_elements: int = 1 << 17
    outer_cache_blocks: int = 2
    unpacked_row_block: int = 8
    max_l1_partial_sums: int = 1 << 12
    min_tiles_per_panel: int = 8
    winograd: WinogradCosts | None = field(default_factory=WinogradCosts)
    prefetch: PrefetchCosts | None = field(default_factory=PrefetchCosts)
    groups: GroupCosts = field(default_factory=GroupCosts)
