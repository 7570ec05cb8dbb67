"""TFLite files as users give them: by path, as bytes, on the command line; and files that are none."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

import dlc
from dlc.cli import main
from dlc.compiler.program import load_program
from dlc.errors import DlcError, ModelError, ShapeError, UnsupportedError
from dlc.explore.sources import tflite_listing
from dlc.frontend.problems import OpenInputsError
from dlc.frontend.tflite import read_model, reader
from dlc.frontend.tflite.schema import BUILTINS, Graph, Operator, Tensor, TfliteFile, read_file
from tests.frontend.tflite.recorded import recorded


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.tflite"
    path.write_bytes(recorded()["net_float"].file)
    return path


def test_names_are_those_of_the_signature(net: Path) -> None:
    program = load_program(net)
    assert [str(info) for info in (*program.inputs, *program.outputs)] == [
        "keras_tensor: float32[1, 12, 12, 3]",
        "output_0: float32[1, 5]",
    ]
    operators = [op for op in program.module.walk() if op.name == "dl.conv"]
    assert "functional" in str(operators[0].location)


def test_commands_take_such_a_file(tmp_path: Path) -> None:
    path, page = tmp_path / "m.tflite", tmp_path / "m.html"
    path.write_bytes(recorded()["open_sizes_float"].file)

    def run(*words: str) -> str:
        result = CliRunner().invoke(main, [*words], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    assert "everything in it is supported" in run("check", str(path))
    assert "Identity: float32[2, 12]" in run("run", str(path), "--shape", "x=2,3,4", "--target", "reference")
    run("explore", str(path), "--shape", "x=2,3,4", "--no-run", "-o", str(page))
    assert page.is_file() and "Identity = MUL(" in tflite_listing(path).text


def test_open_sizes_are_open_until_they_are_given() -> None:
    found = recorded()["open_sizes_float"]
    model = dlc.compile_model(found.file, target="reference")
    assert str(model.inputs[0].shape[0]) == "x_0"
    for size in (1, 4):
        assert model(np.ones((size, 3, 4), np.float32))["Identity"].shape == (size, 12)
    known = load_program(found.file, {"x": (2, 3, 4)})
    assert known.outputs[0].shape == (2, 12)
    with pytest.raises(ShapeError, match="does not fit"):
        load_program(found.file, {"x": (2, 3)})


def test_an_input_becomes_a_constant(net: Path) -> None:
    found = recorded()["net_float"]
    read = read_model(net, None, {"keras_tensor": found.inputs[0]})
    assert not read.inputs


def test_what_is_not_supported_comes_all_at_once() -> None:
    file = recorded()["others"].file
    # The numbers of operators stand beside their old ones, a byte each.
    changed = bytearray(file)
    for kind in ("GELU", "DYNAMIC_UPDATE_SLICE"):
        number, place = BUILTINS.index(kind), 0
        while (place := file.find(struct.pack("<i", number), place)) >= 0:
            changed[place : place + 4] = struct.pack("<i", BUILTINS.index("CALL_ONCE") if kind == "GELU" else 5000)
            place += 4
    with pytest.raises(UnsupportedError) as raised:
        read_model(bytes(changed))
    text = str(raised.value)
    assert "(CALL_ONCE, 'gelu'): operator: not supported" in text
    assert "(operator 5000, 'dynamic_update_slice'): operator: not supported" in text


def test_a_file_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(b"\x08\x00\x00\x00ONNX")
    with pytest.raises(ModelError, match="not a TFLite model"):
        read_file(path)
    with pytest.raises(ModelError, match="cannot be read"):
        read_file(tmp_path / "none.tflite")
    with pytest.raises(ModelError, match="made of ONNX models"):
        dlc.compile_model(recorded()["net_float"].file, vjp="output_0", wrt="x")


def test_a_truncated_file_is_refused(net: Path) -> None:
    file = net.read_bytes()
    for length in range(0, len(file) - 64, 97):
        with pytest.raises(DlcError):
            read_model(file[:length])


def test_vectors_that_are_shared_do_not_add_up_without_end() -> None:
    """A vector of tables that are all one table whose vector is long: a small file that says a lot."""
    count = 4000
    names = struct.pack("<I", count) + b"x" * count
    # root | its vtable (fields 0: version, 3: no, 1: operator codes) | a table with a text, of which there are many
    vtable = struct.pack("<HHHH", 8, 12, 4, 8)
    head = struct.pack("<I", 16) + b"TFL3" + vtable
    root = struct.pack("<iII", len(head) - 8, 3, 4)
    codes_at = len(head) + len(root)
    code_vtable = struct.pack("<HHHH", 8, 9, 8, 4)
    table_at = codes_at + 4 + 4 * count + 8
    offsets = b"".join(struct.pack("<I", table_at - (codes_at + 4 + 4 * k)) for k in range(count))
    table = struct.pack("<iIbxxx", len(code_vtable), 8, BUILTINS.index("CUSTOM"))
    file = head + root + struct.pack("<I", count) + offsets + code_vtable + table + names
    with pytest.raises(ModelError, match="its vectors hold more than"):
        read_file(file)


def test_graphs_that_unfold_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Options:
        """Those of an operator that runs a graph."""

        def __init__(self, number: int) -> None:
            self.number = number

        def scalar(self, *_: object) -> int:
            return self.number

    tensors = [Tensor(f"t{k}", 0, (2,), (2,), None, None, False, False) for k in range(3)]
    levels = [
        Graph(
            tensors, (0,), (2,), [Operator("STABLEHLO_COMPOSITE", (n,), (n + 1,), cast(Any, Options(k + 1))) for n in range(2)]
        )
        for k in range(30)
    ]
    last = Graph(tensors, (0,), (2,), [Operator("ABS", (n,), (n + 1,), None) for n in range(2)])
    file = TfliteFile("deep.tflite", [*levels, last], {}, {})
    monkeypatch.setattr(reader, "read_file", lambda source: file)
    monkeypatch.setattr(reader, "_MOST_OPERATORS", 500)
    with pytest.raises(ModelError, match="its graphs unfold to more than 748 operators"):
        read_model(b"")


def test_sizes_that_reading_hangs_on_are_those_of_the_call() -> None:
    found = recorded()["open_image_float"]
    with pytest.raises(OpenInputsError, match="the padding with stride 2 depends on the size"):
        read_model(found.file)
    model = dlc.compile_model(found.file, target="reference")
    assert model(np.ones((1, 6, 8, 2), np.float32))["Identity"].shape == (1, 3, 4, 3)


@pytest.mark.parametrize(
    ("number", "bits", "dtype"), [(17, 4, ml_dtypes.int4), (20, 4, ml_dtypes.uint4), (19, 2, ml_dtypes.int2)]
)
def test_several_elements_share_a_byte(number: int, bits: int, dtype: type) -> None:
    """The first in its lowest bits; what is left of the last byte belongs to none."""
    elements = np.array([1, -1, 0, -2, 1]) % (1 << bits)
    codes = sum(int(e) << bits * k for k, e in enumerate(elements))
    data = np.frombuffer(codes.to_bytes(-(-5 * bits // 8), "little"), np.uint8)
    tensor = Tensor("w", number, (5,), (5,), data, None, False, False)
    assert tensor.array().dtype == dtype
    np.testing.assert_array_equal(tensor.array().view(np.uint8) & ((1 << bits) - 1), elements)
    with pytest.raises(ModelError, match="needs 2 bytes of data" if bits == 2 else "needs 3 bytes of data"):
        Tensor("w", number, (5,), (5,), data[:1], None, False, False).array()
