"""TFLite files as paths, bytes and command-line arguments, and files of other formats."""

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
from dlc.explore.source_listings import tflite_listing
from dlc.frontend.problems import SpecializationRequiredError
from dlc.frontend.tflite import read_model, reader
from dlc.frontend.tflite.schema import BUILTINS, TfliteFile, TfliteGraph, TfliteOperator, TfliteTensor, read_file
from dlc.frontend.tflite.sparsity import Level, TfliteSparsity
from tests.frontend.tflite.recorded_models import recorded


@pytest.fixture
def net(tmp_path: Path) -> Path:
    path = tmp_path / "net.tflite"
    path.write_bytes(recorded()["net_float"].file)
    return path


def test_names_come_from_the_signature(net: Path) -> None:
    program = load_program(net)
    assert [str(info) for info in (*program.inputs, *program.outputs)] == [
        "keras_tensor: float32[1, 12, 12, 3]",
        "output_0: float32[1, 5]",
    ]
    operators = [op for op in program.module.walk() if op.name == "dl.conv"]
    assert "functional" in str(operators[0].location)


def test_commands_accept_tflite_files(tmp_path: Path) -> None:
    path, page = tmp_path / "m.tflite", tmp_path / "m.html"
    path.write_bytes(recorded()["dynamic_shapes_float"].file)

    def run(*words: str) -> str:
        result = CliRunner().invoke(main, [*words], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.output

    assert "everything in it is supported" in run("check", str(path))
    assert "Identity: float32[2, 12]" in run("run", str(path), "--shape", "x=2,3,4", "--target", "reference")
    run("explore", str(path), "--shape", "x=2,3,4", "--no-run", "-o", str(page))
    assert page.is_file() and "Identity = MUL(" in tflite_listing(path).text


def test_symbolic_sizes_and_input_shapes() -> None:
    found = recorded()["dynamic_shapes_float"]
    model = dlc.compile_model(found.file, target="reference")
    assert str(model.inputs[0].shape[0]) == "x_0"
    for size in (1, 4):
        assert model(np.ones((size, 3, 4), np.float32))["Identity"].shape == (size, 12)
    known = load_program(found.file, {"x": (2, 3, 4)})
    assert known.outputs[0].shape == (2, 12)
    with pytest.raises(ShapeError, match="expected shape"):
        load_program(found.file, {"x": (2, 3)})


def test_an_input_becomes_a_constant(net: Path) -> None:
    found = recorded()["net_float"]
    read = read_model(net, None, {"keras_tensor": found.inputs[0]})
    assert not read.inputs


def test_all_problems_are_reported_at_once() -> None:
    file = recorded()["others"].file
    # Operator codes have an additional one-byte field for old readers.
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


def test_files_that_are_not_tflite(tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(b"\x08\x00\x00\x00ONNX")
    with pytest.raises(ModelError, match="not a TFLite model"):
        read_file(path)
    with pytest.raises(ModelError, match="cannot be read"):
        read_file(tmp_path / "none.tflite")
    with pytest.raises(ModelError, match="need an ONNX model"):
        dlc.compile_model(recorded()["net_float"].file, vjp="output_0", wrt="x")


def test_a_truncated_file_is_refused(net: Path) -> None:
    file = net.read_bytes()
    for length in range(0, len(file) - 64, 97):
        with pytest.raises(DlcError):
            read_model(file[:length])


def test_shared_vectors_are_limited() -> None:
    """A vector whose elements are all the same table with a long vector: a small file with large contents."""
    count = 4000
    names = struct.pack("<I", count) + b"x" * count
    # root | its vtable (fields 0: version, 3: none, 1: operator codes) | a table with a string, referenced often
    vtable = struct.pack("<HHHH", 8, 12, 4, 8)
    head = struct.pack("<I", 16) + b"TFL3" + vtable
    root = struct.pack("<iII", len(head) - 8, 3, 4)
    codes_at = len(head) + len(root)
    code_vtable = struct.pack("<HHHH", 8, 9, 8, 4)
    table_at = codes_at + 4 + 4 * count + 8
    offsets = b"".join(struct.pack("<I", table_at - (codes_at + 4 + 4 * k)) for k in range(count))
    table = struct.pack("<iIbxxx", len(code_vtable), 8, BUILTINS.index("CUSTOM"))
    file = head + root + struct.pack("<I", count) + offsets + code_vtable + table + names
    with pytest.raises(ModelError, match="its vectors have more than"):
        read_file(file)


def test_exponential_subgraph_inlining_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Options:
        """Those of an operator that runs a graph."""

        def __init__(self, number: int) -> None:
            self.number = number

        def scalar(self, *_: object) -> int:
            return self.number

    tensors = [TfliteTensor(f"t{k}", 0, (2,), (2,), None, None, False, None) for k in range(3)]
    levels = [
        TfliteGraph(
            tensors,
            (0,),
            (2,),
            [TfliteOperator("STABLEHLO_COMPOSITE", (n,), (n + 1,), cast(Any, Options(k + 1))) for n in range(2)],
        )
        for k in range(30)
    ]
    last = TfliteGraph(tensors, (0,), (2,), [TfliteOperator("ABS", (n,), (n + 1,), None) for n in range(2)])
    file = TfliteFile("deep.tflite", [*levels, last], {}, {})
    monkeypatch.setattr(reader, "read_file", lambda source: file)
    monkeypatch.setattr(reader, "_MAX_EXTRA_OPERATORS", 500)
    with pytest.raises(ModelError, match="its subgraphs expand to more than 748 operators"):
        read_model(b"")


def test_import_specializes_on_symbolic_sizes() -> None:
    found = recorded()["dynamic_image_float"]
    with pytest.raises(SpecializationRequiredError, match=r"is x_1 - 2 \* \(x_1 // 2\) == 0"):
        read_model(found.file)
    model = dlc.compile_model(found.file, target="reference")
    assert model(np.ones((1, 6, 8, 2), np.float32))["Identity"].shape == (1, 3, 4, 3)


@pytest.mark.parametrize(
    ("number", "bits", "dtype"), [(17, 4, ml_dtypes.int4), (20, 4, ml_dtypes.uint4), (19, 2, ml_dtypes.int2)]
)
def test_packed_elements(number: int, bits: int, dtype: type) -> None:
    """The first element is in the lowest bits; unused bits of the last byte are ignored."""
    elements = np.array([1, -1, 0, -2, 1]) % (1 << bits)
    codes = sum(int(e) << bits * k for k, e in enumerate(elements))
    data = np.frombuffer(codes.to_bytes(-(-5 * bits // 8), "little"), np.uint8)
    tensor = TfliteTensor("w", number, (5,), (5,), data, None, False, None)
    assert tensor.array().dtype == dtype
    np.testing.assert_array_equal(tensor.array().view(np.uint8) & ((1 << bits) - 1), elements)
    with pytest.raises(ModelError, match="needs 2 bytes of data" if bits == 2 else "needs 3 bytes of data"):
        TfliteTensor("w", number, (5,), (5,), data[:1], None, False, None).array()


@pytest.mark.parametrize(
    ("tree", "problem"),
    [
        (TfliteSparsity((0, 1), (), [Level(2), Level(2)]), "3 elements for 4 leaves"),
        (TfliteSparsity((0, 1), (), [Level(3), Level(1)]), "a level of size 3 below 1 nodes"),
        (TfliteSparsity((0, 0), (), [Level(2), Level(2)]), "levels in the order"),
        (TfliteSparsity((0, 1), (), [Level(2), Level(0, np.array([0, 1, 2]), np.arange(3))]), "segments that do not divide"),
        (TfliteSparsity((0, 1), (), [Level(2), Level(0, np.array([0, 1, 3]), np.array([0, 1, 2]))]), "an element outside"),
        (TfliteSparsity((2, 0, 1), (0,), [Level(1), Level(2), Level(2)]), "the order .* is not supported"),
    ],
)
def test_damaged_sparse_tensors_are_refused(tree: TfliteSparsity, problem: str) -> None:
    tensor = TfliteTensor("w", 0, (2, 1) if "size 3" in problem else (2, 2), (2, 2), np.zeros(12, np.uint8), None, False, tree)
    with pytest.raises(ModelError, match=problem):
        tensor.array()
