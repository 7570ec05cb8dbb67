"""A report on a partitioned program: shardings and their reasons, collectives, redundant computation, estimated times."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import ceil, log2

from dlc.arrays import format_type
from dlc.compiler.sharding import ShardedProgram
from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, element_type_of, rank_of, shape_of
from dlc.dialects.dl.distributed.collectives import Collective
from dlc.dialects.dl.distributed.shard_map import ShardMapBoundary
from dlc.dialects.dl.distributed.sharding import format_spec
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.entry import entry_of
from dlc.dialects.location_text import location_text
from dlc.instrument.operation_counts import execution_count
from dlc.ir import ModuleOp, SSAValue, print_module, walk_ops
from dlc.passes.sharding.local_constants import constant_bytes
from dlc.passes.sharding.propagate import Shardings
from dlc.passes.sharding.reshard import flop_count
from dlc.shapes.dims import product

# Lines with less redundant computation than this share of the total are not listed.
_MIN_LISTED_SHARE = 0.01


@dataclass(frozen=True)
class CommunicationModel:
    """The rates from which times of messages and computation are estimated.

    Attributes:
        latency_seconds: The time of an empty message between two ranks.
        bytes_per_second: The rate at which a rank sends.
        flops_per_second: The rate at which a rank computes.
    """

    latency_seconds: float = 10e-6
    bytes_per_second: float = 1.5e9
    flops_per_second: float = 40e9

    def seconds(self, op: Collective) -> float:
        """Return the estimated time of a collective: messages along trees, and its traffic."""
        # An all-reduce combines along one tree of messages, and distributes along another.
        tree_count = 2 if isinstance(op, dl.AllReduceOp) else 1
        return tree_count * ceil(log2(op.ranks)) * self.latency_seconds + op.traffic(op.ranks) / self.bytes_per_second


@dataclass(frozen=True)
class ValueSharding:
    """The sharding of a value as the arguments of `dlc.P`, and the annotation or op that determined it."""

    name: str
    type: str
    spec: str
    reason: str


@dataclass(frozen=True)
class CollectiveCost:
    """A collective: its label, runs per call, bytes that a rank sends per run, and estimated seconds per run."""

    label: str
    runs: int
    bytes: int
    seconds: float


@dataclass(frozen=True)
class RedundantComputation:
    """The FLOPs that all ranks together compute for a source line in excess of the unpartitioned program."""

    line: str
    flops: int


@dataclass(frozen=True)
class ShardingReport:
    """The effects of a mesh on a program.

    Attributes:
        mesh: The mesh, such as `data=2,model=4`.
        inputs, outputs: The shardings of inputs and outputs.
        values: The shardings of split intermediate values.
        collectives: In program order.
        redundant: Lines with redundant computation, the largest first.
        argument_bytes, constant_bytes: The memory of arguments and constants on each rank, and without a mesh.
        compute_seconds: The estimated time in which a rank computes.
        collective_seconds: The estimated time of the collectives, which do not overlap with computation.
        efficiency: The time of the unpartitioned program on one rank, divided by the time of all ranks together.
    """

    mesh: str
    inputs: list[ValueSharding]
    outputs: list[ValueSharding]
    values: list[ValueSharding]
    collectives: list[CollectiveCost]
    redundant: list[RedundantComputation]
    argument_bytes: tuple[int, int]
    constant_bytes: tuple[int, int]
    compute_seconds: float
    collective_seconds: float
    efficiency: float


def report_sharding(sharded: ShardedProgram, model: CommunicationModel) -> ShardingReport:
    """Return the report on a partitioned program. It needs shapes only: nothing is compiled or run."""
    main, shardings = entry_of(sharded.module), sharded.shardings
    last = main.body.block.last_op
    assert last is not None

    def describe(name: str, value: SSAValue) -> ValueSharding:
        return ValueSharding(
            name,
            format_type(numpy_dtype(element_type_of(value)), shape_of(value)),
            f"P{format_spec(shardings.of(value))}",
            shardings.reason(value),
        )

    program = sharded.program
    inputs = [describe(info.name, value) for info, value in zip(program.inputs, main.args, strict=True)]
    outputs = [describe(info.name, value) for info, value in zip(program.outputs, last.operands, strict=True)]
    ops = [op for op in walk_ops(sharded.module, DlOp) if not isinstance(op, dl.ShardOp)]
    split = [(op, r) for op in ops for r in op.results if rank_of(r) and any(shardings.of(r))]
    values = [describe(f"{op.name} at {location_text(op.location)}", result) for op, result in split]
    collectives = [
        CollectiveCost(op.label, execution_count(op), op.traffic(op.ranks), model.seconds(op))
        for op in walk_ops(program.module, Collective)
        if not isinstance(op, dl.AxisIndexOp)
    ]
    whole, local = _flops_by_line(sharded.module, shardings), _flops_by_line(program.module)
    total, local_total, ranks = sum(whole.values()), sum(local.values()), sharded.mesh.size
    redundant = [RedundantComputation(line, flops * ranks - whole.get(line, 0)) for line, flops in local.items()]
    compute_seconds = local_total / model.flops_per_second
    collective_seconds = sum(c.runs * c.seconds for c in collectives)
    seconds = compute_seconds + collective_seconds
    return ShardingReport(
        str(sharded.mesh),
        inputs,
        outputs,
        values,
        collectives,
        sorted((r for r in redundant if r.flops > _MIN_LISTED_SHARE * total), key=lambda r: -r.flops),
        (_bytes_of_arguments(program.module), _bytes_of_arguments(sharded.module)),
        constant_bytes(program.module),
        compute_seconds,
        collective_seconds,
        total / model.flops_per_second / ranks / seconds if seconds else 1.0,
    )


def memory_text(report: ShardingReport) -> str:
    """Return the memory of a rank in words."""
    (own, whole), (own_constants, constants) = report.argument_bytes, report.constant_bytes
    return f"memory per rank: {own:,} of {whole:,} bytes of arguments, {own_constants:,} of {constants:,} bytes of constants"


def sharding_text(sharded: ShardedProgram) -> str:
    """Return the program of each rank as IR, after its shardings, collectives and redundant computation as comments."""
    report = report_sharding(sharded, CommunicationModel())
    lines = [
        f"mesh {report.mesh}",
        *(f"{value.name}: {value.spec}" for value in (*report.inputs, *report.outputs)),
        memory_text(report),
        *sharded.shard_calls,
        *(f"{c.label}: {c.runs} × {c.bytes} bytes sent per rank" for c in report.collectives),
        *(f"redundant at {r.line}: {r.flops} FLOPs of all ranks" for r in report.redundant),
    ]
    return "\n".join([*(f"// {line}" for line in lines), print_module(sharded.program.module)])


def _bytes_of_arguments(module: ModuleOp) -> int:
    return sum(int(product(shape_of(v))) * numpy_dtype(element_type_of(v)).itemsize for v in entry_of(module).args)


def _flops_by_line(module: ModuleOp, shardings: Shardings | None = None) -> dict[str, int]:
    """Return the FLOPs of the ops of each line; with `shardings`, count per-rank values on all ranks where they differ."""
    result: dict[str, int] = defaultdict(int)
    for op in walk_ops(module, DlOp):
        if not isinstance(op, Collective | ShardMapBoundary | dl.WeightOp | dl.ConstantOp):
            varying = None if shardings is None else shardings.varying.joined(op.results)
            ranks = 1 if shardings is None or varying is None else shardings.mesh.shard_count(tuple(varying))
            result[location_text(op.location)] += execution_count(op) * flop_count(op) * ranks
    return result
