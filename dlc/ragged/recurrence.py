"""Recurrences over the rows of each sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import dlc.numpy as dnp
from dlc import lax, tree
from dlc.numpy.apply import operand
from dlc.ragged.ragged_array import Ragged, take_rows

__all__ = ["scan"]

# Sequences per block; their rows are one operand of the matrix products of a step.
_BLOCK_ROWS = 16


def scan(f: Callable[[Any, Any], tuple[Any, Any]], init: Any, x: Ragged, /) -> tuple[Any, Any]:
    """Run a recurrence over the rows of each sequence: `state, y = f(state, rows)`; return the last states, and all y.

    `f` takes the states [n, …] of n sequences, a tree of arrays, and one row of each, and returns the next states and the
    results, a tree of arrays [n, …]. `init` has the first state of each sequence, [B, …]; the state of an empty sequence
    remains the first one. Each array of the results becomes a batch.

    Sequences are sorted by length and run in blocks of 16. A block ends with its longest sequence, so that the number of steps
    depends on the number of rows, and not on the longest sequence of the batch.
    """
    # Indices of results would overflow a narrow dtype of lengths.
    x = Ragged(x.values, dnp.astype(x.lengths, np.int64))
    schedule = _Schedule.of(x)
    first_states = tree.map(partial(_take, indices=schedule.sequences), tree.map(_append_zero, init))

    def step(carry: Any, position: tuple[Any, Any]) -> tuple[Any, Any]:
        """Advance one block; the carry has the states of its sequences."""
        block, t = position
        slots = block * _BLOCK_ROWS + dnp.arange(_BLOCK_ROWS)
        is_active = t < _take(schedule.lengths, slots)
        rows = dnp.where(is_active, _take(schedule.starts, slots) + t, 0)

        def current(first: Any, old: Any) -> Any:
            return dnp.where(t == 0, _take(first, slots), old)

        def advanced(new: Any, old: Any) -> Any:
            return dnp.where(_as_column(is_active, old), new, old)

        state = tree.map(current, first_states, carry)
        new_state, y = f(state, take_rows(x.values, rows))
        state = tree.map(advanced, new_state, state)
        return state, (state, y)

    def zeros(first: Any) -> Any:
        return dnp.zeros((_BLOCK_ROWS, *first.shape[1:]), first.dtype)

    _, (states, results) = lax.scan(step, tree.map(zeros, first_states), (schedule.blocks, schedule.steps))

    def at(stacked: Any, indices: Any) -> Any:
        """Return elements of stacked results [steps, 16, …] at row-major indices of the first two axes."""
        return _take(dnp.reshape(stacked, (-1, *stacked.shape[2:])), indices)

    def last_state(stacked: Any, first: Any) -> Any:
        final = dnp.maximum(schedule.first_results + (x.lengths - 1) * _BLOCK_ROWS, 0)
        return dnp.where(_as_column(x.lengths == 0, stacked[0]), first, at(stacked, final))

    def all_results(stacked: Any) -> Ragged:
        rows = _take(schedule.first_results, x.sequence_ids) + x.positions * _BLOCK_ROWS
        return Ragged(at(stacked, rows), x.lengths)

    return tree.map(last_state, states, tree.map(operand, init)), tree.map(all_results, results)


@dataclass(frozen=True)
class _Schedule:
    """The order in which blocks of sequences advance.

    Attributes:
        sequences: The sequence of each slot, B for a slot without one; block b has the slots 16·b to 16·b + 15.
        lengths, starts: The length and the first row of that sequence; the length is 0 for slots without a sequence.
        blocks, steps: The block of each iteration, and the position of its rows in their sequences.
        first_results: The row-major index of the first result of each sequence among those of all iterations, [·, 16].
    """

    sequences: Any
    lengths: Any
    starts: Any
    blocks: Any
    steps: Any
    first_results: Any

    @staticmethod
    def of(x: Ragged) -> _Schedule:
        count = x.lengths.shape[0]
        # A block at least, so that there are results in a batch without sequences.
        num_blocks = count // _BLOCK_ROWS + 1
        order = dnp.argsort(-x.lengths)
        slots = dnp.arange(num_blocks * _BLOCK_ROWS)
        sequences = _take(dnp.concatenate([order, dnp.arange(count, count + 1)]), dnp.minimum(slots, count))
        lengths = _take(_append_zero(x.lengths), sequences)
        # At least one step, so that results have an element to read in a batch without rows.
        block_steps = dnp.maximum(dnp.max(dnp.reshape(lengths, (num_blocks, _BLOCK_ROWS)), axis=1), 1)
        block_starts = dnp.cumsum(block_steps) - block_steps
        blocks = dnp.repeat(dnp.arange(num_blocks), block_steps)
        steps = dnp.arange(blocks.shape[0]) - _take(block_starts, blocks)
        slot_of_sequence = dnp.argsort(order)
        first_steps = _take(block_starts, slot_of_sequence // _BLOCK_ROWS)
        first_results = first_steps * _BLOCK_ROWS + slot_of_sequence % _BLOCK_ROWS
        return _Schedule(sequences, lengths, _take(_append_zero(x.starts), sequences), blocks, steps, first_results)


def _take(x: Any, indices: Any) -> Any:
    return dnp.take(x, indices, axis=0)


def _append_zero(x: Any) -> Any:
    """Return an array with a row of zeros appended."""
    x = operand(x)
    return dnp.concatenate([x, dnp.zeros((1, *x.shape[1:]), x.dtype)])


def _as_column(condition: Any, like: Any) -> Any:
    """Return a vector with the rank of `like`, along its first axis."""
    return dnp.reshape(condition, (-1, *(1 for _ in like.shape[1:])))
