"""The content of a page as plain values. The scripts of the page read fields of the same names."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlc.instrument.compilation_record import Listing
from dlc.measure.timeline import TaskSpan


@dataclass(frozen=True)
class PipelineStep:
    """The text of a program or kernel after one step of the pipeline, from the source to machine code.

    Attributes:
        stage: The stage of the text, such as `dl` or `asm`.
        producer: The pass that produced the text, or "".
        seconds: The time of that pass.
        change: The numbers of ops before and after the pass, or "".
        listing: The text, with the origins of each line.
    """

    stage: str
    producer: str
    seconds: float
    change: str
    listing: Listing


@dataclass(frozen=True)
class Unit:
    """The texts of a part of the program after each pass that changed it.

    Attributes:
        kind: `program`, `segment` (between data-dependent sizes) or `kernel`.
        name: The name of that part.
        steps: Its texts in the order of the pipeline.
    """

    kind: str
    name: str
    steps: tuple[PipelineStep, ...]


@dataclass(frozen=True)
class OpGroup:
    """Consecutive ops of one origin in a kernel.

    Attributes:
        ops: The names of the ops.
        origins: The ONNX nodes or Python lines that the ops come from.
        flops: The number of floating-point operations.
    """

    ops: tuple[str, ...]
    origins: tuple[str, ...]
    flops: int


@dataclass(frozen=True)
class Box:
    """A node of the graph: a launch, a view, a loop, a data-dependent size, an input or an output.

    Attributes:
        parent: The index of the enclosing loop or branch. Coordinates are relative to it.
        launch: The index of the launch in the text of the program.
        groups: The ops of the launch.
        next_op: The op before which fusion stopped.
        reason: The reason why the kernel does not include `next_op`.
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
    """A value that flows between two boxes.

    Attributes:
        source: The index of the box that computes the value.
        target: The index of the box that reads it.
        type: The type of the value as text.
        points: The polyline of the edge.
        is_stub: Whether only the end of the edge is drawn.
    """

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
    """A kernel, its code, and its measurements.

    Attributes:
        runs: The number of runs per call of the program. If it was not measured: the number of launches in the program text.
        tasks: The number of tasks of each grid.
        plan: The tile plan of each loop nest as text.
        flops: The floating-point operations per call.
        bytes: The bytes that are read and written per call.
        seconds: The measured time of all runs per call.
        limit_seconds: The shortest time that the limits of the machine allow.
        advice: Sentences about how to make the kernel faster.

    A value that was not measured is None.
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
    """A weight after preprocessing, and the kernels that read it."""

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
    """The times of a few runs, and the timeline of the fastest.

    Attributes:
        runs: The seconds of each run, which vary if the machine does other work.
        spans: The timeline of the fastest run.
        row_labels: The names of the threads or of the device, one per row of the timeline.
        flops: The measured limit of the machine or device in floating-point operations per second.
        cache: The measured limit of reads from the cache in bytes per second.
        memory: The measured limit of reads from memory in bytes per second.
    """

    runs: tuple[float, ...]
    spans: tuple[TaskSpan, ...]
    row_labels: tuple[str, ...]
    flops: float
    cache: float
    memory: float


@dataclass(frozen=True)
class Exploration:
    """The record of one compilation of a program.

    `sizes` are the symbolic dimensions of the call to which memory and times refer.
    """

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
    """A pair of matching kernels of two explorations.

    Attributes:
        first: The name of the kernel of the first exploration, or "" if it has no such kernel.
        second: The name of the kernel of the second exploration, or "".
        different_from: The first stage at which the texts of the kernels differ, or "" if they are equal.
    """

    first: str
    second: str
    different_from: str
