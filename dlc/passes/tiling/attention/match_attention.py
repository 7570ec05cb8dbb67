"""Match attention, softmax(QKᵀ)·V: a nest with two contractions, of which the second reduces the lanes of the first."""

from __future__ import annotations

from dataclasses import dataclass

from dlc.passes.tiling.loop_nests import SizedLoopNest, can_split


@dataclass(frozen=True)
class AttentionOps:
    """The two contractions of attention.

    Attributes:
        first: The position of Q·Kᵀ.
        second: The position of P·V.
        key_dim: The dimension that `second` reduces.
        value_dim: The lane dimension of `second`.
        is_transposed: Whether the lanes of `first` are queries instead of keys.
    """

    first: int
    second: int
    key_dim: int
    value_dim: int
    is_transposed: bool


def match_attention(nest: SizedLoopNest) -> AttentionOps | None:
    """Return the two contractions of an attention nest, else None.

    Requires a reduction of the scores, such as a row maximum, between them.
    """
    contractions = [k for k, op in enumerate(nest.ops) if op.is_contraction]
    if len(contractions) != 2 or nest.dynamic_dims:
        return None
    first_position, second_position = contractions
    first, second = nest.ops[first_position], nest.ops[second_position]
    key = next((d for d in second.reductions if first.output.uses(d)), None)
    lane = next((d for d in first.dims if first.output.stride(d) == 1), None)
    value_dim = next((d for d in second.dims if second.output.stride(d) == 1), None)
    reductions_between = [op for op in nest.ops[first_position + 1 : second_position] if key in op.reductions]
    if key is None or lane not in (key, *nest.shared_dims) or value_dim is None or not reductions_between:
        return None
    return (
        AttentionOps(first_position, second_position, key, value_dim, lane != key)
        if all(can_split(op, nest) for op in reductions_between)
        else None
    )
