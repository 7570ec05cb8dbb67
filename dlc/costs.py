"""What things cost on a device, as far as passes choose by it, as data: numbers that were measured, with where and how."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Winograd:
    """What a convolution by Winograd's tiles costs besides its products, in multiply-adds at the rate of a convolution.

    `input` and `output` are per number that the two transformations read and write, `made` where weights, their panels and
    their gradients are made when the model runs; `weight` per weight that comes from memory. Transformed weights take more
    memory: not for less than `gain`. Measured on AVX-512; where vectors are shorter, weights cost fewer and images more.

    Tiles and products of more than `cached_bytes` are made in strips of about `strip_bytes`, at most `most_strips` of them,
    since each is ops of its own. Measured on AVX2, beside other work: a third to two thirds of the time of all at once.
    """

    input: int = 15
    output: int = 15
    made: int = 30
    weight: int = 16
    gain: float = 1.15
    cached_bytes: int = 4 << 20
    strip_bytes: int = 2 << 20
    most_strips: int = 8


@dataclass(frozen=True)
class Prefetch:
    """When rows of packed weights are asked for ahead of their use, in steps of a loop that runs `shortest` times or more.

    Measured on matrix products of 8 to 128 rows: fewer steps come too late, more are lost again; shorter loops end before
    it pays. For a single row the weights come from memory one after the other: the processor's own prefetching has them
    there in time, and asking for them as well took a third longer (a Zen 3, 33 instead of 24 ms for a token of GPT-2).

    What sums are stored to, and read with, is asked for line by line while they are computed where a step has `spread_rows`
    rows or more, and so time for it; for fewer at once before them.
    """

    steps_ahead: int = 8
    line_bytes: int = 64
    shortest: int = 32
    fewest_rows: int = 2
    spread_rows: int = 4


@dataclass(frozen=True)
class ProductsByGroups:
    """What a contraction costs a device with groups, in clock cycles of one of its units (`contraction_cost.py`).

    `warp` items run in step, and each of a unit's `parts` runs some of these. A unit keeps `registers` numbers at once, and
    runs `most_items` items; an item needs `own_registers` besides its sums and what it multiplies.

    A multiply-add of each item of a warp takes `multiply`, a number that each of them reads from local memory `local`, one
    that the group has from global memory `far`; numbers that are read one by one, since those of an item begin anywhere,
    `one_by_one` times as much. Of the shorter of multiplying and reading the share `unhidden` is not hidden.

    A group starts and ends in `start` cycles. Between two parts of what is reduced it waits for `waiting` cycles and for
    `waiting_step` more with each step of a part; `hiding` warps hide half of that.

    Fitted to the times of 172 plans for 21 products on an H100 and an H200, of which the model is 9 % off in the mean; most of
    them are in `tests/passes/tiling/test_contraction_cost.py`.
    """

    warp: int = 32
    parts: int = 4
    registers: int = 1 << 16
    most_items: int = 2048
    own_registers: int = 24
    multiply: float = 0.25
    local: float = 0.63
    far: float = 0.084
    one_by_one: float = 2.25
    unhidden: float = 0.13
    start: float = 3300.0
    waiting: float = 274.0
    waiting_step: float = 3.6
    hiding: float = 8.2


@dataclass(frozen=True)
class ProductsByMatrices:
    """What a step of a contraction costs where items multiply matrices together, in products that a unit makes in that time.

    A row or a column of a part costs `read`; a step takes `least` at least, and `least_sum` for each sum of a part. A unit has
    `parts` parts at once, with up to `sums` sums in its registers. Measured on an H100 (docs/performance.md, "Products by a
    GPU's matrix units").
    """

    read: int = 128
    least: int = 25000
    least_sum: int = 33
    parts: int = 16
    sums: int = 1 << 15


@dataclass(frozen=True)
class PartsOfSums:
    """What a contraction costs whole and as a sum of parts, in steps of a group that has little to compute in each (16 ns).

    A step takes `start` at least, and computes `rate` results where nothing else bounds it, beside which an element of both
    operands costs as much as `operand` of them. Of few rows a step of `team_columns` columns takes `team_step`. Parts take
    `kernel` for the kernel that adds them up, which writes and reads `partial` sums in a step. They are worth it where no more
    than the share `worth` of the time is left, as few of them as take up to `fewer` times the least. Measured on an H100 and an
    H200 (docs/performance.md, "Few results on a GPU").
    """

    start: float = 0.75
    rate: int = 3300
    operand: int = 9
    team_columns: int = 32
    team_step: float = 0.3
    kernel: int = 400
    partial: int = 10_000
    worth: float = 0.8
    fewer: float = 1.05


@dataclass(frozen=True)
class GroupCosts:
    """What contractions cost on a device with groups. Up to `few_rows` rows share nothing: each is a row times a matrix."""

    few_rows: int = 4
    products: ProductsByGroups = field(default_factory=ProductsByGroups)
    matrices: ProductsByMatrices = field(default_factory=ProductsByMatrices)
    parts: PartsOfSums = field(default_factory=PartsOfSums)


@dataclass(frozen=True)
class Machine:
    """What things cost on a device, as far as passes choose by it; work is counted in multiply-adds of a contraction.

    Tasks: `task_work` makes one, about 5 µs on one core, ten times a hand-over between threads. `kernel_work` is a kernel more:
    what it costs to start, and that its tiles are fewer. `element_work` is one element of anything but a contraction, which is
    bound by memory or by long formulas. `stack_bytes` is what a thread's stack surely holds, with room for the caller's frames.

    Registers: `vectors` are those of a step where no register tile is called for. A contraction with one vector per row is
    `single_vector` times as slow, since each multiply-add loads its own broadcast; one with up to `few_rows` rows has
    registers to spare. Vectors of fewer than `short_bytes` take as long as those: groups of a convolution with so few outputs
    share a longer one, in which what they read is spread, for an instruction each. Up to `pair_rows` rows that may be rounded
    go as pairs of 16 bits through weights of few bits.

    Rows: `row_elements` are the most of a row that a kernel keeps in local buffers, a few of which must fit the second-level
    cache and the stack. `row_tiles` register tiles of such rows share what a contraction reads while another one waits for
    what becomes of its results; 0: they are kernels of their own.

    Blocks: rows of an operand stay in the first-level cache as far as its `cache_ways` of `way_bytes` hold them. Where an
    operand serves `block_tiles` register tiles or more and does not stay, a task copies it in panels: up to `whole_steps` of
    what is reduced at once, since then sums wait nowhere, or a block of about `block_steps` at a time, or of `block_lines`
    where each step reads other lines, up to `block_elements` of it, in tasks of which there are `block_tasks`; what serves
    whole parts of a task may be `far_blocks` times as much, from behind the second level, and so may all packed weights where
    they pass by a few rows at a time. An operand of more than a block that serves fewer tiles is read as it lies, `order_steps`
    rows at a time, with up to `order_elements` sums in the first-level cache.

    Measured on AVX2. `winograd` and `prefetch` are None where the device does without; `groups` is for devices with groups.
    """

    task_work: int = 1 << 19
    kernel_work: int = 1 << 20
    element_work: int = 16
    vectors: int = 4
    single_vector: float = 1.15
    short_bytes: int = 32
    few_rows: int = 4
    pair_rows: int = 32
    row_elements: int = 1 << 16
    row_tiles: int = 4
    stack_bytes: int = 4 << 20
    way_bytes: int = 1 << 12
    cache_ways: int = 8
    whole_steps: int = 1024
    block_steps: int = 256
    block_lines: int = 100
    block_tasks: int = 4
    block_elements: int = 1 << 17
    far_blocks: int = 2
    order_steps: int = 8
    order_elements: int = 1 << 12
    block_tiles: int = 8
    winograd: Winograd | None = field(default_factory=Winograd)
    prefetch: Prefetch | None = field(default_factory=Prefetch)
    groups: GroupCosts = field(default_factory=GroupCosts)
