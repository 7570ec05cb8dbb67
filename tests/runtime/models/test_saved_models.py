"""Model files with several programs: variants, and specializations by sizes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from numpy.typing import NDArray
from onnx import TensorProto, helper

import dlc
from dlc.cli import main
from dlc.compiler import compile
from dlc.options import Options
from dlc.runtime.models.model import Model
from dlc.runtime.saving.container import PREFIX, Container
from tests.frontend.onnx.build import INT64, model
from tests.project.test_structure import runs_models
from tests.runtime.cpu.test_artifact import hostile
from tests.shapes.data_dependent_models import ONE, THREE, called, positive, some_sizes

X = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((4, 2048)).astype(np.float32)
# Runs a saved model on the inputs in a file; prints which compiler modules were imported.
SCRIPT = """
import sys, numpy, dlc
with numpy.load(sys.argv[2]) as inputs:
    results = dlc.load(sys.argv[1], num_threads=1)(dict(inputs))
numpy.savez(sys.argv[3], **results)
print(*(m.removeprefix("dlc.") for m in sys.modules if m.startswith("dlc.")))
print(*(m for m in ("xdsl", "onnx", "llvmlite", "click") if m in sys.modules))
"""


def alone(path: Path, inputs: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """Return the results in a process without the compiler."""
    given, results = path.with_suffix(".in.npz"), path.with_suffix(".out.npz")
    np.savez(given, **inputs)
    done = subprocess.run([sys.executable, "-c", SCRIPT, path, given, results], capture_output=True, text=True, check=True)
    own, others = done.stdout.splitlines()
    assert others == ""
    assert [m for m in own.split() if not runs_models(m)] == []
    with np.load(results) as arrays:
        return dict(arrays)


def _positive_on(target: str) -> Model:
    return compile(positive(), target, Options(num_threads=1))


@pytest.fixture(scope="module")
def some(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sizes") / "some.dlc"
    some_sizes().save(path)
    return path


@pytest.fixture(scope="module")
def reduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """y = the sum of x @ w over the axes, for axes [0] and [1]."""
    folder = tmp_path_factory.mktemp("variants")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("ReduceSum", ["m", "axes"], ["y"])]
    weights = {"w": W}
    onnx.save(model(nodes, {"x": X.shape, "axes": [1]}, ["y"], dtypes={"axes": INT64}, weights=weights), folder / "m.onnx")
    called(dlc.compile_model(folder / "m.onnx"), [(X, np.int64([axis])) for axis in (0, 1)]).save(folder / "m.dlc")
    return folder / "m.dlc"


# Specializations by sizes


def test_data_dependent_sizes_without_a_compiler(some: Path) -> None:
    for x, mask in (*THREE, *ONE):
        np.testing.assert_array_equal(alone(some, {"x": x, "mask": mask})["y"], x[mask] + [1, 2, 3])


def test_missing_specializations(some: Path) -> None:
    loaded = dlc.load(some)
    assert [str(info) for info in loaded.inputs] == ["x: float32[n]", "mask: bool[n]"]
    with pytest.raises(dlc.UnsupportedError, match=r"not compiled for n = 7; inputs: .* holds nonzero_0 = 3; n = 5"):
        loaded(np.ones(7, np.float32), np.eye(7, dtype=bool)[2])
    with pytest.raises(
        dlc.UnsupportedError, match=r"data-dependent sizes nonzero_0 of this call; .*holds nonzero_0 = 3; nonzero_0 = 1"
    ):
        loaded(np.ones(5, np.float32), np.ones(5, bool))


def test_names_of_loaded_models(some: Path, tmp_path: Path) -> None:
    dlc.jit(lambda x: x + 1).lower(X).compile().save(tmp_path / "f.dlc")
    for path, name in ((some, "specialized"), (tmp_path / "f.dlc", "program")):
        loaded = dlc.load(path, name=name)
        assert loaded.name == name
        with pytest.raises(dlc.DlcError, match=f"^{name}: "):
            loaded(unknown=X)
    with pytest.raises(dlc.DlcError, match=r"^<lambda>: "):
        dlc.load(tmp_path / "f.dlc")(unknown=X)


def test_models_must_be_code(tmp_path: Path) -> None:
    compiled = called(_positive_on("reference"), [(X[0, 0], X[0, 1])])
    with pytest.raises(dlc.UnsupportedError, match="has no code to save; compile it for cpu or opencl"):
        compiled.save(tmp_path / "m.dlc")


def test_saving_is_idempotent(some: Path, reduced: Path, tmp_path: Path) -> None:
    for path in (some, reduced):
        dlc.load(path).save(tmp_path / "again.dlc")
        assert (tmp_path / "again.dlc").read_bytes() == path.read_bytes()


def test_selections_have_their_settings(tmp_path: Path) -> None:
    nodes = [helper.make_node("Unique", ["x"], ["y", "first", "inverse", "counts"], axis=1, sorted=0)]
    onnx.save(model(nodes, {"x": ["n", 3]}, ["y", "first", "inverse", "counts"]), tmp_path / "m.onnx")
    compiled, x = dlc.compile_model(tmp_path / "m.onnx"), np.float32([[2, 1, 2], [2, 0, 2]])
    expected = compiled(x)
    compiled.save(tmp_path / "m.dlc")
    for name, value in dlc.load(tmp_path / "m.dlc")(x).items():
        np.testing.assert_array_equal(value, expected[name])


def test_a_loop_over_a_data_dependent_size(tmp_path: Path) -> None:
    """The loop subtracts 1 from the state until no element is positive."""
    infos = [("i", INT64, []), ("go", TensorProto.BOOL, []), ("s", TensorProto.FLOAT, [4])]
    nodes = [
        helper.make_node("Sub", ["s", "one"], ["next"]),
        helper.make_node("Relu", ["next"], ["positive"]),
        helper.make_node("NonZero", ["positive"], ["places"]),
        helper.make_node("Size", ["places"], ["count"]),
        helper.make_node("Cast", ["count"], ["again"], to=TensorProto.BOOL),
    ]
    outs = [("again", TensorProto.BOOL, []), ("next", TensorProto.FLOAT, [4])]
    takes, gives = ([helper.make_tensor_value_info(*info) for info in some] for some in (infos, outs))
    loop = helper.make_node("Loop", ["", "go", "x"], ["y"], body=helper.make_graph(nodes, "body", takes, gives))
    made = model([loop], {"x": [4]}, ["y"], weights={"go": np.bool_(True), "one": np.float32(1)})
    onnx.save(made, tmp_path / "m.onnx")
    called(dlc.compile_model(tmp_path / "m.onnx"), [[np.float32([3, 0, 0, 0])]]).save(tmp_path / "m.dlc")
    for x, turns in (([-2, -1, 0, 3], 3), ([0, 0, 0, -1], 1)):
        results = alone(tmp_path / "m.dlc", {"x": np.float32(x)})
        np.testing.assert_array_equal(results["y"], np.float32(x) - turns)


# Variants


def test_variants_without_a_compiler(reduced: Path) -> None:
    for axis in (0, 1):
        y = alone(reduced, {"x": X, "axes": np.int64([axis])})["y"]
        np.testing.assert_allclose(y, (X @ W).sum(axis, keepdims=True), 1e-4, 1e-5)


def test_a_missing_variant_by_value(reduced: Path) -> None:
    loaded = dlc.load(reduced)
    assert loaded.values == ("axes",) and [info.name for info in loaded.inputs] == ["x", "axes"]
    with pytest.raises(dlc.UnsupportedError, match=r"not compiled for axes = \[2\].*holds axes = \[0\]; axes = \[1\]"):
        loaded(X, np.int64([2]))


def test_a_missing_variant_by_shape(tmp_path: Path) -> None:
    nodes = [helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear", antialias=1)]
    made = model(nodes, {"x": [1, 1, "n"]}, ["y"], weights={"scales": np.float32([1, 1, 2])})
    onnx.save(made, tmp_path / "m.onnx")
    compiled = dlc.compile_model(tmp_path / "m.onnx")
    with pytest.raises(dlc.UnsupportedError, match="not called yet"):
        compiled.save(tmp_path / "m.dlc")
    expected = compiled(X[:1, :1])["y"]
    compiled.save(tmp_path / "m.dlc")
    loaded = dlc.load(tmp_path / "m.dlc")
    np.testing.assert_array_equal(loaded(X[:1, :1])["y"], expected)
    with pytest.raises(dlc.UnsupportedError, match=r"for n = 3;.* holds n = 4"):
        loaded(X[:1, :1, :3])


def test_equal_weights_are_stored_once(reduced: Path) -> None:
    variants = [fields for *_, fields in Container.read(reduced).model["specializations"]]
    sections = [{section for _, _, _, section in fields["weights"]} for fields in variants]
    assert len(sections) == 2 and sections[0] == sections[1] != set()


def test_the_command_line_sets_sizes(tmp_path: Path) -> None:
    _positive_on("cpu").save(tmp_path / "m.dlc")
    ran = CliRunner().invoke(main, ["run", str(tmp_path / "m.dlc"), "--shape", "x=4", "--shape", "y=4", "--json"])
    assert ran.exit_code == 0 and json.loads(ran.stdout).keys() == {"kept", "total", "late"}
    refused = CliRunner().invoke(main, ["run", str(tmp_path / "m.dlc"), "--shape", "x=4,4"])
    assert refused.exit_code == 2 and "input 'x': expected shape" in refused.output


# Invalid files


def test_every_flipped_byte_is_found(some: Path, tmp_path: Path) -> None:
    data = bytearray(some.read_bytes())
    header = PREFIX.unpack_from(data)[3]
    rng = np.random.default_rng(0)
    for place in sorted(
        {PREFIX.size + header // 2, PREFIX.size + header, len(data) - 1, *rng.integers(0, len(data), 100).tolist()}
    ):
        data[place] ^= 1 << int(rng.integers(8))
        (tmp_path / "flipped.dlc").write_bytes(data)
        with pytest.raises(dlc.ModelError, match=r"damaged|not a compiled model|format"):
            dlc.load(tmp_path / "flipped.dlc")
        data[:] = some.read_bytes()


def test_libraries_are_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "m.so").write_bytes(b"\x7fELF" + bytes(4096))
    with pytest.raises(dlc.ModelError, match=r"a library or object file, not a \.dlc file.*save m\.dlc instead"):
        dlc.load(tmp_path / "m.so")


SPECIALIZATIONS: dict[str, Callable[[dict[str, Any]], object]] = {
    "no specializations": lambda m: m.__setitem__("specializations", None),
    "an input less": lambda m: m["inputs"].pop(),
    "an output less": lambda m: m["outputs"].pop(),
    "a key of other inputs": lambda m: m["specializations"][0].__setitem__(0, [[3]]),
    "a size that is not a number": lambda m: m["specializations"][1][1].__setitem__(0, {"n": ["n", "n"]}),
    "no domain": lambda m: m["specializations"][0].__setitem__(1, [3]),
    "a size that has to be a number": lambda m: m["specializations"][0][1].__setitem__(1, [["n", 3]]),
    "a guard without an origin": lambda m: m["specializations"][0][3]["guards"].append(["nonzero_0", "=="]),
    "a guard with an unknown relation": lambda m: m["specializations"][0][3]["guards"].append(["nonzero_0", "<", ""]),
}
VARIANTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a value of no input": lambda m: m["values"].__setitem__(0, "z"),
    "a key that is no value": lambda m: m["specializations"][0].__setitem__(0, ["zz"]),
    "a value of another size": lambda m: m["specializations"][0].__setitem__(0, ["00"]),
    "a variant with another input": lambda m: m["specializations"][0][3]["inputs"][0].__setitem__(0, "z"),
    "a variant with more outputs": lambda m: m["outputs"].pop(),
}


@pytest.mark.parametrize("change", SPECIALIZATIONS.values(), ids=SPECIALIZATIONS.keys())
def test_specialization_fields_are_validated(some: Path, tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    (tmp_path / "m.dlc").write_bytes(hostile(lambda header: change(header["model"]), some.read_bytes()))
    with pytest.raises(dlc.ModelError):
        dlc.load(tmp_path / "m.dlc")


@pytest.mark.parametrize("change", VARIANTS.values(), ids=VARIANTS.keys())
def test_variant_fields_are_validated(reduced: Path, tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    (tmp_path / "m.dlc").write_bytes(hostile(lambda header: change(header["model"]), reduced.read_bytes()))
    with pytest.raises(dlc.ModelError):
        dlc.load(tmp_path / "m.dlc")


def test_programs_receive_only_matching_arrays(some: Path, tmp_path: Path) -> None:
    """Native code receives only the shapes and dtypes that it was compiled for, whatever the file says."""

    def change(model: dict[str, Any]) -> None:
        model["inputs"][0][1]["dtype"] = "int8"

    (tmp_path / "m.dlc").write_bytes(hostile(lambda header: change(header["model"]), some.read_bytes()))
    loaded = dlc.load(tmp_path / "m.dlc")
    with pytest.raises(dlc.DTypeError):
        loaded(np.ones(4, np.int8), np.ones(4, bool))


def test_loading_leaves_no_weights_in_memory(tmp_path: Path) -> None:
    """Verification of the checksums releases the pages of the file; a call maps the rows of the weights that it uses."""
    table, path = np.ones((1 << 16, 64), np.float32), tmp_path / "rows.dlc"
    dlc.jit(lambda rows: dlc.numpy.take(table, rows, 0)).lower(np.zeros(2, np.int32)).compile().save(path)
    loaded = dlc.load(path, num_threads=1)
    assert _resident_bytes(path) < table.nbytes / 8
    (rows,) = loaded(np.array([5, 60_000], np.int32)).values()
    np.testing.assert_array_equal(rows, table[:2])
    # Systems with large pages in the page cache map up to 2 MB around a row.
    assert 0 < _resident_bytes(path) < table.nbytes / 2


def _resident_bytes(path: Path) -> int:
    """Return how many bytes of the mappings of a file are in memory."""
    total, is_mapping_of_file = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, value, *_ = line.split()
        if not name.endswith(":"):
            is_mapping_of_file = line.endswith(str(path))
        elif is_mapping_of_file and name == "Rss:":
            total += int(value) << 10
    return total
