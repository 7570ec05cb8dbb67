"""Artifacts: a loaded model computes the same and needs no compiler; damaged files are rejected."""

from __future__ import annotations

import json
import os
import stat
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import dlc
from dlc.cli import main
from dlc.runtime.load import program_in
from dlc.runtime.saving.container import MAGIC, PREFIX, VERSION
from tests.models import skeletons
from tests.project.test_structure import runs_models

MNIST = skeletons.path_of("mnist_cnn")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("artifact") / "mnist.dlc"
    dlc.compile_model(MNIST, num_threads=1).save(path)
    return path


def test_a_loaded_model_computes_the_same(saved: Path) -> None:
    compiled, loaded = dlc.compile_model(MNIST, num_threads=1), dlc.load(saved)
    assert loaded.inputs == compiled.inputs and loaded.outputs == compiled.outputs and loaded.name == "mnist_cnn"
    for inputs, _ in skeletons.recordings("mnist_cnn"):
        for name, value in compiled(inputs).items():
            np.testing.assert_array_equal(loaded(inputs)[name], value)


def test_origins_are_stored(saved: Path) -> None:
    nodes = {node.name for node in onnx.load(MNIST).graph.node}
    layers = [kernel.origins for kernel in program_in(saved).kernels]
    assert all(layers) and {name for origins in layers for name in origins} <= nodes


def test_loading_needs_no_compiler(saved: Path) -> None:
    script = (
        "import sys, numpy, dlc; model = dlc.load(sys.argv[1]); model(numpy.zeros((1, 1, 28, 28), numpy.float32)); "
        "print(*(m.removeprefix('dlc.') for m in sys.modules if m.startswith('dlc.'))); "
        "print(*(m for m in ('xdsl', 'onnx', 'llvmlite', 'click') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script, saved], capture_output=True, text=True, check=True)
    own, others = done.stdout.splitlines()
    assert others == ""
    assert [m for m in own.split() if not runs_models(m)] == []


def test_saving_is_idempotent(saved: Path, tmp_path: Path) -> None:
    dlc.load(saved).save(tmp_path / "again.dlc")
    assert (tmp_path / "again.dlc").read_bytes() == saved.read_bytes()


def test_every_flipped_byte_is_found(saved: Path, tmp_path: Path) -> None:
    data = bytearray(saved.read_bytes())
    path = tmp_path / "flipped.dlc"
    header = PREFIX.unpack_from(data)[3]
    rng = np.random.default_rng(0)
    places = {
        *range(PREFIX.size),
        PREFIX.size + header // 2,
        PREFIX.size + header,
        len(data) - 1,
        *rng.integers(0, len(data), 300).tolist(),
    }
    for place in sorted(places):
        data[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(data)
        with pytest.raises(dlc.ModelError, match=r"damaged|not a compiled model|format"):
            dlc.load(path)
        data[:] = saved.read_bytes()


@pytest.mark.parametrize("keep", [0, 5, 23, 100, -4096, -1])
def test_a_truncated_file_is_rejected(saved: Path, tmp_path: Path, keep: int) -> None:
    path = tmp_path / "short.dlc"
    path.write_bytes(saved.read_bytes()[:keep])
    with pytest.raises(dlc.ModelError):
        dlc.load(path)


def test_other_versions_and_processors_are_rejected(saved: Path, tmp_path: Path) -> None:
    data = saved.read_bytes()
    newer = tmp_path / "newer.dlc"
    newer.write_bytes(MAGIC + struct.pack("<I", VERSION + 1) + data[12:])
    with pytest.raises(dlc.ModelError, match=f"format version {VERSION + 1}, but this version of dlc reads {VERSION}"):
        dlc.load(newer)
    size = PREFIX.unpack_from(data)[3]
    header = json.loads(data[PREFIX.size : PREFIX.size + size])
    feature = header["target"]["features"][-1]
    changed = data[PREFIX.size : PREFIX.size + size].replace(f'"{feature}"'.encode(), f'"{"z" * len(feature)}"'.encode())
    other = tmp_path / "other.dlc"
    other.write_bytes(
        PREFIX.pack(MAGIC, VERSION, zlib.crc32(changed), size, PREFIX.unpack_from(data)[4])
        + changed
        + data[PREFIX.size + size :]
    )
    with pytest.raises(dlc.DeviceError, match="this processor lacks"):
        dlc.load(other)


def hostile(change: Callable[[dict[str, Any]], object], data: bytes) -> bytes:
    """Return the artifact with a modified header and a valid checksum."""
    size = PREFIX.unpack_from(data)[3]
    header = json.loads(data[PREFIX.size : PREFIX.size + size])
    change(header)
    text = json.dumps(header, separators=(",", ":")).encode()
    start = PREFIX.pack(MAGIC, VERSION, zlib.crc32(text), len(text), PREFIX.unpack_from(data)[4]) + text
    return start + bytes(-len(start) % 4096) + data[-(-(PREFIX.size + size) // 4096) * 4096 :]


HOSTILE: dict[str, Callable[[dict[str, Any]], object]] = {
    "an unknown kernel": lambda h: h["model"]["instructions"][0].__setitem__(0, "nothing"),
    "a default of what is no input": lambda h: h["model"].__setitem__("defaults", [["z", [0], "float32", 1]]),
    "a default of another size": lambda h: h["model"].__setitem__("defaults", [["input", [1, 1, 28, 28], "float32", 1]]),
    "defaults that are none": lambda h: h["model"].__setitem__("defaults", 7),
    "no kernel": lambda h: h["model"]["instructions"][0].__setitem__(0, None),
    "a buffer beyond the last": lambda h: h["model"]["instructions"][0][1][0].__setitem__(0, 1000),
    "a buffer before the first": lambda h: h["model"]["instructions"][0][1][0].__setitem__(0, -1),
    "an offset beyond its buffer": lambda h: h["model"]["instructions"][0][1][0].__setitem__(1, 1 << 40),
    "a size beyond its buffer": lambda h: h["model"]["kernels"][0]["bytes"].__setitem__(0, 1 << 40),
    "more slots than it sets": lambda h: h["model"].__setitem__("loop_slots", (1 << 31) - 1),
    "sizes that no launch gives": lambda h: h["model"]["kernels"][0].__setitem__("sizes", 2),
    "a small arena": lambda h: h["model"].__setitem__("arena", 64),
    "text for a number": lambda h: h["model"].__setitem__("arena", "64"),
    "tasks of another kind": lambda h: h["model"]["kernels"][0].__setitem__("tasks", ["many"]),
    "too many tasks": lambda h: h["model"]["kernels"][0].__setitem__("tasks", [1 << 31]),
    "too many grids": lambda h: h["model"]["kernels"][0].__setitem__("tasks", [1] * 100),
    "a smaller output": lambda h: h["model"]["outputs"][0].__setitem__(1, [1, 1]),
    "an input of objects": lambda h: h["model"]["inputs"][0].__setitem__(2, "object"),
    "another attribute of ml_dtypes": lambda h: h["model"]["inputs"][0].__setitem__(2, "finfo"),
    "a section beyond the file": lambda h: h["sections"][1].__setitem__(0, 1 << 40),
    "sections in another order": lambda h: h["sections"].insert(1, h["sections"].pop(2)),
    "a section that is none": lambda h: h["model"].__setitem__("image", 1000),
    "another section for the program": lambda h: h["model"].__setitem__("image", 1),
    "a kernel without code": lambda h: h["model"]["kernels"][0].__setitem__("name", "k"),
    "a section before the first": lambda h: h["model"]["weights"][0].__setitem__(3, -1),
    "no model": lambda h: h.pop("model"),
    "a model of another kind": lambda h: h.__setitem__("model", ["steps", "variants"]),
    "no target": lambda h: h.pop("target"),
    "a target that is none": lambda h: h.__setitem__("target", [1]),
    "features that are no text": lambda h: h["target"].__setitem__("features", [1]),
    "an architecture that is none": lambda h: h["target"].__setitem__("architecture", "z80"),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_header_fields_are_validated(saved: Path, tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = tmp_path / "hostile.dlc"
    path.write_bytes(hostile(lambda header: None, saved.read_bytes()))
    dlc.load(path)
    path.write_bytes(hostile(change, saved.read_bytes()))
    with pytest.raises(dlc.ModelError):
        dlc.load(path)


@pytest.mark.parametrize("text", [b"", b"[", b"[]", b"null", b"{}", b"\xff", b"[" * 100_000])
def test_an_invalid_header_is_rejected(saved: Path, tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "hostile.dlc"
    start = PREFIX.pack(MAGIC, VERSION, zlib.crc32(text), len(text), -1) + text
    path.write_bytes(start + bytes(-len(start) % 4096))
    with pytest.raises(dlc.ModelError, match="damaged"):
        dlc.load(path)


def test_too_large_buffers_are_rejected(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "hostile.dlc"
    path.write_bytes(hostile(lambda h: h["model"].__setitem__("arena", 1 << 60), saved.read_bytes()))
    with pytest.raises(dlc.DeviceError, match="out of memory"):
        dlc.load(path)


def test_models_without_code_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(dlc.UnsupportedError, match="no code to save; compile it for cpu or opencl"):
        dlc.compile_model(MNIST, target="reference").save(tmp_path / "m.dlc")
    assert os.listdir(tmp_path) == []


def test_a_failed_save_leaves_nothing(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(dlc.DlcError, match="cannot be written"):
        dlc.load(saved).save(tmp_path / "missing" / "m.dlc")
    assert os.listdir(tmp_path) == []


def test_file_permissions_are_preserved(saved: Path, tmp_path: Path) -> None:
    path, before = tmp_path / "m.dlc", os.umask(0o027)
    try:
        dlc.load(saved).save(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        dlc.load(saved).save(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o604
    finally:
        os.umask(before)


def test_files_of_dead_processes_are_removed(saved: Path, tmp_path: Path) -> None:
    ages = {
        ".m.dlc.old.dlc-partial": 7200,
        ".m.dlc.fresh.dlc-partial": 60,
        ".other.dlc.old.dlc-partial": 7200,
        ".m.dlc.mine": 7200,
    }
    for name, age in ages.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    dlc.load(saved).save(tmp_path / "m.dlc")
    assert set(os.listdir(tmp_path)) == {"m.dlc", *ages} - {".m.dlc.old.dlc-partial"}


def test_the_command_line_saves_and_runs(tmp_path: Path) -> None:
    path = tmp_path / "mnist.dlc"
    assert CliRunner().invoke(main, ["compile", str(MNIST), "-o", str(path)]).exit_code == 0
    done = CliRunner().invoke(main, ["run", str(path), "--json"])
    assert sum(json.loads(done.stdout)["probs"][0]) == pytest.approx(1, abs=1e-5)
    assert CliRunner().invoke(main, ["run", str(path), "--shape", "input=1,1,28,28"]).exit_code == 0
    refused = CliRunner().invoke(main, ["run", str(path), "--shape", "input=2,1,28,28"])
    assert refused.exit_code == 2 and "already compiled" in refused.output
    assert CliRunner().invoke(main, ["compile", str(MNIST), "-o", str(tmp_path / "mnist.txt")]).exit_code == 2
