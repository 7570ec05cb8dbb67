"""Large tensors stay in the file until they are read; protobuf parses the rest."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import GraphProto, ModelProto, helper, numpy_helper

import dlc
from dlc.arrays import ALIGNMENT_BYTES, address_of
from dlc.errors import ModelError
from dlc.frontend.onnx import graph, import_model
from dlc.frontend.onnx.graph import load
from dlc.frontend.onnx.large_tensors import LARGE_TENSOR_BYTES, OWN_FILE_LOCATION, open_content, without_large_tensors
from dlc.weights import Array
from tests.frontend.onnx.build import FLOAT, model

# At the size limit, and just below.
ARRAYS = {
    "large": np.arange(LARGE_TENSOR_BYTES // 4, dtype=np.float32),
    "small": np.arange(LARGE_TENSOR_BYTES // 4 - 1, dtype=np.float32),
}


def branching() -> ModelProto:
    """A model with an initializer, and with a constant in each branch."""

    def branch(name: str) -> GraphProto:
        value = numpy_helper.from_array(ARRAYS[name] + 1)
        node = helper.make_node("Constant", [], ["c"], value=value)
        size = helper.make_node("ReduceSum", ["c"], ["s"], keepdims=0)
        return helper.make_graph([node, size], name, [], [helper.make_tensor_value_info("s", FLOAT, [])])

    chosen = helper.make_node("If", ["condition"], ["s"], then_branch=branch("large"), else_branch=branch("small"))
    nodes = [helper.make_node("ReduceSum", ["x"], ["t"], keepdims=0), helper.make_node("Cast", ["t"], ["condition"], to=9)]
    nodes += [chosen, helper.make_node("Add", ["w", "s"], ["y"])]
    return model(nodes, {"x": [1]}, ["y"], weights={"w": ARRAYS["large"]})


def restored(proto: ModelProto, data: bytes) -> ModelProto:
    """Return the model with the stripped tensors restored."""
    tensors = [proto.graph.initializer[0]]
    tensors += [a.g.node[0].attribute[0].t for n in proto.graph.node if n.op_type == "If" for a in n.attribute]
    for tensor in tensors:
        entries = {e.key: e.value for e in tensor.external_data}
        if entries.get("location") == OWN_FILE_LOCATION:
            start, size = int(entries["offset"]), int(entries["length"])
            tensor.raw_data = data[start : start + size]
            tensor.ClearField("data_location")
            tensor.ClearField("external_data")
    return proto


def test_a_large_folder_is_not_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlc.frontend.onnx.large_tensors.LARGE_TENSOR_BYTES", 0)
    with pytest.raises(ModelError, match="Is a directory"):
        dlc.compile_model(tmp_path)


def test_only_large_tensors_are_stripped() -> None:
    data = branching().SerializeToString()
    left = without_large_tensors(data)
    assert len(data) - 2 * LARGE_TENSOR_BYTES < len(left) < len(data) - 2 * LARGE_TENSOR_BYTES + 300
    assert restored(ModelProto.FromString(left), data) == branching()


def test_arrays_are_independent(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(branching(), path)
    for source in (path, path.read_bytes()):
        weights = import_model(source).weights.copy_to_memory()
        large = [w for w in weights.values() if w.nbytes == LARGE_TENSOR_BYTES]
        assert sorted(float(w[0]) for w in large) == [0, 1]
        assert all(np.array_equal(w - w[0], ARRAYS["large"]) for w in large)
        assert all(address_of(w) % ALIGNMENT_BYTES == 0 and w.flags.writeable for w in large)
    # A caller that modifies a model gets it completely.
    assert load(path).proto == branching()


def test_data_location_after_the_tensor_data() -> None:
    """ONNX Runtime's optimizer writes this; the last occurrence of a field wins."""
    proto = model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [1]}, ["y"], weights={"w": ARRAYS["large"]})
    proto.graph.initializer[0].data_location = onnx.TensorProto.DEFAULT
    assert proto.graph.initializer[0].HasField("data_location")
    (w,) = import_model(proto.SerializeToString()).weights.copy_to_memory().values()
    assert np.array_equal(w, ARRAYS["large"])


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Path, Array]:
    """Save a model that adds an input and a large weight; return its path and the weight."""
    path, w = tmp_path / "model.onnx", np.arange(1 << 20, dtype=np.float32)
    onnx.save(model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [1]}, ["y"], weights={"w": w}), path)
    # File times have a resolution of some milliseconds.
    os.utime(path, (0, 0))
    return path, w


def test_memory_use_is_limited_to_the_tensors_read(saved: tuple[Path, Array]) -> None:
    path, w = saved
    tracemalloc.start()
    store = import_model(path).weights
    _, peak = tracemalloc.get_traced_memory()
    assert peak < 0.5 * w.nbytes
    (read,) = store.copy_to_memory().values()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert w.nbytes <= peak < 1.5 * w.nbytes
    np.testing.assert_array_equal(read, w)


@pytest.mark.parametrize("size", [1000, None], ids=["shorter", "other"])
def test_a_file_that_changes_during_import_is_an_error(saved: tuple[Path, Array], size: int | None) -> None:
    path, _ = saved
    store = import_model(path).weights
    with path.open("r+b") as file:
        file.truncate(size) if size is not None else file.write(b"\0")
    for read in (store.digests, store.copy_to_memory):
        with pytest.raises(ModelError, match="the file changed during compilation"):
            read()


def test_few_files_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlc.frontend.onnx.tensors.MAX_OPEN_FILES", 2)
    path, weights = tmp_path / "model.onnx", {name: ARRAYS["large"] + k for k, name in enumerate("abcd")}
    proto = model([helper.make_node("Sum", list("xabcd"), ["y"])], {"x": [1]}, ["y"], weights=weights)
    onnx.save(proto, path, save_as_external_data=True, all_tensors_to_one_file=False, size_threshold=0)
    before = len(os.listdir("/proc/self/fd"))
    imported = import_model(path)
    assert len(os.listdir("/proc/self/fd")) == before + 2 * 2  # a file, and its mapping
    assert [each.name for each in imported.files] == list("abcd")
    for name, read in zip("abcd", imported.weights.copy_to_memory().values(), strict=True):
        np.testing.assert_array_equal(read, weights[name])
    del imported
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_a_compiled_model_does_not_need_the_file(saved: tuple[Path, Array], target: str) -> None:
    path, w = saved
    compiled = dlc.compile_model(path, target=target, cache=False)
    path.write_bytes(b"")
    np.testing.assert_array_equal(compiled(x=np.ones(1, np.float32))["y"], w + 1)


def test_invalid_messages_are_left_to_protobuf() -> None:
    data = branching().SerializeToString()
    for broken in (data[:-5], data[: LARGE_TENSOR_BYTES // 2], data + b"\xff", bytes(2 * LARGE_TENSOR_BYTES)):
        assert without_large_tensors(broken) == broken
        with pytest.raises(ModelError, match="not an ONNX model"):
            load(broken, with_large_tensors=False)


def test_deeply_nested_graphs_are_refused() -> None:
    data = bytes(LARGE_TENSOR_BYTES)
    # A graph in an attribute of a node of a graph.
    for tag in (b"\x32", b"\x2a", b"\x0a") * 3000:
        size = len(data)
        data = tag + bytes((size & 127 | 128, size >> 7 & 127 | 128, size >> 14)) + data
    with pytest.raises(ModelError, match="not an ONNX model"):
        load(
            b"\x3a" + bytes((len(data) & 127 | 128, len(data) >> 7 & 127 | 128, len(data) >> 14)) + data,
            with_large_tensors=False,
        )


@pytest.mark.parametrize("whole", [False, True])
def test_a_file_truncated_during_import_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    """Access to the mapping itself would raise a signal instead."""
    path = tmp_path / "m.onnx"
    path.write_bytes(bytes(1 << 20))
    file = open_content(path)
    path.write_bytes(bytes(1 << 10))
    monkeypatch.setattr(graph, "open_content", lambda path: file)
    with pytest.raises(ModelError, match="changed during compilation"):
        load(path, with_large_tensors=whole)
