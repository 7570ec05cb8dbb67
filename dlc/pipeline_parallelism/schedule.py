"""The schedule of a pipeline on one rank.

The schedule is 1F1B (Narayanan et al., "PipeDream", 2019; Shoeybi et al., 2021) in lockstep: in each tick a rank computes the
forward pass of one micro-batch and the backward pass of an earlier one. With S ranks, rank s computes the forward pass of
micro-batch t - s and the backward pass of micro-batch t - 2(S - 1) + s in tick t, and sends both results to its neighbors.
It stores the inputs of at most 2S - 1 micro-batches; backward passes compute activations again. The last stage computes both
passes at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import lax, tree
from dlc.calculus.linear_maps import vjp
from dlc.numpy.apply import is_floating
from dlc.pipeline_parallelism.buffers import ArrayType, BufferLayout, Buffers, common_layouts, zeros
from dlc.pipeline_parallelism.stages import StageFunction

# The arrays of each leaf of the batch: one per micro-batch, along axis 0.
MicroBatches = Sequence[Any]


@dataclass(frozen=True)
class Schedule:
    """The ticks of a rank.

    Attributes:
        stages: The functions of all ranks along `axis`.
        parameter_types: The types of all leaves of the parameters.
        batch_types: The types of the leaves of a micro-batch.
        count: The number of micro-batches.
        axis: The mesh axis along which ranks run the stages.
        varying_axes: The mesh axes along which ranks have different data.
    """

    stages: Sequence[StageFunction]
    parameter_types: Sequence[ArrayType]
    batch_types: Sequence[ArrayType]
    count: int
    axis: str
    varying_axes: tuple[str, ...]

    @cached_property
    def parameters(self) -> list[BufferLayout]:
        """The layouts of the parameters of the stages."""
        return common_layouts([[self.parameter_types[k] for k in stage.reads] for stage in self.stages])

    @cached_property
    def gradients(self) -> list[BufferLayout]:
        """The layouts of the gradients of the parameters; those of 16-bit floats are added in f32."""
        return common_layouts([[_widen(t) for t in _float_types(layout.types)] for layout in self.parameters])

    @cached_property
    def activations(self) -> list[BufferLayout]:
        """The layouts of the inputs of the stages, which are the outputs of the previous ones."""
        return common_layouts([stage.inputs for stage in self.stages])

    @cached_property
    def cotangents(self) -> list[BufferLayout]:
        """The layouts of the cotangents of the inputs of the stages."""
        return common_layouts([_float_types(stage.inputs) for stage in self.stages])

    @property
    def last(self) -> int:
        """The index of the last stage."""
        return len(self.stages) - 1

    def loss(self, parameters: Buffers, batch: MicroBatches) -> Any:
        """Return the sum of the losses of all micro-batches on the last rank, zero on others."""

        def tick(inputs: Buffers, t: Any) -> tuple[Buffers, Any]:
            outputs, loss = self._forward(parameters, batch, inputs, t - lax.axis_index(self.axis), is_last_included=True)
            return self._send(outputs, 1), loss

        inputs = self._vary(self.activations[0].zeros())
        return dnp.sum(lax.scan(tick, inputs, np.arange(self.count + self.last))[1])

    def loss_and_gradients(self, parameters: Buffers, batch: MicroBatches) -> tuple[Any, Buffers, list[Any]]:
        """Return the sums of the losses and of the gradients of the rank's parameters, and the gradients of the batch.

        Gradients of the batch are the contributions of this rank, for the leaves that are floats.
        """
        slots = 2 * self.last + 1
        no_outputs = self.activations[0].zeros()
        state = {
            "inputs": no_outputs,
            "cotangents": self.cotangents[0].zeros(),
            "saved": {name: zeros((slots, *buffer.shape), buffer.dtype) for name, buffer in no_outputs.items()},
            "gradients": self.gradients[0].zeros(),
        }

        def tick(state: Any, t: Any) -> tuple[Any, Any]:
            stage = lax.axis_index(self.axis)
            forward, backward = t - stage, t - 2 * self.last + stage
            outputs, _ = self._forward(parameters, batch, state["inputs"], forward, is_last_included=False)
            saved = {name: x.at[forward % slots].set(state["inputs"][name]) for name, x in state["saved"].items()}
            inputs = {name: _entry(x, backward % slots) for name, x in saved.items()}
            loss, gradients, cotangents, batch_gradients = self._backward(
                parameters, batch, inputs, state["cotangents"], backward
            )
            next_state = {
                "inputs": self._send(outputs, 1),
                "cotangents": self._send(cotangents, -1),
                "saved": saved,
                "gradients": tree.map(dnp.add, state["gradients"], gradients),
            }
            return next_state, (loss, batch_gradients)

        ticks = np.arange(self.count + 2 * self.last)
        state, (losses, batch_gradients) = lax.scan(tick, self._vary(state), ticks)
        # The tick of the first backward pass of the rank.
        first = 2 * self.last - lax.axis_index(self.axis)
        return dnp.sum(losses), state["gradients"], [g[first + np.arange(self.count)] for g in batch_gradients]

    def _forward(
        self, parameters: Buffers, batch: MicroBatches, inputs: Buffers, index: Any, *, is_last_included: bool
    ) -> tuple[Buffers, Any]:
        """Return the outputs of the rank's stage for a micro-batch, and the loss if it is the last stage."""
        no_outputs = self.activations[0].zeros()
        no_loss = zeros((), self.stages[-1].outputs[0][1])

        def branch(k: int) -> Callable[[], tuple[Buffers, Any]]:
            def run() -> tuple[Buffers, Any]:
                if k == self.last and not is_last_included:
                    return no_outputs, no_loss
                arrays = self._arguments(k, parameters, batch, inputs, index)
                outputs = self.stages[k](*arrays)
                return (no_outputs, outputs[0]) if k == self.last else (self.activations[k + 1].pack(outputs), no_loss)

            return run

        return self._run_stage(index, branch, (no_outputs, no_loss))

    def _backward(
        self, parameters: Buffers, batch: MicroBatches, inputs: Buffers, cotangents: Buffers, index: Any
    ) -> tuple[Any, Buffers, Buffers, list[Any]]:
        """Return the loss of a micro-batch, and the gradients of the parameters, the inputs and the leaves of the batch."""
        no_loss = zeros((), self.stages[-1].outputs[0][1])
        batch_zeros = [zeros(shape, dtype) for shape, dtype in _float_types(self.batch_types)]
        zero_results = no_loss, self.gradients[0].zeros(), self.cotangents[0].zeros(), batch_zeros

        def branch(k: int) -> Callable[[], tuple[Any, Buffers, Buffers, list[Any]]]:
            def run() -> tuple[Any, Buffers, Buffers, list[Any]]:
                stage = self.stages[k]
                arguments = self._arguments(k, parameters, batch, inputs, index)
                groups = [_select_floats(arrays) for arrays in arguments]

                def local(*floats: Sequence[Any]) -> list[Any]:
                    merged = [_replace_floats(arrays, group) for arrays, group in zip(arguments, floats, strict=True)]
                    outputs = stage(*merged)
                    return [y for y in outputs if is_floating(y.dtype)]

                outputs, pull = vjp(local, *groups)
                seeds = [dnp.ones_like(outputs[0])] if k == self.last else self.cotangents[k + 1].unpack(cotangents)
                of_parameters, of_batch, of_inputs = pull(seeds)
                read = [i for i in stage.reads_batch if is_floating(self.batch_types[i][1])]
                by_leaf = dict(zip(read, of_batch, strict=True))
                floats = [i for i, (_, dtype) in enumerate(self.batch_types) if is_floating(dtype)]
                return (
                    outputs[0] if k == self.last else no_loss,
                    self.gradients[k].pack(of_parameters),
                    self.cotangents[k].pack(of_inputs),
                    [by_leaf.get(i, zero) for i, zero in zip(floats, batch_zeros, strict=True)],
                )

            return run

        return self._run_stage(index, branch, zero_results)

    def _arguments(
        self, k: int, parameters: Buffers, batch: MicroBatches, inputs: Buffers, index: Any
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Return the arguments of a stage for a micro-batch."""
        micro_batch = [_entry(batch[i], index) for i in self.stages[k].reads_batch]
        return self.parameters[k].unpack(parameters), micro_batch, self.activations[k].unpack(inputs)

    def _run_stage(self, index: Any, branch: Callable[[int], Callable[[], Any]], default: Any) -> Any:
        """Return the result of the branch of the rank's stage; `default` if there is no such micro-batch."""
        branches = [branch(k) for k in range(len(self.stages))]
        exists = (index >= 0) & (index < self.count)
        return lax.cond(exists, lambda: lax.switch(lax.axis_index(self.axis), branches), lambda: default)

    def _send(self, buffers: Buffers, step: int) -> Buffers:
        """Send buffers to the next stage (1) or to the one before (-1)."""
        size = len(self.stages)
        return lax.ppermute(buffers, self.axis, [(k, (k + step) % size) for k in range(size)])

    def _vary(self, arrays: Any) -> Any:
        return lax.pvary(arrays, self.varying_axes)


def _entry(entries: Any, index: Any) -> Any:
    """Return an entry along axis 0, whose index is known to be in bounds."""
    return dnp.take(entries, index, axis=0, mode="clip")


def _float_types(types: Sequence[ArrayType]) -> list[ArrayType]:
    return [array_type for array_type in types if is_floating(array_type[1])]


def _select_floats(arrays: Sequence[Any]) -> list[Any]:
    return [array for array in arrays if is_floating(array.dtype)]


def _replace_floats(arrays: Sequence[Any], floats: Sequence[Any]) -> list[Any]:
    """Return arrays with their floating-point ones replaced by `floats`."""
    replacements = iter(floats)
    return [next(replacements) if is_floating(array.dtype) else array for array in arrays]


def _widen(array_type: ArrayType) -> ArrayType:
    shape, dtype = array_type
    return shape, np.dtype(np.float32) if dtype.itemsize < 4 else dtype
