"""Samples of reductions, movement, creation and indexing."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from dlc.dialects import dl
from dlc.dialects.dl.base import tensor_type
from dlc.dialects.dl.dtypes import dense_attribute, element_type
from dlc.ir import bf16, f16, f32, i8, i64
from dlc.testing.sample import BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U64, Sample, exactly, values
from tests.ops.samples.elementwise import telling

# NumPy supports no sliding window views of this dtype.
F8 = np.dtype(ml_dtypes.float8_e4m3fn)
_NUMBERS = (F32, F64, F16, BF16, I8, I64, U8)


def _reductions() -> list[Sample]:
    samples: list[Sample] = []
    for op, formula, dtypes in (
        (dl.ReduceSumOp, np.sum, _NUMBERS),
        (dl.ReduceProdOp, np.prod, _NUMBERS),
        (dl.ReduceMaxOp, np.max, (*_NUMBERS, BOOL)),
        (dl.ReduceMinOp, np.min, (*_NUMBERS, BOOL)),
        (dl.ReduceNanmaxOp, np.nanmax, (F32, F64, F16, BF16)),
        (dl.ReduceNanminOp, np.nanmin, (F32, F64, F16, BF16)),
        (dl.ReduceAnyOp, np.any, [BOOL]),
        (dl.ReduceAllOp, np.all, [BOOL]),
    ):
        for d in dtypes:
            tolerance = {F32: 1e-6, F64: 1e-14, F16: 1e-3, BF16: 1e-2}.get(d, 0.0)
            for axes, keep in (((1,), False), ((0, -1), True)):
                samples.append(
                    Sample(
                        op,
                        (values(d, 3, 5, 4),),
                        exactly(lambda x, f=formula, a=axes, k=keep: f(x, axis=a, keepdims=k)),
                        {"axes": axes, "keepdims": keep},
                        tolerance,
                        "kept" if keep else "",
                    )
                )
        x = values(dtypes[0], 2, 7)
        samples.append(Sample(op, (x,), lambda x: x, {"axes": ()}, label="no_axes"))
    x = np.array([[1, np.nan, 3], [-np.inf, 2, np.inf]], np.float32)
    samples += [
        Sample(dl.ReduceMaxOp, (x,), lambda x: np.float32([np.nan, np.inf]), {"axes": (1,)}, label="special"),
        Sample(dl.ReduceMinOp, (x,), lambda x: np.float32([np.nan, -np.inf]), {"axes": (1,)}, label="special"),
        *(
            Sample(
                op,
                (np.tile(np.vstack([x, np.full((1, 3), np.nan, np.float32)]), n),),
                lambda x, e=e: e,
                {"axes": (1,)},
                label=label,
            )
            for op, e in (
                (dl.ReduceNanmaxOp, np.float32([3, np.inf, np.nan])),
                (dl.ReduceNanminOp, np.float32([1, -np.inf, np.nan])),
            )
            for n, label in ((1, "special"), (50, "special_long"))
        ),
        Sample(dl.ReduceSumOp, (x,), lambda x: np.float32([np.nan, np.nan]), {"axes": (1,)}, label="special"),
        Sample(dl.ReduceSumOp, (values(F32, 2, 0),), lambda x: np.zeros(2), {"axes": (1,)}, label="empty"),
        Sample(dl.ReduceProdOp, (values(F32, 2, 0),), lambda x: np.ones(2), {"axes": (1,)}, label="empty"),
        Sample(dl.ReduceMaxOp, (values(I8, 2, 0),), lambda x: np.full(2, -128), {"axes": (1,)}, label="empty"),
        Sample(dl.ReduceNanmaxOp, (values(F32, 2, 0),), lambda x: np.full(2, np.nan), {"axes": (1,)}, label="empty"),
        Sample(dl.ReduceMinOp, (values(F32, 2, 0),), lambda x: np.full(2, np.inf), {"axes": (1,)}, label="empty"),
        Sample(dl.ReduceSumOp, (values(F32, 300, 70),), exactly(np.sum), {"axes": (0, 1)}, 1e-5, "large"),
    ]
    ties = np.array([[3, 1, 3, 0], [-2, -2, -2, -2], [5, 9, 9, 9]])
    for op, name in ((dl.ArgmaxOp, "argmax"), (dl.ArgminOp, "argmin")):
        for d in (F32, BF16, I32, BOOL):
            x = values(d, 3, 4, 5) if d == BOOL else ties.astype(d)
            samples.append(Sample(op, (x,), lambda x, f=name: getattr(np, f)(x, -1), {"axis": -1}))
        samples.append(
            Sample(
                op,
                (ties.astype(F32),),
                lambda x, f=name: getattr(np, f)(x, 0)[None],
                {"axis": 0, "keepdims": True},
                label="kept",
            )
        )
        last = [2, 3, 3] if op is dl.ArgmaxOp else [3, 3, 0]
        samples.append(
            Sample(op, (ties.astype(F32),), lambda x, r=last: np.array(r), {"axis": 1, "select_last": True}, label="last")
        )
        nan = np.array([1, np.nan, 0, np.nan], np.float32)
        # An empty result: no index is computed.
        none = values(F32, 2, 0, 0)
        samples.append(Sample(op, (none,), lambda x: np.zeros((2, 0), np.int64), {"axis": 1}, label="empty"))
        samples.append(Sample(op, (nan,), lambda x: np.array(1), {"axis": 0}, label="nan"))
        samples.append(Sample(op, (nan,), lambda x: np.array(3), {"axis": 0, "select_last": True}, label="nan_last"))
    return samples


def _pad(label: str, x: np.ndarray, low: tuple[int, ...], high: tuple[int, ...], mode: str = "constant") -> Sample:
    def expected(x: np.ndarray, value: np.ndarray) -> np.ndarray:
        more = {"constant_values": value} if mode == "constant" else {}
        grown = np.pad(x, [(max(a, 0), max(b, 0)) for a, b in zip(low, high, strict=True)], mode, **more)
        return grown[tuple(slice(-min(a, 0), n + min(b, 0)) for n, a, b in zip(grown.shape, low, high, strict=True))]

    properties = {"low": low, "high": high} | ({"pad_mode": mode} if mode != "constant" else {})
    return Sample(dl.PadOp, (x, np.array(7, x.dtype)), expected, properties, label=label)


def _windows(x: np.ndarray) -> np.ndarray:
    """Return windows of 2 along the first axis, and of 3 with stride 2 along the last."""
    return np.array(
        [
            [[[[x[i + k, j, 2 * m + n] for m in range(3)] for j in range(3)] for i in range(3)] for n in range(3)]
            for k in range(2)
        ]
    )


def _movement() -> list[Sample]:
    x = values(F32, 2, 3, 4)
    return [
        Sample(dl.TransposeOp, (x,), lambda x: np.einsum("abc->cab", x), {"permutation": (2, 0, 1)}),
        Sample(dl.TransposeOp, (telling(BF16)[None],), lambda x: x.T, {"permutation": (1, 0)}),
        # Full and partial square tiles.
        *(
            Sample(dl.TransposeOp, (values(d, 19, 21),), lambda x: x.T, {"permutation": (1, 0)}, label="squares")
            for d in (F32, F64, I8)
        ),
        Sample(dl.TransposeOp, (np.array(3.0),), lambda x: x, {"permutation": ()}, label="scalar"),
        *(
            Sample(dl.BroadcastToOp, (values(d, 3, 1),), lambda x: x + np.zeros((2, 3, 5), x.dtype), {"shape": (2, 3, 5)})
            for d in (F32, I8)
        ),
        Sample(dl.BroadcastToOp, (np.array(2, I32),), lambda x: np.full((2, 2), 2), {"shape": (2, 2)}, label="scalar"),
        Sample(dl.ReshapeOp, (x,), lambda x: x.flatten().reshape(4, 6), {"shape": (4, 6)}),
        *(
            Sample(
                dl.ViewAsOp, (values(d, 3, 8),), lambda x, to=to: x.view(to), {"to": element_type(to)}, label=f"to_{to.name}"
            )
            for d, to in (
                *((d, I32) for d in (I8, U8, I16, BF16)),
                *((d, I64) for d in (BOOL, U8, I16)),
                (U64, U8),
                (F64, F32),
                (F32, I16),
            )
        ),
        Sample(dl.ReshapeOp, (values(I8, 1, 1),), lambda x: x[0, 0], {"shape": ()}, label="scalar"),
        Sample(
            dl.SliceOp,
            (values(F32, 7, 5),),
            lambda x: x[1:6:2, 2:5],
            {"starts": (1, 2), "limits": (6, 5), "strides": (2, 1)},
        ),
        Sample(
            dl.SliceOp,
            (values(U8, 4, 2),),
            lambda x: x[3:3, :2],
            {"starts": (3, 0), "limits": (3, 2), "strides": (1, 1)},
            label="empty",
        ),
        Sample(dl.SliceOp, (values(F32),), lambda x: x, {"starts": (), "limits": (), "strides": ()}, label="no_axes"),
        *(
            Sample(dl.SlidingWindowsOp, (values(d, 4, 3, 8),), _windows, {"axes": (0, 2), "sizes": (2, 3), "strides": (1, 2)})
            for d in (F32, F8)
        ),
        Sample(dl.ReverseOp, (x,), lambda x: x[::-1, :, ::-1], {"axes": (0, -1)}),
        Sample(dl.ReverseOp, (values(BOOL, 3, 37),), lambda x: x[:, ::-1], {"axes": (1,)}, label="of_truth_values"),
        _pad("", values(F32, 3, 4), (1, 0), (2, 3)),
        _pad("negative", values(I32, 4, 5), (-1, 2), (1, -3)),
        _pad("none", values(F16, 2, 2), (0, 0), (0, 0)),
        _pad("empty", np.zeros((0, 2), np.float32), (2, 1), (1, 0)),
        _pad("edge", values(F32, 3, 4), (1, 2), (2, 0), "edge"),
        _pad("reflect", values(F32, 3, 4), (2, 0), (1, 3), "reflect"),
        _pad("reflect_far", values(F32, 3), (5,), (6,), "reflect"),
        _pad("reflect_one", values(F32, 1, 2), (2, 0), (1, 1), "reflect"),
        _pad("wrap", values(I64, 3, 2), (2, 1), (4, 3), "wrap"),
        *(
            Sample(
                dl.ConcatOp,
                (values(d, 2, 3), values(d, 2, 1, seed=1), values(d, 2, 0), values(d, 2, 4, seed=2)),
                lambda *x: np.hstack(x),
                {"axis": -1},
            )
            for d in (F32, BF16, U8, BOOL)
        ),
        Sample(dl.ConcatOp, (values(F64, 2, 3), values(F64, 4, 3)), lambda *x: np.vstack(x), {"axis": 0}, label="rows"),
        Sample(
            dl.PackOp,
            (values(F32, 3, 10, 2),),
            lambda x: np.pad(x, [(0, 0), (0, 2), (0, 0)]).reshape(3, 3, 4, 2).transpose(1, 0, 3, 2),
            {"axis": 1, "tile": 4},
        ),
        Sample(
            dl.PackOp,
            (values(I8, 3, 8),),
            lambda x: x.reshape(3, 2, 4).transpose(1, 0, 2),
            {"axis": -1, "tile": 4},
            label="even",
        ),
        Sample(
            dl.UnpackOp,
            (values(F32, 3, 3, 2, 4),),
            lambda x: x.transpose(1, 0, 3, 2).reshape(3, 12, 2)[:, :10],
            {"axis": 1, "tile": 4, "size": 10},
        ),
        Sample(
            dl.UnpackOp,
            (values(F64, 3, 2, 129),),
            lambda x: x.transpose(1, 0, 2).reshape(2, 387)[:, :364].T,
            {"axis": 0, "tile": 129, "size": 364},
            label="wide",
        ),
        Sample(
            dl.UnpackOp,
            (values(I8, 4, 7, 1),),
            lambda x: x[..., 0],
            {"axis": 0, "tile": 1, "size": 4},
            label="single",
        ),
        Sample(dl.UnpackOp, (values(F32, 0, 3, 5),), lambda x: x[..., 0], {"axis": 0, "tile": 5, "size": 0}, label="empty"),
    ]


def _creation() -> list[Sample]:
    literal = np.array([[1.5, -2.0], [np.inf, 0.0]], np.float32)
    return (
        [
            Sample(
                dl.ConstantOp,
                (),
                lambda v=v: v,
                {"value": dense_attribute(v, tensor_type(v.shape, element_type(v.dtype)))},
                label=label,
            )
            for label, v in (
                ("f32", literal),
                ("f16", literal.astype(F16)),
                ("bf16_splat", np.full((2, 3), 0.5, BF16)),
                ("i8", np.array([-128, 127], I8)),
                ("u64", np.array(2**64 - 1, U64)),
                ("bool", np.array([True, False])),
                ("f8", np.array([-0.5, 448]).astype(F8)),
                ("int4", np.array([-8, 0, 7]).astype(ml_dtypes.int4)),
            )
        ]
        + [
            Sample(dl.IotaOp, (), lambda v=v: v, {"size": v.shape, "to": to, "start": start, "step": step}, label=label)
            for label, v, to, start, step in (
                ("", np.arange(5), i64, 0, 1),
                ("down", np.arange(7, -8, -3), i8, 7, -3),
                ("f32", 0.5 + 0.25 * np.arange(9), f32, 0.5, 0.25),
                ("bf16", np.arange(4) / 2, bf16, 0.0, 0.5),
                ("empty", np.zeros(0), f16, 1, 1),
            )
        ]
        + [
            Sample(dl.SizeOp, (), lambda v=v: np.asarray(v), {"size": (v,), "to": to}, label=label)
            for label, v, to in (("", 5, i64), ("wrapped", 300, i8), ("f16", 2049, f16))
        ]
    )


def _indexing() -> list[Sample]:
    x, rows = values(F32, 5, 4), np.array([[0, 4, -1], [-5, 2, 2]], I64)
    nd = np.array([[[0, 1], [4, -1]], [[-5, 0], [9, 9]]], I64)
    return [
        Sample(dl.GatherOp, (x, rows), lambda x, i: x[i], {"axis": 0}),
        Sample(dl.GatherOp, (x, rows), lambda x, i: x[i], {"axis": 0, "checked": True}, label="checked"),
        # Rows of full and partial vectors.
        Sample(
            dl.GatherOp,
            (values(F32, 5, 75), np.array([[3, -1], [0, 9]])),
            lambda x, i: x[i.clip(None, 4)],
            {"axis": 0},
            label="long",
        ),
        Sample(dl.GatherOp, (x, np.array([3, 0], U8)), lambda x, i: x[:, i], {"axis": 1}, label="columns"),
        Sample(dl.GatherOp, (values(BF16, 3, 2), np.array(1, I32)), lambda x, i: x[1], {"axis": 0}, label="scalar"),
        Sample(
            dl.GatherOp,
            (np.arange(4, dtype=I8), np.array([-9, -5, 4, 99], I32)),
            lambda x, i: np.array([0, 0, 3, 3]),
            {"axis": 0},
            label="outside",
        ),
        Sample(
            dl.GatherOp,
            (np.arange(4, dtype=I8), np.array([2**64 - 1, 2], U64)),
            lambda x, i: np.array([3, 2]),
            {"axis": 0},
            label="outside",
        ),
        Sample(dl.GatherNdOp, (x, nd), lambda x, i: x[np.clip(i[..., 0], -5, 4), np.clip(i[..., 1], -4, 3)]),
        Sample(dl.GatherNdOp, (x, nd[..., :1].copy()), lambda x, i: x[np.clip(i[..., 0], -5, 4)], label="rows"),
        Sample(
            dl.GatherNdOp,
            (values(F32, 2, 3, 4), np.array([[[1], [0]], [[2], [-1]]], I32)),
            lambda x, i: np.stack([x[b, i[b, :, 0]] for b in range(2)]),
            {"batch_dims": 1},
            label="batch",
        ),
        Sample(dl.GatherNdOp, (x, np.array([1, -1], I64)), lambda x, i: x[1, 3], label="scalar"),
        Sample(dl.GatherNdOp, (x, np.array([[2, 3], [-3, -4]], I8)), lambda x, i: x[i[:, 0], i[:, 1]], {"checked": True}),
        Sample(dl.GatherNdOp, (values(I8, 2, 3), np.zeros((2, 0), I64)), lambda x, i: np.stack([x, x]), label="whole"),
        Sample(
            dl.GatherElementsOp,
            (values(F32, 3, 4), np.array([[0, 3, -1], [1, 1, 2]], I64)),
            lambda x, i: np.take_along_axis(x[:2], i, 1),
            {"axis": 1, "checked": True},
        ),
        Sample(
            dl.GatherElementsOp,
            (values(I32, 3, 2), np.array([[2, -3], [9, 0]], I32)),
            lambda x, i: np.array([[x[2, 0], x[0, 1]], [x[2, 0], x[0, 1]]]),
            {"axis": 0},
            label="outside",
        ),
    ]


SAMPLES = [*_reductions(), *_movement(), *_creation(), *_indexing()]
