"""Transpose rules of collectives, and of the boundary of `dlc.shard_map`. See Note [Varying axes]."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp
from dlc.passes.autodiff.term import Term


def _group(op: Any) -> dict[str, Any]:
    return {"axes": op.axes, "group_size": op.group_size}


def _all_reduce(op: dl.AllReduceOp, cotangent: Term, index: int) -> Term:
    return cotangent.op(dl.VaryOp, **_group(op))


def _vary(op: dl.VaryOp, cotangent: Term, index: int) -> Term:
    return cotangent.op(dl.AllReduceOp, **_group(op), combine="sum")


def _reduce_scatter(op: dl.ReduceScatterOp, cotangent: Term, index: int) -> Term:
    return cotangent.op(dl.AllGatherOp, **_group(op), axis=op.axis)


def _all_gather(op: dl.AllGatherOp, cotangent: Term, index: int) -> Term:
    return cotangent.op(dl.ReduceScatterOp, **_group(op), axis=op.axis, combine="sum")


def _all_to_all(op: dl.AllToAllOp, cotangent: Term, index: int) -> Term:
    return cotangent.op(dl.AllToAllOp, **_group(op), split_axis=op.concat_axis, concat_axis=op.split_axis)


def _permute(op: dl.PermuteOp, cotangent: Term, index: int) -> Term:
    pairs = tuple(position for source, target in op.routes for position in (target, source))
    return cotangent.op(dl.PermuteOp, **_group(op), pairs=pairs)


def _to_shards(op: dl.ToShardsOp, cotangent: Term, index: int) -> Term:
    return cotangent.op(dl.FromShardsOp, spec=op.spec, mesh=op.mesh)


def _from_shards(op: dl.FromShardsOp, cotangent: Term, index: int) -> Term:
    return cotangent.op(dl.ToShardsOp, spec=op.spec, mesh=op.mesh)


COLLECTIVES: Mapping[type[DlOp], Callable[[Any, Term, int], Term]] = {
    dl.AllReduceOp: _all_reduce,
    dl.VaryOp: _vary,
    dl.ReduceScatterOp: _reduce_scatter,
    dl.AllGatherOp: _all_gather,
    dl.AllToAllOp: _all_to_all,
    dl.PermuteOp: _permute,
    dl.ToShardsOp: _to_shards,
    dl.FromShardsOp: _from_shards,
}
