"""Models on a mesh: a program that the ranks of an MPI job run together, called on global arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlc.backends.base import Backend
from dlc.compiler.driver import compile
from dlc.compiler.program import Program
from dlc.compiler.sharding import ShardedProgram, shard_program
from dlc.dialects.dl.distributed.sharding import PartialSpec
from dlc.errors import UnsupportedError
from dlc.instrument.report import Progress
from dlc.ir import print_module
from dlc.options import Options
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.program_check import compared_options, require_equal_programs
from dlc.runtime.collectives.shards import collect_shards, shard_of
from dlc.runtime.collectives.start import start
from dlc.runtime.collectives.transport import Transport
from dlc.runtime.models.model import Model


def compile_on_mesh(
    program: Program,
    mesh: Mesh,
    inputs: Sequence[PartialSpec | None],
    target: str | Backend,
    options: Options,
    progress: Progress | None = None,
) -> Model:
    """Compile a program for the ranks of a mesh. All ranks call this, and then the model with equal global arrays.

    `inputs` annotates the inputs; None leaves one to propagation. Raises what `shard_program`, `start` and `compile` raise.
    """
    if program.io_signature is not None:
        raise UnsupportedError(f"{program.name}: inputs and outputs that are not tensors cannot be sharded")
    transport = start(mesh)
    sharded = shard_program(program, mesh, inputs, [None] * len(program.outputs))
    require_equal_programs(transport, compared_options(options), print_module(sharded.program.module))
    return _MeshModel(program, sharded, compile(sharded.program, target, options, progress=progress), transport)


class _MeshModel(Model):
    """A model that passes each rank its shards and collects the shards of outputs."""

    def __init__(self, program: Program, sharded: ShardedProgram, local: Model, transport: Transport) -> None:
        super().__init__(program.inputs, program.outputs, self._run, program.name)
        self.sharded, self.local, self.transport = sharded, local, transport
        self.defaults = program.defaults
        self.num_threads, self.streams, self.cpus = local.num_threads, local.streams, local.cpus

    def _run(self, arrays: Sequence[Any]) -> list[Any]:
        mesh, rank = self.sharded.mesh, self.transport.rank
        shards = [shard_of(mesh, rank, a, spec) for a, spec in zip(arrays, self.sharded.inputs, strict=True)]
        results = self.local.run_unchecked(shards)
        outputs = zip(results, self.sharded.outputs, self.outputs, strict=True)
        return [collect_shards(self.transport, shard, spec, f"output {info}") for shard, spec, info in outputs]
