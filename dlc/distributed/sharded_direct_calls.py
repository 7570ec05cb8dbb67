"""Direct calls on a mesh: pass shards to the program of a rank, if the arrays are like those of an earlier call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dlc.arrays import Array
from dlc.distributed.distributed_array import DistributedArray
from dlc.passes.sharding.propagate import Spec
from dlc.runtime.collectives.shards import shard_slices
from dlc.runtime.collectives.start import transport_of
from dlc.runtime.collectives.transport import Transport
from dlc.runtime.cpu.direct_calls import DirectCall, DirectCalls

if TYPE_CHECKING:
    from dlc.distributed.sharded_model import ShardedModel

_ARRAY_TYPES = frozenset[type]((np.ndarray, Array))


class _Argument(NamedTuple):
    """An argument that a direct call accepts.

    Attributes:
        shape, dtype: Those of the shard of a `DistributedArray`, and of another array as a whole.
        spec: The sharding of a `DistributedArray`; None for another array.
        slices: The shard of another array; None if it is replicated.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    spec: Spec | None
    slices: tuple[slice, ...] | None


class ShardedDirectCalls(DirectCalls):
    """The direct calls of a model on a mesh: `call` accepts arrays like those of the last recorded call."""

    def __init__(self, model: ShardedModel) -> None:
        super().__init__(None)
        self._model = model
        self._arguments: list[_Argument | None] | None = None

    def record(self, arrays: Sequence[Any]) -> None:
        """Record a call with these arrays, in the order of the inputs."""
        transport = transport_of(self._model.program.mesh)
        if transport is not None and transport.in_one_process:
            # Each thread has its own transport and shards.
            return
        rank = 0 if transport is None else transport.rank
        arguments = [self._argument(array, spec, rank) for array, spec in zip(arrays, self._model.program.inputs, strict=True)]
        if arguments != self._arguments:
            self._arguments = arguments
            accepted = [argument for argument in arguments if argument is not None]
            self.call = _direct_call(self._model, transport, accepted) if len(accepted) == len(arguments) else None

    def _argument(self, array: Any, spec: Spec, rank: int) -> _Argument | None:
        """Describe arrays that need no other conversion than this one; None if it needs more."""
        mesh = self._model.program.mesh
        if type(array) is DistributedArray:
            is_shard = array.mesh == mesh and array.spec == spec
            return _Argument(array.shard.shape, array.dtype, spec, None) if is_shard else None
        if type(array) not in _ARRAY_TYPES:
            return None
        return _Argument(array.shape, array.dtype, None, shard_slices(mesh, rank, array.shape, spec) if any(spec) else None)


def _direct_call(model: ShardedModel, transport: Transport | None, arguments: Sequence[_Argument]) -> DirectCall:
    mesh = model.program.mesh

    def call(*arrays: Any) -> list[Any] | None:
        if len(arrays) != len(arguments):
            return None
        shards: list[Any] = []
        for array, (shape, dtype, spec, slices) in zip(arrays, arguments, strict=True):
            shard = array
            if spec is not None:
                if type(array) is not DistributedArray or array.spec != spec or (array.mesh is not mesh and array.mesh != mesh):
                    return None
                shard = array.shard
            elif type(array) not in _ARRAY_TYPES:
                return None
            if shard.shape != shape or shard.dtype is not dtype:
                return None
            shards.append(shard if slices is None else shard[slices])
        return model.run_shards(shards, transport)

    return call
