"""Compile programs for the ranks of a mesh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dlc.backends.base import Backend
from dlc.compiler.driver import compile
from dlc.compiler.program import Program
from dlc.compiler.sharding import ShardedProgram, shard_program
from dlc.compiler.sharding_report import sharding_text
from dlc.dialects.dl.distributed.sharding import PartialSpec
from dlc.distributed.sharded_model import RankProgram, ShardedModel
from dlc.errors import UnsupportedError
from dlc.instrument.report import Progress
from dlc.options import Options
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.native_calls import EXCHANGES
from dlc.runtime.collectives.program_check import compared_options
from dlc.runtime.collectives.start import transport_of
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.models.model import Model
from dlc.runtime.opencl.artifact import DeviceArtifact
from dlc.runtime.program.host_program import PythonCall, walk
from dlc.weights import WeightStore


def compile_on_mesh(
    program: Program,
    mesh: Mesh,
    inputs: Sequence[PartialSpec | None] | None,
    target: str | Backend,
    options: Options,
    progress: Progress | None = None,
) -> ShardedModel:
    """Compile a program for the ranks of a mesh. All ranks call this, and then the model with equal global arrays.

    `inputs` annotates the inputs; None leaves one to the annotation of the imported program, else to propagation. Raises what
    `shard_program`, `transport_of` and `compile` raise.
    """
    if program.io_signature is not None:
        raise UnsupportedError(f"{program.name}: inputs and outputs that are not tensors cannot be sharded")
    if program.mutations:
        mutated = ", ".join(program.mutations.values())
        raise UnsupportedError(f"{program.name}: the call mutates {mutated}, which is not supported on a mesh")
    # Join the job first: the number of threads depends on the number of ranks.
    transport_of(mesh)
    annotations = [None] * len(program.inputs) if inputs is None else inputs
    sharded = shard_program(program, mesh, annotations, [None] * len(program.outputs))
    return compile_sharded(program, sharded, target, options, progress, collects_results=True)


def compile_sharded(
    program: Program,
    sharded: ShardedProgram,
    target: str | Backend,
    options: Options,
    progress: Progress | None = None,
    *,
    collects_results: bool = False,
) -> ShardedModel:
    """Compile the program of a rank; `program` is the one that was partitioned.

    The program is the same for all ranks, unless a constant is split: then it contains the parts of this rank. Raises what
    `compile` and, for split constants, `transport_of` raise.
    """
    local = compile(_program_of_rank(sharded), target, options, progress=progress)
    # The text needs no constants, whose memory can be released.
    described = replace(sharded, program=replace(sharded.program, weights=WeightStore()))

    def text() -> str:
        return "\n".join([sharding_text(described), *_collectives_of(local)])

    rank_program = RankProgram(local, sharded.mesh, sharded.inputs, sharded.outputs, compared_options(options), text)
    model = ShardedModel(rank_program, program.inputs, program.outputs, program.name, collects_results=collects_results)
    model.defaults = program.defaults
    return model


def _collectives_of(model: Model) -> list[str]:
    """Return the labels of the collectives of a compiled program: its ranks must run the same ones."""
    artifact = model.artifact
    if not isinstance(artifact, Artifact | DeviceArtifact):
        return []
    calls = [call for call, _ in walk(artifact.host.instructions) if isinstance(call, PythonCall)]
    return [str(call.settings["label"]) for call in calls if call.op in EXCHANGES]


def _program_of_rank(sharded: ShardedProgram) -> Program:
    """Return the program of this rank, in which each split constant is its own part; threads share one program."""
    transport = transport_of(sharded.mesh) if sharded.has_split_constants else None
    return sharded.program if transport is None or transport.in_one_process else sharded.program_of(transport.rank)
