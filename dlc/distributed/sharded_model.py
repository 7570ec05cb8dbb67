"""Models on a mesh: the program of each rank, called on global arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.distributed.distributed_array import DistributedArray, collected, local_shard
from dlc.errors import UnsupportedError
from dlc.passes.sharding.propagate import Spec
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.program_check import require_equal_programs
from dlc.runtime.collectives.start import transport_of
from dlc.runtime.collectives.transport import use_transport
from dlc.runtime.models.model import Model
from dlc.runtime.saving.container import SectionWriter


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
        if transport is not None and not transport.in_one_process:
            if self._label is None:
                text = program.text()
                # Lets the monitor find ranks that call another program, whose messages may have the same sizes.
                transport.record_call(f"the check before the first call of {self.name}")
                require_equal_programs(transport, program.options, text)
                self._label = f"{self.name} ({crc32(text.encode()):08x})"
            transport.record_call(self._label)
        with nullcontext() if transport is None else use_transport(transport):
            shards = [local_shard(array, spec, mesh) for array, spec in zip(arrays, program.inputs, strict=True)]
            results = program.model.run_unchecked(shards)
            wrapped = [
                DistributedArray(np.asarray(result), spec, mesh) if any(spec) else result
                for result, spec in zip(results, program.outputs, strict=True)
            ]
            if not self._collects_results:
                return wrapped
            return [collected(result) if isinstance(result, DistributedArray) else result for result in wrapped]
