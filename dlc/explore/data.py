"""All that a page shows, as plain values; the page's scripts read the same names."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlc.instrument.recording import Listing
from dlc.measure.timeline import Span


@dataclass(frozen=True)
class Step:
    """A text on the way from what the user wrote to machine code: who made it in which stage, and how long that took."""

    stage: str
    made_by: str
    seconds: float
    change: str
    listing: Listing


@dataclass(frozen=True)
class Unit:
    """The `program`, a `part` of one that is cut where data decides a size, or a `kernel`, at each step at which it changed."""

    kind: str
    name: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Part:
    """Ops of one origin inside a box: what they are, where they come from, and their floating-point operations."""

    ops: tuple[str, ...]
    origins: tuple[str, ...]
    flops: int


@dataclass(frozen=True)
class Box:
    """What the graph shows as one thing: a run of a kernel with its parts, a view, a loop, what decides a size, an input or an
    output.

    `launch` is the number of the run in the program's text. `parent` is the loop or branch that it is inside of; places are
    relative to that. `reason` says why the kernel ended before `before`.
    """

    kind: str
    name: str
    parent: int | None = None
    launch: int | None = None
    parts: tuple[Part, ...] = ()
    results: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()
    before: str = ""
    reason: str = ""
    x: float = 0
    y: float = 0
    width: float = 0
    height: float = 0


@dataclass(frozen=True)
class Edge:
    """A value that goes from one box to another, its type, and the corners of the line between them; of one that comes from
    far above only the end is drawn.
    """

    source: int
    target: int
    type: str
    points: tuple[tuple[float, float], ...] = ()
    far: bool = False


@dataclass(frozen=True)
class Graph:
    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]
    width: float
    height: float


@dataclass(frozen=True)
class Kernel:
    """One kernel: in one call of the program it takes `seconds` in `runs` runs, where the machine's limits allow `least`.

    Numbers that were not measured are None, and `runs` is as often as it stands in the program. `advice` is what can be changed
    about it.
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
    least: float | None = None
    advice: tuple[str, ...] = ()


@dataclass(frozen=True)
class Buffer:
    """A part of the arena: which launch first touches it and which last, and what it holds."""

    name: str
    type: str
    origins: tuple[str, ...]
    offset: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Weight:
    """An array of the store, as kernels read it, and the kernels that do."""

    name: str
    type: str
    bytes: int
    kernels: tuple[str, ...]


@dataclass(frozen=True)
class Memory:
    """The arena, whose buffers live from launch to launch, and what else a call needs."""

    arena_bytes: int
    launches: tuple[str, ...]
    buffers: tuple[Buffer, ...]
    weights: tuple[Weight, ...]
    input_bytes: int
    output_bytes: int


@dataclass(frozen=True)
class Measured:
    """The fastest of some runs of the program, and who was at work in it: `rows` are the names of threads, or of a device.

    `runs` are the seconds of each; they differ where the machine does other work, too.

    `flops`, `cache` and `memory` are the limits of the machine, or of the device: operations and bytes per second.
    """

    runs: tuple[float, ...]
    spans: tuple[Span, ...]
    rows: tuple[str, ...]
    flops: float
    cache: float
    memory: float


@dataclass(frozen=True)
class Exploration:
    """What one compilation made of a program; `sizes` are of the call that memory and times are of."""

    name: str
    target: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    version: str
    units: tuple[Unit, ...]
    graph: Graph
    kernels: tuple[Kernel, ...]
    phases: dict[str, float]
    seconds: float
    passes: tuple[tuple[str, str, float], ...]
    memory: Memory
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    measured: Measured | None = None


@dataclass(frozen=True)
class Pair:
    """A kernel of one exploration and the same of another ("": none is), and the first stage at which their texts differ."""

    one: str
    other: str
    differs: str
