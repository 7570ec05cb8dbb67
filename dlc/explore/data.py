"""Everything that a page shows, as plain values; the page's scripts read fields of the same names."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlc.instrument.compilation_record import Listing
from dlc.measure.timeline import TaskSpan


@dataclass(frozen=True)
class PipelineStep:
    """A text of the program between source and machine code: its stage, and the pass that produced it with its time."""

    stage: str
    producer: str
    seconds: float
    change: str
    listing: Listing


@dataclass(frozen=True)
class Unit:
    """The texts of the `program`, of a `segment` between data-dependent sizes, or of a `kernel`, after each change."""

    kind: str
    name: str
    steps: tuple[PipelineStep, ...]


@dataclass(frozen=True)
class OpGroup:
    """Consecutive ops of one origin in a kernel: op names, origins and floating-point operations."""

    ops: tuple[str, ...]
    origins: tuple[str, ...]
    flops: int


@dataclass(frozen=True)
class Box:
    """A node of the graph: a launch with its op groups, a view, a loop, a data-dependent size, an input or an output.

    `launch` is the index of the launch in the program's text. `parent` is the enclosing loop or branch; coordinates are
    relative to it. `reason` says why the kernel does not include `next_op`.
    """

    kind: str
    name: str
    parent: int | None = None
    launch: int | None = None
    groups: tuple[OpGroup, ...] = ()
    results: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    next_op: str = ""
    reason: str = ""
    x: float = 0
    y: float = 0
    width: float = 0
    height: float = 0


@dataclass(frozen=True)
class Edge:
    """A value that flows between two boxes, with its type and polyline; if it `is_stub`, only its end is drawn."""

    source: int
    target: int
    type: str
    points: tuple[tuple[float, float], ...] = ()
    is_stub: bool = False


@dataclass(frozen=True)
class ModelGraph:
    """The laid-out graph of a program."""

    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]
    width: float
    height: float


@dataclass(frozen=True)
class KernelSummary:
    """One kernel: its `runs` runs take `seconds` per call of the program; the machine's limits allow `limit_seconds`.

    Values that were not measured are None, and `runs` is then the number of launches in the program text.
    """

    name: str
    origins: tuple[str, ...]
    runs: int
    tasks: tuple[int, ...]
    code_bytes: int
    compile_seconds: float
    plan: tuple[str, ...]
    flops: int | None = None
    bytes: int | None = None
    seconds: float | None = None
    limit_seconds: float | None = None
    advice: tuple[str, ...] = ()


@dataclass(frozen=True)
class ArenaBuffer:
    """A buffer of the arena: its type, offset, and the first and last launch that accesses it."""

    name: str
    type: str
    origins: tuple[str, ...]
    offset: int
    bytes: int
    first_launch: int
    last_launch: int


@dataclass(frozen=True)
class WeightUsage:
    """A weight as kernels read it (after preprocessing), and the kernels that read it."""

    name: str
    type: str
    bytes: int
    kernels: tuple[str, ...]


@dataclass(frozen=True)
class MemoryUsage:
    """The memory of a call: the arena with buffer lifetimes by launch, weights, inputs and outputs."""

    arena_bytes: int
    launches: tuple[str, ...]
    buffers: tuple[ArenaBuffer, ...]
    weights: tuple[WeightUsage, ...]
    input_bytes: int
    output_bytes: int


@dataclass(frozen=True)
class RunMeasurements:
    """The times of a few runs, and the timeline of the fastest; `row_labels` names its threads or the device.

    `runs` are the seconds of each run; they vary if the machine does other work. `flops`, `cache` and `memory` are the measured
    limits of the machine or device: operations per second and bytes per second.
    """

    runs: tuple[float, ...]
    spans: tuple[TaskSpan, ...]
    row_labels: tuple[str, ...]
    flops: float
    cache: float
    memory: float


@dataclass(frozen=True)
class Exploration:
    """Everything about one compilation of a program; `sizes` are those of the call that memory and times refer to."""

    name: str
    target: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    version: str
    units: tuple[Unit, ...]
    graph: ModelGraph
    kernels: tuple[KernelSummary, ...]
    phases: dict[str, float]
    seconds: float
    passes: tuple[tuple[str, str, float], ...]
    memory: MemoryUsage
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    measurements: RunMeasurements | None = None


@dataclass(frozen=True)
class KernelPair:
    """A pair of matching kernels of two explorations; "" for a missing one.

    `different_from` is the first stage at which their texts differ, "" if they are equal.
    """

    first: str
    second: str
    different_from: str
