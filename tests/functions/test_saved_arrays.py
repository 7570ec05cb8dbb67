"""Arrays saved by the ranks of one mesh and loaded on another; damaged folders. Ranks are threads."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import dlc
from dlc import P
from dlc.errors import DlcError, DTypeError, ModelError, ShapeError, UnsupportedError
from dlc.files.safetensors import read_safetensors
from dlc.runtime.collectives.threads import run_ranks
from dlc.testing.sample import F32, values

W, KEY, STEP = values(F32, 8, 12), dlc.random.key(3), np.int64(7)
HALF = values(F32, 4, 8, seed=1).astype(ml_dtypes.bfloat16)
TREE = {"params": [W, HALF], "key": KEY, "step": STEP, "empty": np.zeros((0, 4), bool)}
SPECS = {"params": [P("data", "model"), P(None, "data")], "key": P(), "step": None, "empty": None}


def assert_equal(tree: Any) -> None:
    for got, expected in zip(dlc.tree.leaves(tree), dlc.tree.leaves(TREE), strict=True):
        assert np.asarray(got).dtype == np.asarray(expected).dtype
        np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that four ranks saved."""
    path, mesh = tmp_path_factory.mktemp("saved") / "step7", dlc.make_mesh({"data": 2, "model": 2})

    def save(rank: int) -> None:
        w, half = dlc.distribute(W, P("data", "model"), mesh), dlc.distribute(HALF, P(None, "data"), mesh)
        dlc.save_arrays(path, {**TREE, "params": [w, half]})

    run_ranks(mesh, save)
    return path


def test_files_of_ranks(folder: Path) -> None:
    """Each rank has a part of `W`; those with coordinate 0 along `model` have the parts of the other array."""
    files = sorted(folder.glob("*.safetensors"))
    shapes = [{name: array.shape for name, array in read_safetensors(file).items()} for file in files]
    whole = {"key": KEY.shape, "step": (), "empty": (0, 4)}
    half = {"params.1": (4, 4)}
    assert shapes == [
        {"params.0": (4, 6), **half, **whole}, {"params.0": (4, 6)}, {"params.0": (4, 6), **half}, {"params.0": (4, 6)}
    ]  # fmt: skip
    assert json.loads((folder / "manifest.json").read_text())["arrays"]["params.0"]["shape"] == [8, 12]


@pytest.mark.parametrize("axes", [{"data": 1, "model": 1}, {"data": 1, "model": 3}, {"data": 4, "model": 2}], ids=str)
def test_another_mesh_loads_them(folder: Path, axes: dict[str, int]) -> None:
    mesh = dlc.make_mesh(axes)
    for loaded in run_ranks(mesh, lambda rank: dlc.collect(dlc.load_arrays(folder, TREE, SPECS, mesh))):
        assert_equal(loaded)


def test_whole_arrays(folder: Path) -> None:
    assert_equal(dlc.load_arrays(folder, dlc.tree.map(lambda x: dlc.ShapeDtype(np.shape(x), np.asarray(x).dtype), TREE)))
    by_name = dlc.load_arrays(folder)
    assert list(by_name) == ["params.0", "params.1", "key", "step", "empty"]
    np.testing.assert_array_equal(by_name["params.0"], W)
    mesh = dlc.make_mesh({"rows": 2})
    for shards in run_ranks(mesh, lambda rank: dlc.load_arrays(folder, {"params": [dlc.distribute(W, P("rows"), mesh)]})):
        assert shards["params"][0].shard.shape == (4, 12)


def test_saving_again_replaces_the_files(tmp_path: Path) -> None:
    for scale in (1, 2):
        dlc.save_arrays(tmp_path, scale * W)
        np.testing.assert_array_equal(dlc.load_arrays(tmp_path, W), scale * W)
        assert len(list(tmp_path.iterdir())) == 2


def test_errors(folder: Path, tmp_path: Path) -> None:
    like = {"params": [W]}
    cases: list[tuple[Callable[[], Any], type[DlcError], str]] = [
        (lambda: dlc.load_arrays(tmp_path), ModelError, r"manifest\.json: cannot be read"),
        (lambda: dlc.load_arrays(folder, {"bias": W}), ModelError, "no array 'bias'; it has"),
        (lambda: dlc.load_arrays(folder, {"params": [W[:4]]}), ShapeError, r"params\.0 has shape \(8, 12\) in .*; expected \(4, 12\)"),
        (lambda: dlc.load_arrays(folder, {"params": [W.astype(int)]}), DTypeError, r"params\.0 has dtype F32 in .*; expected I64"),
        (lambda: dlc.load_arrays(folder, like, P("data")), DTypeError, "shardings need a mesh"),
        (lambda: dlc.load_arrays(folder, like, P("data"), dlc.make_mesh({"data": 5})), ShapeError, "axis 0 .* pad to 10"),
        (lambda: dlc.save_arrays(tmp_path, {"a": {"b": W}, "a.b": W}), DTypeError, r"the name 'a\.b'"),
        (lambda: dlc.save_arrays(tmp_path, W.astype(np.longdouble)), UnsupportedError, "no dtype"),
        (lambda: dlc.save_arrays(tmp_path, {"__metadata__": W}), DlcError, "no tensor named '__metadata__'"),
        (lambda: dlc.save_arrays(tmp_path / "file" / "folder", W), DlcError, "file"),
    ]  # fmt: skip
    (tmp_path / "file").write_bytes(b"")
    for call, error, message in cases:
        with pytest.raises(error, match=message):
            call()

    def save(rank: int) -> None:
        dlc.save_arrays(tmp_path, [dlc.distribute(W, P("data"), mesh), *[W] * rank])

    mesh = dlc.make_mesh({"data": 2})
    with pytest.raises(DlcError, match="rank 1 saves other arrays than rank 0"):
        run_ranks(mesh, save)


OVERLAPPING = [{"file": "a.safetensors", "start": [row, 0], "shape": [4, 12]} for row in (0, 3)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "expected the format"),
        ({"arrays": {"array": {"dtype": "F32", "shape": [8, 12]}}}, "invalid entry of array"),
        ({"arrays": {"array": 3}}, "invalid entry of array"),
        ({"arrays": [1]}, "expected an object 'arrays'"),
        ({"arrays": {"array": {"dtype": "F32", "shape": [8, 12], "shards": []}}}, "do not cover it"),
        ({"arrays": {"array": {"dtype": "F32", "shape": [8, 12], "shards": OVERLAPPING}}}, "shards of array overlap"),
        ({"shard": {"file": "../a.safetensors"}}, "invalid shards"),
        ({"shard": {"file": 3}}, "invalid entry of array"),
        ({"shard": {"start": [0.0, 0]}}, "invalid entry of array"),
        ({"shard": {"file": "absent.safetensors"}}, "cannot be read"),
        ({"shard": {"start": [4, 0]}}, "do not cover it"),
        ({"shard": {"shape": [4, 12]}}, "no shard of array with shape"),
    ],
)
def test_damaged_manifests(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    dlc.save_arrays(tmp_path, W)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["arrays"]["array"]["shards"][0].update(change.pop("shard", {}))
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | change))
    with pytest.raises(ModelError, match=message):
        dlc.load_arrays(tmp_path, W)
