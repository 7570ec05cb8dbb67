"""Type inference of `dl` ops: errors with the constraint or the shapes in the message, and results for symbolic sizes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dlc.dialects import dl
from dlc.dialects.dl.base import DlOp, shape_of, tensor_type
from dlc.dialects.dl.dtypes import ELEMENT_TYPES
from dlc.errors import DTypeError, ShapeError
from dlc.ir import Attribute, Block, f16, f32, i1, i8, i16, i32, i64
from dlc.shapes.dims import Dim, Size

N = Dim.symbol("n")
UI4 = ELEMENT_TYPES["uint4"]
PAIRS, WORDS = ((2, 4), i32), ((1, 1, 1, 3), i32)


def make(op: type[DlOp], *operands: tuple[tuple[Size, ...], Attribute], **properties: Any) -> DlOp:
    return op.make(*Block(arg_types=[tensor_type(*o) for o in operands]).args, **properties)


def f(*shape: Size) -> tuple[tuple[Size, ...], Attribute]:
    return shape, f32


# The operands of a weight-only product after the rows: weights and all scales.
ONE_BLOCK = WORDS, f(2, 1), ((2, 1, 1), i32), f(1, 3)


REFUSED = {
    "shapes do not broadcast": (dl.AddOp, [f(2, 3), f(4)], {}, r"dl\.add: shapes \(2, 3\) and \(4,\) do not broadcast"),
    "mixed element types": (dl.MulOp, [f(2), ((2,), f16)], {}, "f32, f16; cast them to one"),
    "arithmetic on bool": (dl.AddOp, [((2,), i1), ((2,), i1)], {}, "element type i1, expected float or integer"),
    "function of integers": (dl.ExpOp, [((2,), i32)], {}, "element type i32, expected float"),
    "a slope of no size": (dl.CeluOp, [f(2)], {"alpha": float("inf")}, "alpha inf; expected a finite value other than 0"),
    "logic on numbers": (dl.AndOp, [f(2), f(2)], {}, "element type f32, expected bool"),
    "bits of floats": (dl.BitwiseNotOp, [f(2)], {}, "expected integer"),
    "numeric condition": (dl.SelectOp, [f(2), f(2), f(2)], {}, r"condition has element type f32, expected i1 \(C1\)"),
    "repeated axis": (dl.ReduceSumOp, [f(2, 3)], {"axes": (1, -1)}, r"axes \(1, -1\) are not distinct axes of a rank-2"),
    "sum of bools": (dl.ReduceSumOp, [((2,), i1)], {"axes": (0,)}, "element type i1"),
    "place of nothing": (dl.ArgmaxOp, [f(2, 0)], {"axis": 1}, r"axis 1 of \(2, 0\) has no elements"),
    "no permutation": (dl.TransposeOp, [f(2, 3)], {"permutation": (0, 0)}, r"permutation \(0, 0\)"),
    "broadcast to less": (dl.BroadcastToOp, [f(2, 3)], {"shape": (3,)}, r"does not broadcast to \(3,\)"),
    "reshape to more": (dl.ReshapeOp, [f(2, 3)], {"shape": (7,)}, r"\(7,\) has 7 elements, x \(2, 3\) has 6"),
    "slice outside": (dl.SliceOp, [f(5)], {"starts": (1,), "limits": (6,), "strides": (1,)}, r"\[1:6:1\] is outside axis 0"),
    "stride of zero": (dl.SliceOp, [f(5)], {"starts": (1,), "limits": (3,), "strides": (0,)}, "C3"),
    "padding of another rank": (dl.PadOp, [f(5), f()], {"low": (1, 1), "high": (1, 1)}, "C1"),
    "padding with a vector": (dl.PadOp, [f(5), f(1)], {"low": (1,), "high": (1,)}, "expected a scalar"),
    "more taken than there is": (dl.PadOp, [f(5), f()], {"low": (-3,), "high": (-3,)}, "C3"),
    "edge of nothing": (dl.PadOp, [f(0), f()], {"low": (1,), "high": (0,), "pad_mode": "edge"}, "C4"),
    "unknown mode": (dl.PadOp, [f(5), f()], {"low": (1,), "high": (0,), "pad_mode": "mirror"}, "'mirror', expected one of"),
    "concatenation of ranks": (dl.ConcatOp, [f(2), f(2, 2)], {"axis": 0}, "differ in rank"),
    "concatenation of sizes": (dl.ConcatOp, [f(2, 3), f(3, 3)], {"axis": 1}, "differ other than along axis 1"),
    "concatenation of nothing": (dl.ConcatOp, [], {"axis": 1}, "no operands"),
    "tile of zero": (dl.PackOp, [f(4)], {"axis": 0, "tile": 0}, "tile 0"),
    "no packing": (dl.UnpackOp, [f(2, 4)], {"axis": 0, "tile": 4, "size": 9}, r"expected \[3, …, 4\] for size 9"),
    "words of floats": (dl.ViewAsOp, [f(4)], {"to": i32}, "C1"),
    "a part of a word": (dl.ViewAsOp, [((2, 6), i8)], {"to": i32}, "C2"),
    "nibbles of bytes": (dl.PackNibblesOp, [((2,), i8)], {}, "C1"),
    "half a byte": (dl.PackNibblesOp, [((3,), UI4)], {}, "C2"),
    "words of 16 bits": (dl.MatmulWeightOnlyOp, [f(2, 8), ((1, 1, 3), i32), f(1, 3)], {"of": i16}, "C1"),
    "scales of other blocks": (dl.MatmulWeightOnlyOp, [f(2, 8), ((1, 1, 3), i32), f(2, 3)], {"of": UI4}, "C2"),
    "rows of half a word": (dl.MatmulWeightOnlyOp, [f(2, 4), ((1, 1, 3), i32), f(1, 3)], {"of": UI4}, "C3"),
    "rows of integers": (dl.MatmulWeightOnlyOp, [((2, 8), i32), ((1, 1, 3), i32), f(1, 3)], {"of": UI4}, "C4"),
    "pairs of 16 bits": (dl.MatmulWeightOnlyDotOp, [PAIRS, *ONE_BLOCK], {"bits": 3, "parts": 1, "dot": "i16"}, "C1"),
    "dots of floats": (dl.MatmulWeightOnlyDotOp, [PAIRS, *ONE_BLOCK], {"bits": 4, "parts": 1, "dot": "bf16"}, "C1"),
    "pairs of floats": (dl.MatmulWeightOnlyDotOp, [f(2, 4), *ONE_BLOCK], {"bits": 4, "parts": 1, "dot": "i16"}, "C2"),
    "fours as pairs": (dl.MatmulWeightOnlyDotOp, [PAIRS, *ONE_BLOCK], {"bits": 4, "parts": 1, "dot": "u8i8"}, "C3"),
    "sums of other words": (
        dl.MatmulWeightOnlyDotOp,
        [PAIRS, WORDS, f(2, 1), ((2, 1, 2), i32), f(1, 3)],
        {"bits": 4, "parts": 1, "dot": "i16"},
        "C3",
    ),
    "two kinds of blocks": (dl.DequantizeOp, [((4, 8), i8), f(4, 2), ((4, 4), i8)], {"axis": 1}, "differ"),
    "products of half a word": (dl.MatmulOp, [((2, 2), i8), ((2, 2), i8)], {"dot": "u8i8"}, "expected operands of i32"),
    "an unknown product": (
        dl.MatmulOp,
        [((2, 2), i32), ((2, 2), i32)],
        {"dot": "i4"},
        "expected operands of i32 and one of i16, u8i8",
    ),
    "held in too little": (dl.QuantizeOp, [f(4), f(), ((), i16)], {"axis": 0, "to": i8}, "C4"),
    "places of floats": (dl.GatherOp, [f(4), f(2)], {"axis": 0}, "indices have element type f32"),
    "places on nothing": (dl.GatherOp, [f(0), ((2,), i64)], {"axis": 0}, "no elements to read"),
    "places too deep": (dl.GatherNdOp, [f(4), ((1, 2), i64)], {}, "C2"),
    "places of another rank": (dl.GatherElementsOp, [f(4), ((1, 2), i64)], {"axis": 0}, "differ in rank"),
    "numbers of bool": (dl.IotaOp, [], {"size": (3,), "to": i1, "start": 0, "step": 1}, "C2"),
    "fractions of integers": (dl.IotaOp, [], {"size": (3,), "to": i8, "start": 0.5, "step": 1}, "must be integers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    op, operands, properties, message = REFUSED[case]
    with pytest.raises((ShapeError, DTypeError), match=message) as raised:
        make(op, *operands, **properties)
    assert re.match(rf"{op.name}\b", str(raised.value))


INFERRED = {
    "broadcast against 1": (dl.AddOp, [f(N, 3), f(1)], {}, (N, 3)),
    "a symbol against a size": (dl.AddOp, [f(N), f(4)], {}, (4,)),
    "reduced": (dl.ReduceSumOp, [f(N, 3, N)], {"axes": (1,), "keepdims": True}, (N, 1, N)),
    "transposed": (dl.TransposeOp, [f(N, 3)], {"permutation": (1, 0)}, (3, N)),
    "repeated": (dl.BroadcastToOp, [f(1, 3)], {"shape": (N, 3)}, (N, 3)),
    "flattened": (dl.ReshapeOp, [f(N, 2, 3)], {"shape": (N, 6)}, (N, 6)),
    "sliced": (dl.SliceOp, [f(N + 1)], {"starts": (1,), "limits": (N + 1,), "strides": (2,)}, ((N + 1) // 2,)),
    "padded": (dl.PadOp, [f(N), f()], {"low": (1,), "high": (2,)}, (N + 3,)),
    "joined": (dl.ConcatOp, [f(N, 2), f(3, 2), f(N, 2)], {"axis": 0}, (2 * N + 3, 2)),
    "packed": (dl.PackOp, [f(N, 5)], {"axis": 0, "tile": 4}, ((N + 3) // 4, 5, 4)),
    "taken": (dl.GatherOp, [f(7, 2), ((N, 3), i64)], {"axis": 0}, (N, 3, 2)),
    "counted": (dl.IotaOp, [], {"size": (N,), "to": i64, "start": 0, "step": 1}, (N,)),
}


@pytest.mark.parametrize("case", INFERRED)
def test_inferred(case: str) -> None:
    op, operands, properties, shape = INFERRED[case]
    result = make(op, *operands, **properties).results[0]
    assert shape_of(result) == shape
