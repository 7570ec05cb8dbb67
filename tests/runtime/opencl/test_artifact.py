"""OpenCL model files: a loaded model computes the same; missing device features are reported."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc
from dlc import lax
from dlc.caching.cache import Cache
from dlc.caching.model_cache import MODEL_KIND
from dlc.runtime.load import program_in
from dlc.runtime.models.model import Model
from dlc.runtime.opencl import artifact as artifact_module
from dlc.runtime.opencl.artifact import DeviceArtifact
from dlc.runtime.opencl.build import Builder
from dlc.runtime.opencl.devices import all_devices, select_device
from dlc.runtime.saving.container import PREFIX
from tests.models.skeletons import path_of, recordings
from tests.project.test_structure import runs_models
from tests.runtime.cpu.test_artifact import hostile

pytestmark = pytest.mark.skipif(not all_devices(), reason="no OpenCL device")

X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)
LOADED = """
import sys, numpy, dlc
model = dlc.load(sys.argv[1])
print(numpy.asarray(model(numpy.load(sys.argv[2]))["probs"]).tobytes().hex())
print(*(m.removeprefix("dlc.") for m in sys.modules if m.startswith("dlc.")))
print(*(m for m in ("xdsl", "onnx", "llvmlite", "click") if m in sys.modules))
"""


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder for files with a cache of binaries, so that each kernel is built once."""
    folder = tmp_path_factory.mktemp("artifacts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DLC_CACHE", "1")
        patch.setenv("DLC_CACHE_DIR", str(folder / "cache"))
        yield folder


@pytest.fixture(scope="module")
def mnist(folder: Path) -> Model:
    model = dlc.compile_model(path_of("mnist_cnn"), target="opencl")
    model.save(folder / "mnist.dlc")
    return model


def everything(x: Any, turns: Any) -> Any:
    """A model with symbolic and data-dependent sizes, a loop over a symbolic size, a while loop, and a branch."""
    rows = lax.scan(lambda total, row: (total + row, total * row), dlc.numpy.zeros(4, np.float32), x)[1]
    grown = lax.while_loop(lambda s: s[0] > 0, lambda s: (s[0] - 1, s[1] * 2), (turns, x))[1]
    return rows, lax.cond(turns > 1, lambda: grown + 1, lambda: -grown), x[x > 0]


@pytest.fixture(scope="module")
def program(folder: Path) -> Model:
    function = dlc.jit(target="opencl", dynamic={"x": {0: "N:1..9"}})(everything)
    model = function.lower(X, np.int32(2)).compile()
    model.save(folder / "everything.dlc")
    return model


def test_a_process_without_compilers_computes_the_same(mnist: Model, folder: Path) -> None:
    (inputs, _), *_ = recordings("mnist_cnn")
    np.save(folder / "input.npy", inputs["input"])
    command = [sys.executable, "-c", LOADED, folder / "mnist.dlc", folder / "input.npy"]
    probs, own, others = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert bytes.fromhex(probs) == np.asarray(mnist(inputs)["probs"]).tobytes()
    assert [m for m in own.split() if not runs_models(m)] == [] and others == ""


def test_sizes_loops_branches_and_counts(program: Model, folder: Path) -> None:
    loaded = dlc.load(folder / "everything.dlc")
    assert loaded.inputs == program.inputs and loaded.outputs == program.outputs
    for rows, turns in ((5, 2), (1, 0), (9, 1)):
        x = np.resize(X, (rows, 4))
        before = np.cumsum(x, 0) - x
        grown = x * 2**turns
        expected = before * x, grown + 1 if turns > 1 else -grown, x[x > 0]
        for model in (program, loaded):
            for got, want in zip(model(x, np.int32(turns)).values(), expected, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    with pytest.raises(dlc.ShapeError, match=r"N.*1\.\.9|1\.\.9.*N"):
        loaded(np.zeros((10, 4), np.float32), np.int32(1))


def test_a_loaded_model_stays_on_its_device(mnist: Model, folder: Path) -> None:
    loaded = dlc.load(folder / "mnist.dlc")
    x = dlc.to_device(np.zeros((1, 1, 28, 28), np.float32), "opencl")
    (probs,) = loaded(x).values()
    assert isinstance(probs, dlc.DeviceArray) and probs.device == x.device
    (again,) = pickle.loads(pickle.dumps(mnist))(x).values()
    np.testing.assert_array_equal(probs, again)
    loaded.save(folder / "again.dlc")
    assert (folder / "again.dlc").read_bytes() == (folder / "mnist.dlc").read_bytes()


def test_a_model_without_kernels_is_loaded_without_a_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dlc.jit(target="opencl")(lambda x: dlc.numpy.reshape(x, (4, 5))).lower(X).compile().save(folder / "copies.dlc")
    monkeypatch.setenv("DLC_CACHE", "0")
    (copied,) = dlc.load(folder / "copies.dlc")(X).values()
    np.testing.assert_array_equal(copied, X.reshape(4, 5))


def test_artifacts_are_cached(mnist: Model, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLC_VERIFY", "0")
    monkeypatch.setattr("dlc.caching.model_cache.sources_changed", lambda: False)
    path = path_of("mnist_cnn")
    dlc.compile_model(path, target="opencl")
    (entry,) = Cache.standard().entries(MODEL_KIND)
    assert entry.path.read_bytes() == (folder / "mnist.dlc").read_bytes()
    monkeypatch.setattr(artifact_module, "build", None)
    with pytest.raises(TypeError, match="NoneType"):  # found, and only to be built
        dlc.compile_model(path, target="opencl")


def test_the_file_has_no_program_for_c(mnist: Model, folder: Path) -> None:
    assert PREFIX.unpack_from((folder / "mnist.dlc").read_bytes())[-1] == -3


LACKS: dict[str, tuple[dict[str, Any], str]] = {
    "items": ({"group_items": 16}, r"work-groups of \d+ items, but the device supports at most 16"),
    "local memory": ({"local_bytes": 64}, r"\d+ bytes of local memory, but the device has 64"),
    "doubles": ({"target": {"has_f64": False}}, "the device does not support f64"),
}


@pytest.fixture(scope="module")
def demanding(folder: Path) -> Path:
    """A model whose kernel needs f64, work-groups and local memory."""

    def rows(x: Any) -> Any:
        return dlc.numpy.sum(x, axis=-1)

    path = folder / "demanding.dlc"
    dlc.jit(target="opencl:gpu")(rows).lower(np.zeros((4, 300))).compile().save(path)
    return path


@pytest.mark.parametrize("what", LACKS)
def test_missing_device_features_are_reported(demanding: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    changes, message = LACKS[what]
    device = select_device("opencl")[0]
    target = replace(device.target, **changes.get("target", {}))
    monkeypatch.setattr(
        "dlc.runtime.opencl.devices.select_device", lambda *_: (replace(device, **{**changes, "target": target}), target)
    )
    with pytest.raises(dlc.DeviceError, match=message) as raised:
        dlc.load(demanding)
    assert "test_artifact.py" in str(raised.value)


def test_the_device_can_be_selected(mnist: Model, folder: Path) -> None:
    platform, number = select_device("opencl")[0].device_index
    dlc.load(folder / "mnist.dlc", device=f"{platform}:{number}")
    with pytest.raises(dlc.DeviceError, match="no OpenCL device opencl:7:0"):
        dlc.load(folder / "mnist.dlc", device="7:0")


HOSTILE: dict[str, Callable[[dict[str, Any]], object]] = {
    "an unknown kernel": lambda h: h["model"]["instructions"][0].__setitem__(0, "nothing"),
    "a size beyond its buffer": lambda h: h["model"]["kernels"][0]["bytes"].__setitem__(0, 1 << 40),
    "sizes that no launch gives": lambda h: h["model"]["kernels"][0].__setitem__("sizes", 2),
    "a missing source chunk": lambda h: h["model"]["kernels"][0]["chunks"].append(1000),
    "text that is none": lambda h: h["model"].__setitem__("text", 1000),
    "text for a number": lambda h: h["model"]["kernels"][0]["grids"][0].__setitem__(1, "64"),
    "no grids": lambda h: h["model"]["kernels"][0].pop("grids"),
    "an array that begins between two places": lambda h: h["model"]["instructions"][0][1][1].__setitem__(1, 4),
    "memory that begins between two places": lambda h: h["target"].__setitem__("alignment", 32),
    "a target that is none": lambda h: h["target"].__setitem__("alignment", 0),
    "another kind of target": lambda h: h["target"].__setitem__("name", "cpu:avx2"),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_header_fields_are_validated(mnist: Model, tmp_path: Path, folder: Path, change: Any) -> None:
    path = tmp_path / "hostile.dlc"
    path.write_bytes(hostile(change, (folder / "mnist.dlc").read_bytes()))
    with pytest.raises(dlc.ModelError):
        dlc.load(path)


def test_every_flipped_byte_is_found(mnist: Model, tmp_path: Path, folder: Path) -> None:
    data, path = bytearray((folder / "mnist.dlc").read_bytes()), tmp_path / "flipped.dlc"
    rng = np.random.default_rng(0)
    for device_index in (0, 9, PREFIX.size, len(data) - 1, *rng.integers(0, len(data), 60).tolist()):
        data[device_index] ^= 1 << int(rng.integers(8))
        path.write_bytes(data)
        with pytest.raises(dlc.ModelError, match=r"damaged|not a compiled model|format"):
            dlc.load(path)
        data[:] = (folder / "mnist.dlc").read_bytes()


def test_weights_are_mapped(mnist: Model, folder: Path) -> None:
    path = folder / "mnist.dlc"
    artifact = program_in(path, Builder(select_device("opencl")[0], Cache(None), 1))
    assert isinstance(artifact, DeviceArtifact)
    assert all(not array.flags.owndata and not array.flags.writeable for array in artifact.weights.values())
