"""Models on a mesh: the program of each rank, called on global arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import TensorInfo, format_type
from dlc.distributed.distributed_array import DistributedArray, collected, local_shard
from dlc.distributed.sharded_direct_calls import ShardedDirectCalls
from dlc.errors import UnsupportedError
from dlc.passes.sharding.propagate import Spec
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.program_check import require_equal_programs
from dlc.runtime.collectives.start import transport_of
from dlc.runtime.collectives.transport import Transport, find_transport, use_transport
from dlc.runtime.models.model import Model
from dlc.runtime.saving.container import SectionWriter

# The number of inputs whose types the label of a call contains.
_MAX_LABEL_INPUTS = 4


@dataclass(frozen=True)
class RankProgram:
    """The compiled program of a rank.

    Attributes:
        model: The program on shards.
        inputs, outputs: The shardings of its inputs and outputs.
        options: The options that all ranks must share, as text.
        text: Returns the text of the program, which all ranks must share.
    """

    model: Model
    mesh: Mesh
    inputs: Sequence[Spec]
    outputs: Sequence[Spec]
    options: str
    text: Callable[[], str]


class ShardedModel(Model):
    """A model that passes each rank its shards. All ranks call it with equal global arrays, or with DistributedArrays.

    Before the first call, the ranks compare their programs. Results that are split are DistributedArrays; with
    `collects_results`, every rank gets the global arrays.
    """

    def __init__(
        self,
        program: RankProgram,
        inputs: Sequence[TensorInfo],
        outputs: Sequence[TensorInfo],
        name: str,
        *,
        collects_results: bool = False,
    ) -> None:
        super().__init__(inputs, outputs, self._run, name)
        self.program, self._collects_results = program, collects_results
        self.direct_calls = ShardedDirectCalls(self)
        self._is_split = [any(spec) for spec in program.outputs]
        self.num_threads, self.streams, self.cpus = program.model.num_threads, program.model.streams, program.model.cpus
        # Identifies the program on all ranks; None before the ranks compared it.
        self._label: str | None = None

    def program_of_process(self) -> Model:
        """Return the program of this rank, with the defaults of this model.

        Raises UnsupportedError for the default value of a split input: it differs between ranks, and files serve all ranks.
        """
        program = self.program
        split = [info.name for info, spec in zip(self.inputs, program.inputs, strict=True) if any(spec)]
        if split_defaults := [name for name in split if name in self.defaults]:
            raise UnsupportedError(
                f"{self.name}: the default value of input '{split_defaults[0]}' is split over the mesh {program.mesh}, and the "
                "file must serve all ranks; annotate the input as replicated, by dlc.P(), or compile it without a default"
            )
        program.model.defaults = self.defaults
        return program.model

    def serialize(self, writer: SectionWriter, defaults: Mapping[str, NDArray[Any]], /) -> dict[str, Any]:
        """Write the program of this rank. Raises what `program_of_process` raises."""
        return self.program_of_process().serialize(writer, defaults)

    def _run(self, arrays: Sequence[Any]) -> list[Any]:
        program, mesh = self.program, self.program.mesh
        transport = transport_of(mesh)
        if transport is not None and not transport.in_one_process and self._label is None:
            text = program.text()
            types = [format_type(info.dtype, info.shape) for info in self.inputs]
            signature = f"{self.name}({', '.join([*types[:_MAX_LABEL_INPUTS], *['…'] * (len(types) > _MAX_LABEL_INPUTS)])})"
            # Lets the monitor find ranks that call another program, whose messages may have the same sizes.
            transport.record_call(f"the check before the first call of {signature}")
            require_equal_programs(transport, program.options, text)
            self._label = f"{signature} {crc32(text.encode()):08x}"
        self._record(transport)
        with _using(transport):
            return self._run_program(
                [local_shard(x, spec, mesh) for x, spec in zip(arrays, program.inputs, strict=True)], transport
            )

    def run_shards(self, shards: Sequence[Any], transport: Transport | None) -> list[Any]:
        """Run on the shards of arrays of which at least one call was run before; `transport` is that of the mesh."""
        self._record(transport)
        with _using(transport):
            return self._run_program(shards, transport)

    def _record(self, transport: Transport | None) -> None:
        if transport is not None and self._label is not None:
            transport.record_call(self._label)

    def _run_program(self, shards: Sequence[Any], transport: Transport | None) -> list[Any]:
        """Run the program of this rank. Raises ShapeError or DTypeError for shards that do not fit."""
        model, mesh = self.program.model, self.program.mesh
        # A direct call runs the collectives of one rank; threads are several.
        direct_calls = None if transport is not None and transport.in_one_process else model.direct_calls
        results = direct_calls.call(*shards) if direct_calls is not None and direct_calls.call is not None else None
        if results is None:
            results = model.check_and_run(shards)
            if direct_calls is not None:
                direct_calls.record(shards)
        wrapped = [
            DistributedArray(np.asarray(result), spec, mesh) if is_split else result
            for result, spec, is_split in zip(results, self.program.outputs, self._is_split, strict=True)
        ]
        if not self._collects_results:
            return wrapped
        return [collected(result) if isinstance(result, DistributedArray) else result for result in wrapped]


def _using(transport: Transport | None) -> AbstractContextManager[None]:
    """Return a context in which this thread uses a transport, if there is one."""
    return nullcontext() if transport is None or find_transport() is transport else use_transport(transport)
