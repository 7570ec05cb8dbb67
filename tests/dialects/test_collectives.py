"""Collectives: their definition on all ranks of a group against the transport, and their verifier."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from dlc.dialects import dl
from dlc.dialects.dl.base import element_type_of, shape_of, tensor_type
from dlc.dialects.dl.distributed.collectives import Collective
from dlc.dialects.dl.dtypes import element_type, numpy_dtype
from dlc.errors import DTypeError, ShapeError
from dlc.ir import Block
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.threads import run_ranks
from dlc.testing.sample import BF16, BOOL, F32, I64, values

MESH = Mesh.of({"data": 3})
GROUP: dict[str, Any] = {"axes": "data", "group_size": 3}


def make(op: type[Collective], dtype: np.dtype[Any], *shape: int, **properties: Any) -> Collective:
    return op.make(*Block(arg_types=[tensor_type(shape, element_type(dtype))]).args, **GROUP, **properties)


@pytest.mark.parametrize(
    "op",
    [
        make(dl.AllReduceOp, F32, 2, 3, combine="sum"),
        make(dl.AllReduceOp, BF16, 5, combine="sum"),
        make(dl.AllReduceOp, BOOL, 5, combine="max"),
        make(dl.ReduceScatterOp, I64, 2, 6, axis=-1, combine="min"),
        make(dl.AllGatherOp, BF16, 2, 4, axis=1),
        make(dl.AllGatherOp, F32, 0, 4, axis=0),
        make(dl.AllToAllOp, F32, 2, 6, 4, split_axis=1, concat_axis=2),
        make(dl.PermuteOp, I64, 2, pairs=(0, 2, 1, 0)),
        dl.AxisIndexOp.make(**GROUP),
    ],
    ids=lambda op: op.name,
)
def test_transport_computes_the_definition(op: Collective) -> None:

    op.verify()
    arrays = [
        [values(numpy_dtype(element_type_of(v)), *map(int, shape_of(v)), seed=rank) for v in op.operands] for rank in range(3)
    ]
    got = run_ranks(MESH, lambda rank: op.evaluate(*arrays[rank])[0])
    expected = op.group_reference([rank_arrays[0] if rank_arrays else np.zeros(()) for rank_arrays in arrays])
    for a, b in zip(got, expected, strict=True):
        assert a.dtype == b.dtype and a.shape == tuple(map(int, shape_of(op.results[0])))
        np.testing.assert_array_equal(a, b)


def test_traffic_in_bytes() -> None:
    assert make(dl.AllReduceOp, F32, 6, combine="sum").traffic(3) == 32
    assert make(dl.ReduceScatterOp, F32, 6, axis=0, combine="sum").traffic(3) == 16
    assert make(dl.AllGatherOp, F32, 6, axis=0).traffic(3) == 48
    assert make(dl.AllToAllOp, F32, 3, 2, split_axis=0, concat_axis=1).traffic(3) == 16


def test_invalid_collectives() -> None:
    with pytest.raises(ShapeError, match="axis 0 of size 4 in 3 parts"):
        make(dl.ReduceScatterOp, F32, 4, axis=0, combine="sum")
    with pytest.raises(ShapeError, match=r"repeat a source or a target \(C2\)"):
        make(dl.PermuteOp, F32, 4, pairs=(0, 1, 0, 2))
    with pytest.raises(DTypeError, match="combine 'sum' of i1; expected max or min"):
        make(dl.AllReduceOp, BOOL, 4, combine="sum")
    with pytest.raises(ShapeError, match="a spec of 1 entries for 0 axes"):
        dl.ShardOp.make(*Block(arg_types=[tensor_type((), element_type(F32))]).args, spec=dl.spec_attribute([None]))


def test_storage_only_types_are_exchanged() -> None:
    op = make(dl.AllGatherOp, np.dtype(ml_dtypes.float8_e4m3fn), 2, axis=0)
    shards = [np.array([rank, -rank]).astype(ml_dtypes.float8_e4m3fn) for rank in range(3)]
    for result in run_ranks(MESH, lambda rank: op.evaluate(shards[rank])[0]):
        assert result.astype(np.float32).tolist() == [0, 0, 1, -1, 2, -2]
