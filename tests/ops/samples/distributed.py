"""Samples of sharding annotations, and of collectives and shards in groups of one rank, which exchange nothing."""

from __future__ import annotations

import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.distributed.sharding import spec_attribute
from dlc.testing.sample import BF16, BOOL, F32, I64, Sample, values

_GROUP = {"axes": "data", "group_size": 1}


SAMPLES = [
    *(
        Sample(dl.ShardOp, (values(d, 4, 6),), lambda x: x, {"spec": spec_attribute([("data",), None])})
        for d in (F32, I64, BOOL, BF16)
    ),
    Sample(dl.AllReduceOp, (values(F32, 4, 6),), lambda x: x, {**_GROUP, "combine": "sum"}),
    Sample(dl.ReduceScatterOp, (values(BF16, 4, 6),), lambda x: x, {**_GROUP, "combine": "max", "axis": 1}),
    Sample(dl.AllGatherOp, (values(F32, 4, 6),), lambda x: x, {**_GROUP, "axis": 0}),
    Sample(dl.AllToAllOp, (values(I64, 4, 6),), lambda x: x, {**_GROUP, "split_axis": 0, "concat_axis": 1}),
    Sample(dl.PermuteOp, (values(F32, 4, 6),), np.zeros_like, {**_GROUP, "pairs": ()}),
    Sample(dl.AxisIndexOp, (), lambda: 0, _GROUP),
    *(
        Sample(op, (values(F32, 4, 6),), lambda x: x, {"spec": spec_attribute([("data",), ()]), "mesh": "data=1"})
        for op in (dl.ToShardsOp, dl.FromShardsOp)
    ),
    Sample(dl.VaryOp, (values(F32, 4, 6),), lambda x: x, _GROUP),
]
