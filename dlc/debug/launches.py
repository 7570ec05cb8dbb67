"""Trace the launches of a compiled program: the results of each kernel, and the kernels whose results it read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from ctypes import string_at
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from dlc.arrays import address_of
from dlc.dialects.dl.base import Array
from dlc.instrument.capture import ArrayWithOrigins
from dlc.instrument.fault_localization import Counterparts
from dlc.runtime.compiled_program import CompiledProgram
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.cpu.program import ResolveAddress
from dlc.runtime.opencl.artifact import DeviceArtifact
from dlc.runtime.opencl.commands import CommandList
from dlc.runtime.opencl.program import Launcher
from dlc.runtime.program.host_program import I64_BYTES, Launch, SetSize
from dlc.runtime.program.interpreter import BufferOffset, resolve_ref

# Indices of kernel executions.
_Runs = frozenset[int]
_NONE: _Runs = frozenset()
# (start, size) in bytes. The buffers of a device are mapped to disjoint address ranges of 2^_BUFFER_BITS bytes.
ByteSpan: TypeAlias = tuple[int, int]
_BUFFER_BITS = 48


@dataclass(frozen=True)
class KernelExecution:
    """One execution of a kernel.

    Attributes:
        kernel: The name of the kernel.
        origins: The ONNX nodes or Python lines of the kernel.
        outputs: The results.
        producers: The indices of the executions that produced the inputs or their sizes.
    """

    kernel: str
    origins: tuple[str, ...]
    outputs: tuple[Array, ...]
    producers: _Runs


@dataclass
class LaunchTrace:
    """The kernel executions of one call in order, its results, and the executions that produced each result."""

    runs: list[KernelExecution] = field(default_factory=list[KernelExecution])
    results: list[Array] = field(default_factory=list[Array])
    producers: list[_Runs] = field(default_factory=list[_Runs])

    @property
    def arrays_with_origins(self) -> list[ArrayWithOrigins]:
        """All outputs of kernels, with their origins."""
        return [(run.origins, array) for run in self.runs for array in run.outputs]

    @property
    def arrays(self) -> list[Array]:
        """All outputs of kernels."""
        return [array for _, array in self.arrays_with_origins]

    def first_mismatch(self, counterparts: Counterparts, wrong_results: Iterable[int]) -> KernelExecution | None:
        """Return the earliest execution whose outputs have no counterpart and affect one of `wrong_results`."""
        mismatches: set[int] = set()
        pending = [launch_index for k in wrong_results for launch_index in self.producers[k]]
        while pending:
            launch_index = pending.pop()
            run = self.runs[launch_index]
            if launch_index not in mismatches and not counterparts.has_all(run.outputs, run.origins):
                mismatches.add(launch_index)
                pending += self.runs[launch_index].producers
        return self.runs[min(mismatches)] if mismatches else None


def trace_launches(artifact: CompiledProgram, inputs: Sequence[Array], max_bytes: int) -> LaunchTrace | None:
    """Run a compiled program and trace its launches.

    Return None if the program does not describe the results of its kernels, or if they exceed `max_bytes`.
    """
    if not all(kernel.results for kernel in artifact.kernels):
        return None
    recorder = _LaunchRecorder(artifact, max_bytes)
    # Copy the inputs: a program may overwrite donated ones.
    arrays = [np.array(array) for array in inputs]
    execution = (
        _record_on_device(artifact, arrays, recorder)
        if isinstance(artifact, DeviceArtifact)
        else _record_on_cpu(artifact, arrays, recorder)
    )
    for array, span in execution:
        recorder.trace.results.append(array)
        recorder.trace.producers.append(recorder.memory.producers(span))
    return recorder.trace if recorder.recorded_bytes <= max_bytes else None


def _record_on_cpu(artifact: Artifact, inputs: Sequence[Array], recorder: _LaunchRecorder) -> list[tuple[Array, ByteSpan]]:
    """Run a program on the CPU; return the results with their addresses."""

    def on_launch(launch: Launch, address: ResolveAddress) -> None:
        spans = [(address(ref), size) for ref, size in zip(launch.arguments, launch.static_sizes, strict=True)]
        recorder.launch(launch, spans, lambda k: string_at(*spans[k]))

    def on_read(instruction: SetSize, address: ResolveAddress) -> None:
        recorder.read((address(instruction.ref), I64_BYTES))

    results = artifact.program(is_sequential=True).run_traced(inputs, on_launch, on_read)
    return [(array, (address_of(array), array.nbytes)) for array in results]


def _record_on_device(
    artifact: DeviceArtifact, inputs: Sequence[Array], recorder: _LaunchRecorder
) -> list[tuple[Array, ByteSpan]]:
    """Run a program on a device; return the results with their addresses."""
    program = artifact.program
    # Run once to allocate the arena, so that the traced call does not restart for lack of memory.
    program.run(inputs)
    launcher = _RecordingLauncher(recorder)
    results = program.run_with(inputs, launcher)
    return [(np.asarray(result), launcher.span((result.buffer, 0), result.nbytes)) for result in results]


class _RecordingLauncher(Launcher):
    """Execute a call on a device and record its launches, and reads that determine control flow."""

    def __init__(self, recorder: _LaunchRecorder) -> None:
        self._recorder = recorder
        self._buffers: list[Any] = []

    def span(self, slot_values: BufferOffset, size: int) -> ByteSpan:
        """Return the byte span of a buffer in the combined address space of all buffers."""
        buffer, offset = slot_values
        if buffer not in self._buffers:
            self._buffers.append(buffer)
        return (self._buffers.index(buffer) << _BUFFER_BITS) + offset, size

    def launch(self, commands: CommandList, launch: Launch, slot_values: list[BufferOffset]) -> None:
        commands.launch(launch, slot_values)
        refs = [resolve_ref(slot_values, ref) for ref in launch.arguments]
        spans = [self.span(ref, size) for ref, size in zip(refs, launch.static_sizes, strict=True)]
        self._recorder.launch(launch, spans, lambda k: commands.read(refs[k], launch.static_sizes[k]))

    def read(self, commands: CommandList, ref: BufferOffset, count: int) -> bytes:
        self._recorder.read(self.span(ref, count))
        return commands.read(ref, count)


class _LaunchRecorder:
    """Record the launches of a call."""

    def __init__(self, artifact: CompiledProgram, max_bytes: int) -> None:
        self.trace, self.memory, self.recorded_bytes = LaunchTrace(), _MemoryProvenance(), 0
        self._kernels = {kernel.name: kernel for kernel in artifact.kernels}
        self._max_bytes, self._control_producers = max_bytes, _NONE

    def read(self, span: ByteSpan) -> None:
        """Record that the program has read a value that determines control flow or sizes."""
        self._control_producers |= self.memory.producers(span)

    def launch(self, launch: Launch, spans: Sequence[ByteSpan], content: Callable[[int], bytes]) -> None:
        """Record a launch with the memory spans of its arguments and a function that returns their contents."""
        if launch.kernel is None:
            self.memory.write(spans[0], self.memory.producers(spans[1]))
            return
        kernel = self._kernels[launch.kernel]
        num_inputs = len(spans) - len(kernel.results)
        self.recorded_bytes += sum(size for _, size in spans[num_inputs:])
        # Sizes of later launches depend on the values that were read.
        producers = self._control_producers.union(*map(self.memory.producers, spans[:num_inputs]))
        contents = [np.frombuffer(content(num_inputs + k), dtype) for k, dtype in enumerate(kernel.results)]
        for span in spans[num_inputs:]:
            self.memory.write(span, frozenset([len(self.trace.runs)]))
        outputs = tuple(contents) if self.recorded_bytes <= self._max_bytes else ()
        self.trace.runs.append(KernelExecution(kernel.name, kernel.origins, outputs, producers))


class _MemoryProvenance:
    """Track which kernel executions have written each byte span."""

    def __init__(self) -> None:
        self._written: list[tuple[int, int, _Runs]] = []

    def write(self, span: ByteSpan, producers: _Runs) -> None:
        start, end = span[0], sum(span)
        remaining: list[tuple[int, int, _Runs]] = []
        for old_start, old_end, earlier_producers in self._written:
            # Keep the parts of the old span before and after the new one.
            remaining += [
                (a, b, earlier_producers)
                for a, b in ((old_start, min(old_end, start)), (max(old_start, end), old_end))
                if a < b
            ]
        self._written = [*remaining, (start, end, producers)]

    def producers(self, span: ByteSpan) -> _Runs:
        start, end = span[0], sum(span)
        return _NONE.union(
            *(
                producers
                for written_start, written_end, producers in self._written
                if written_start < end and start < written_end
            )
        )
