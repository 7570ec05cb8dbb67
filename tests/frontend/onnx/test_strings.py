"""String operators, which run in Python at any point of a program."""

from __future__ import annotations

import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper

import dlc
from dlc.errors import DlcError, DTypeError, ModelError, UnsupportedError
from tests.frontend.onnx.build import model

STRING, FLOAT, INT64 = TensorProto.STRING, TensorProto.FLOAT, TensorProto.INT64


def node(op: str, inputs: list[str], outputs: str, **attributes: Any) -> NodeProto:
    return helper.make_node(op, inputs, outputs.split(), **attributes)


def compiled(
    nodes: list[NodeProto], inputs: dict[str, list[Any]], outputs: list[str], dtypes: dict[str, int], target: str = "reference"
) -> dlc.Model:
    """Compile a model of these nodes; the types of its outputs follow from the nodes."""
    return dlc.compile_model(model(nodes, inputs, outputs, dtypes=dtypes), target=target)


# String operators before, after and between numeric ones, each with strings outside of the pool.
NODES = [
    node("Cast", ["x"], "digits", to=STRING),
    node("StringConcat", ["digits", "unit"], "labels"),
    node("StringSplit", ["names"], "parts count", delimiter="-"),
    node("Cast", ["price"], "numbers", to=FLOAT),
    node("Mul", ["numbers", "x"], "total"),
    node("Cast", ["total"], "shown", to=STRING),
    node("Unique", ["labels"], "distinct first inverse counts"),
    node("RegexFullMatch", ["names"], "dashed", pattern=r"\w+-\w+"),
]
INPUTS = {"x": ["n"], "unit": ["n"], "names": ["m"], "price": ["n"]}
OUTPUTS = ["labels", "parts", "count", "shown", "distinct", "inverse", "dashed"]
DTYPES = {"unit": STRING, "names": STRING, "price": STRING}
GIVEN: list[Any] = [np.float32([2, 0.5, 2]), ["kg", "l", "kg"], np.array(["a-b", "ü"]), ["1.5", " -2e1 ", "1.5"]]
EXPECTED: dict[str, list[Any]] = {
    "labels": ["2kg", "0.5l", "2kg"],
    "parts": [["a", "b"], ["ü", ""]],
    "count": [2, 1],
    "shown": ["3", "-10", "3"],
    "distinct": ["0.5l", "2kg"],
    "inverse": [1, 0, 1],
    "dashed": [True, False],
}


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_string_operators_around_numeric_ones(target: str, tmp_path: Path) -> None:
    made = compiled(NODES, INPUTS, OUTPUTS, DTYPES, target)
    assert "unit: string[n]" in repr(made)
    for _ in range(2):
        assert {name: value.tolist() for name, value in made(*GIVEN).items()} == EXPECTED
    if target == "cpu":
        made.save(tmp_path / "m.dlc")
        script = (
            "import sys, numpy as np, dlc\n"
            f"m = dlc.load({str(tmp_path / 'm.dlc')!r})\n"
            "y = m(np.float32([1]), ['m'], ['a-b-c'], ['7'])\n"
            "print(y['labels'].tolist(), y['parts'].tolist(), y['shown'].tolist())\n"
            "print([name for name in ('xdsl', 'onnx', 'llvmlite', 'PIL') if name in sys.modules])\n"
        )
        told = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
        assert told == "['1m'] [['a', 'b', 'c']] ['7']\n[]\n"


def test_casts_between_numbers_and_strings() -> None:
    kinds = {"f": FLOAT, "i": INT64, "b": TensorProto.BOOL, "t": STRING}
    nodes = [
        *(node("Cast", [name], f"text_{name}", to=STRING) for name in "fib"),
        *(node("Cast", ["t"], f"as_{to}", to=to) for to in (TensorProto.FLOAT16, TensorProto.UINT8, TensorProto.BOOL)),
        node("CastLike", ["t", "f"], "like"),
    ]
    outputs = [name for n in nodes for name in n.output]
    made = compiled(nodes, {name: [None] for name in kinds}, outputs, kinds)
    floats = np.float32([1, 0.1, 1.5e-7, 123456789, np.nan, np.inf, -np.inf, -0.0])
    got = made(floats, np.int64([-5]), np.array([True, False]), ["3", "2.9", "1e2", "+0"])
    # As ONNX Runtime writes them.
    assert got["text_f"].tolist() == ["1", "0.1", "1.5000001e-07", "1.2345679e+08", "NaN", "INF", "-INF", "-0"]
    assert got["text_i"].tolist() == ["-5"]
    assert got["text_b"].tolist() == ["1", "0"]
    assert got[f"as_{TensorProto.UINT8}"].tolist() == [3, 2, 100, 0]
    assert got[f"as_{TensorProto.BOOL}"].tolist() == [True, True, True, False]
    np.testing.assert_array_equal(got["like"], np.float32([3, 2.9, 100, 0]))
    assert got[f"as_{TensorProto.FLOAT16}"].dtype == np.float16
    for text, message in [
        ("1_0", "is not a number"),
        ("abc", "is not a number"),
        ("-1", "does not fit uint8"),
        ("inf", "does not fit uint8"),
    ]:
        with pytest.raises(DTypeError, match=rf"dl.string_to_number at .*as_\d+.*'{text}' {message}"):
            made(floats, np.int64([0]), np.array([True]), [text])
    with pytest.raises(DTypeError, match=r"'9+\.\.\.9+' does not fit uint8"):
        made(floats, np.int64([0]), np.array([True]), ["9" * 5000])


def test_invalid_utf8_is_refused() -> None:
    nodes = [node("StringNormalizer", ["x"], "y", stopwords=[b"\xff"])]
    with pytest.raises(ModelError, match=r"'stopwords': invalid UTF-8 in a string.*xff"):
        compiled(nodes, {"x": ["n"]}, ["y"], {"x": STRING})


def test_string_normalizer() -> None:
    def normalized(words: Any, **attributes: Any) -> Any:
        nodes = [node("StringNormalizer", ["x"], "y", **attributes)]
        return compiled(nodes, {"x": list(np.shape(words))}, ["y"], {"x": STRING})(words)["y"].tolist()

    words = ["The", "End", "the"]
    assert normalized(words, stopwords=["the"]) == ["End"]
    assert normalized([words], stopwords=["the"], is_case_sensitive=1, case_change_action="UPPER") == [["THE", "END"]]
    assert normalized(["the"], stopwords=["the"], case_change_action="LOWER") == [""]


def test_strings_in_a_loop_with_a_runtime_condition() -> None:
    """A body on the host, with a run-time trip count and a data-dependent size."""
    types = {"i": INT64, "on": TensorProto.BOOL, "so_far": INT64, "more": TensorProto.BOOL, "next": INT64}
    infos = {name: helper.make_tensor_value_info(name, kind, []) for name, kind in types.items()}
    body = helper.make_graph(
        [
            node("Cast", ["so_far"], "text", to=STRING),
            node("StringConcat", ["text", "one"], "longer"),
            node("Cast", ["longer"], "next", to=INT64),
            node("Less", ["next", "bound"], "more"),
        ],
        "body",
        [infos[name] for name in ("i", "on", "so_far")],
        [infos[name] for name in ("more", "next")],
    )
    nodes = [
        node("Constant", [], "one", value_string="1"),
        node("Loop", ["", "", "start"], "last", body=body),
        node("StringConcat", ["one", "one"], "both"),
    ]
    kinds = {"start": INT64, "bound": INT64}
    made = compiled(nodes, {"start": [], "bound": []}, ["last", "both"], kinds)
    got = made(np.int64(3), np.int64(1000))
    assert (got["last"].item(), got["both"].item()) == (3111, "11")


def test_image_decoder() -> None:
    image = pytest.importorskip("PIL.Image")
    nodes = [node("ImageDecoder", ["data"], "y", pixel_format="BGR")]
    made = compiled(nodes, {"data": ["n"]}, ["y"], {"data": TensorProto.UINT8})
    data = np.frombuffer(b"P6 2 1 255\n" + bytes(range(6)), np.uint8)
    np.testing.assert_array_equal(made(data)["y"], [[[2, 1, 0], [5, 4, 3]]])
    # 16-bit images keep the upper 8 bits.
    image.fromarray(np.uint16([[0, 0x1234, 0xFFFF]])).save(deep := BytesIO(), "PNG")
    np.testing.assert_array_equal(made(np.frombuffer(deep.getvalue(), np.uint8))["y"][0], [[0] * 3, [0x12] * 3, [0xFF] * 3])
    # A format that ONNX does not support, an image with 32-bit pixels, and one that is larger than memory.
    others = [b"GIF89a\1\0\1\0\0\0\0,\0\0\0\0\1\0\1\0\0\2\2D\1\0;", b"Pf 1 1 -1.0\n" + bytes(4), b"P6 1000000 1000000 255\n"]
    for invalid in (data[:-1], data[2:], data[:0], *(np.frombuffer(other, np.uint8) for other in others)):
        with pytest.raises(DlcError, match=r"dl.decode_image at .*y.*cannot be decoded"):
            made(invalid)


def test_image_decoder_without_pillow_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    made = compiled([node("ImageDecoder", ["data"], "y")], {"data": [1]}, ["y"], {"data": TensorProto.UINT8})
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'dlc\[images\]'"):
        made(np.zeros(1, np.uint8))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (
            [node("RegexFullMatch", ["x"], "y", pattern=r"\pL")],
            r"pattern = .*, which Python's `re` does not accept: bad escape",
        ),
        ([node("Unique", ["x"], "y", axis=0)], r"'axis' is not supported for string tensors of rank > 1"),
        ([node("Neg", ["x"], "y")], r"input 0 \('x'\) is a string tensor, which is not supported here"),
    ],
)
def test_unsupported_string_operators(nodes: list[NodeProto], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        compiled(nodes, {"x": [2, 2]}, ["y"], {"x": STRING})
