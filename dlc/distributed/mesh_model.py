"""Compile programs for the ranks of a mesh."""

from __future__ import annotations

from collections.abc import Sequence

from dlc.backends.base import Backend
from dlc.compiler.driver import compile
from dlc.compiler.program import Program
from dlc.compiler.sharding import ShardedProgram, shard_program
from dlc.compiler.sharding_report import sharding_text
from dlc.dialects.dl.distributed.sharding import PartialSpec
from dlc.distributed.meshes import transport_of
from dlc.distributed.sharded_model import RankProgram, ShardedModel
from dlc.errors import UnsupportedError
from dlc.instrument.report import Progress
from dlc.options import Options
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.program_check import compared_options


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
    """Compile the program of a rank; `program` is the one that was partitioned. Raises what `compile` raises."""
    local = compile(sharded.program, target, options, progress=progress)
    text = compared_options(options)
    rank_program = RankProgram(local, sharded.mesh, sharded.inputs, sharded.outputs, text, lambda: sharding_text(sharded))
    model = ShardedModel(rank_program, program.inputs, program.outputs, program.name, collects_results=collects_results)
    model.defaults = program.defaults
    return model
