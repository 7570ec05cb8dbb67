"""Samples of results with data-dependent sizes, against loops over their definitions."""

from __future__ import annotations

import numpy as np

from dlc.dialects import dl
from dlc.testing.sample import BF16, BOOL, F32, I64, U8, Sample, values


def nonzero(x: np.ndarray) -> np.ndarray:
    places = [place for place in np.ndindex(*x.shape) if x[place]]
    return np.array(places, np.int64).reshape(len(places), x.ndim).T


def unique(x: np.ndarray, axis: int | None, keep_order: bool, nan_differs: bool = False) -> tuple[np.ndarray, ...]:
    slices = [x[place] for place in np.ndindex(*x.shape)] if axis is None else list(np.moveaxis(x, axis, 0))
    # NaN are the largest, and equal unless slices with a NaN are distinguished by their indices.
    own = [k if nan_differs and (s != s).any() else -1 for k, s in enumerate(slices)]
    keys = [(*((v != v, 0 if v != v else v) for v in np.ravel(s).tolist()), k) for s, k in zip(slices, own, strict=True)]
    distinct = list(dict.fromkeys(keys))
    if not keep_order:
        distinct.sort()
    first = [keys.index(key) for key in distinct]
    y = np.array([slices[k] for k in first], x.dtype)
    numbers = ([distinct.index(key) for key in keys], [keys.count(key) for key in distinct])
    return (y if axis is None else np.moveaxis(y, 0, axis), np.array(first), *map(np.array, numbers))


def non_max_suppression(
    boxes: np.ndarray, scores: np.ndarray, most: np.ndarray, iou: np.ndarray, threshold: np.ndarray, center_point: bool
) -> np.ndarray:
    def corners(box: np.ndarray) -> tuple[float, ...]:
        a, b, c, d = map(float, box)
        if center_point:
            return a - c / 2, b - d / 2, a + c / 2, b + d / 2
        return min(a, c), min(b, d), max(a, c), max(b, d)

    def area(box: tuple[float, ...]) -> float:
        return max(box[2] - box[0], 0) * max(box[3] - box[1], 0)

    def overlap(p: tuple[float, ...], q: tuple[float, ...]) -> bool:
        common = area((max(p[0], q[0]), max(p[1], q[1]), min(p[2], q[2]), min(p[3], q[3])))
        union = area(p) + area(q) - common
        return union > 0 and common / union > float(iou)

    rows: list[tuple[int, int, int]] = []
    for n, c in np.ndindex(*scores.shape[:2]):
        order = sorted(range(scores.shape[2]), key=lambda k: (-scores[n, c, k], k))
        chosen: list[int] = []
        for k in order:
            dropped = any(overlap(corners(boxes[n, k]), corners(boxes[n, j])) for j in chosen)
            if scores[n, c, k] > threshold and len(chosen) < most and not dropped:
                chosen.append(k)
        rows += [(n, c, k) for k in chosen]
    return np.array(rows, np.int64).reshape(-1, 3)


def _nonzero(*shape: int) -> Sample:
    x = values(BOOL, *shape)
    return Sample(dl.NonzeroOp, (x,), nonzero, {"size": (int(x.sum()),)}, label="x".join(map(str, shape)) or "scalar")


def _places(rows: int, n: int, size: int) -> Sample:
    def expected(x: np.ndarray) -> np.ndarray:
        found = [[k for k, flag in enumerate(row) if flag] for row in x]
        return np.array([[*(places + [n] * n)[:size], n] for places in found]).reshape(rows, size + 1)

    return Sample(dl.TrueIndicesOp, (values(BOOL, rows, n),), expected, {"size": (size,)}, label=f"{rows}x{n}_{size}")


def _numbers(number: int) -> Sample:
    size = max(number, 0)
    return Sample(
        dl.DynamicIotaOp, (np.array(number, I64),), lambda n: np.arange(n), {"size": (size,)}, label=f"below_{number}"
    )


def _unique(x: np.ndarray, axis: int | None, keep_order: bool, nan_differs: bool = False) -> Sample:
    def expected(x: np.ndarray) -> tuple[np.ndarray, ...]:
        return unique(x, axis, keep_order, nan_differs)

    properties = {"size": (len(expected(x)[1]),), "keep_order": keep_order} | ({} if axis is None else {"axis": axis})
    properties |= {"nan_differs": True} if nan_differs else {}
    label = f"axis{axis}" + "_keep_order" * keep_order + "_nan_differs" * nan_differs
    return Sample(dl.UniqueOp, (x,), expected, properties, label=label)


def _non_max_suppression(center_point: bool, most: int, threshold: float) -> Sample:
    random = np.random.default_rng(7)
    boxes, scores = random.random((2, 12, 4), np.float32), random.random((2, 3, 12), np.float32)
    scores[0, 0, 3:6] = scores[0, 0, 2]
    boxes[1, 4, 2:] = 0 if center_point else boxes[1, 4, :2]
    settings = (np.array(most, np.int64), np.array(0.25, np.float32), np.array(threshold, np.float32))

    def expected(*operands: np.ndarray) -> np.ndarray:
        return non_max_suppression(*operands, center_point)  # type: ignore[arg-type]

    size = len(expected(boxes, scores, *settings))
    properties = {"size": (size,), "center_point": center_point}
    return Sample(dl.NonMaxSuppressionOp, (boxes, scores, *settings), expected, properties, label=f"best{most}_of_{threshold}")


def _suppress(*shape: int) -> Sample:
    random = np.random.default_rng(3)
    corners = np.sort(random.random((*shape, 2, 2), np.float32), axis=-2).reshape(*shape, 4)
    candidates, most = random.random(shape) > 0.2, np.full(shape[:-1], 3, np.int64)

    def expected(corners: np.ndarray, candidates: np.ndarray, most: np.ndarray, iou: np.ndarray) -> np.ndarray:
        result = np.full(candidates.shape, candidates.shape[-1])
        for row in np.ndindex(*most.shape):
            settings = np.array(most[row]), np.array(iou[row]), np.array(0, np.float32)
            rows = non_max_suppression(corners[row][None], candidates[row][None, None].astype(np.float32), *settings, False)
            result[row][: len(rows)] = rows[:, 2]
        return result

    return Sample(
        dl.SuppressOverlapsOp,
        (corners, candidates, most, np.full(shape[:-1], 0.1, np.float32)),
        expected,
        label="x".join(map(str, shape)),
    )


def _decode_picture(gray: bool) -> Sample:
    """An image in the simplest format, PNM: a line of text, followed by the bytes of its pixels."""
    pixels = values(U8, 2, 3, 1 if gray else 3)
    data = np.frombuffer(f"P{5 if gray else 6} 3 2 255\n".encode() + pixels.tobytes(), np.uint8)
    return Sample(dl.DecodeImageOp, (data,), lambda _: pixels, {"size": (2, 3), "gray": gray}, label="gray" * gray)


SAMPLES: list[Sample] = [
    _nonzero(3, 4, 2),
    _nonzero(17),
    _nonzero(0, 3),
    _places(1, 9, 9),
    _places(3, 7, 2),
    _places(2, 5, 0),
    _places(1, 0, 0),
    _numbers(5),
    _numbers(-2),
    _unique(values(I64, 5, 4) // 4, None, keep_order=False),
    _unique(values(I64, 5, 4) // 4, None, keep_order=True),
    _unique(np.round(values(BF16, 23).astype(np.float32)).astype(BF16), None, keep_order=True),
    _unique(values(U8, 9, 1, 2) // 8, 0, keep_order=False),
    _unique(np.round(values(F32, 2, 8, scale=0.6)) + 0.0, 1, keep_order=True),
    _unique(np.array([[1, np.nan], [0, 2], [1, np.nan]], np.float32), 0, keep_order=False),
    _unique(
        np.array([[np.nan, 3], [0, 2], [np.nan, 1], [0, 2], [np.nan, 1]], np.float32), 0, keep_order=False, nan_differs=True
    ),
    _suppress(9),
    _suppress(2, 12),
    _non_max_suppression(center_point=False, most=4, threshold=0.3),
    _non_max_suppression(center_point=True, most=12, threshold=-1.0),
    _decode_picture(gray=False),
    _decode_picture(gray=True),
]
