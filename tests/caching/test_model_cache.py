"""The cache of compiled models: keys, hits without the compiler, concurrent processes and killed compilations."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

import dlc
import dlc.numpy as dnp
from dlc.caching.cache import Cache, CacheEntry
from dlc.caching.keys import dlc_version, package_versions
from dlc.caching.model_cache import EXTERNAL_DATA_KIND, MODEL_KIND, CachedFile, explain
from dlc.caching.source_digest import sources_changed
from dlc.cli import main
from dlc.compiler import driver
from dlc.instrument.report import Report
from dlc.models.model_files import compile_file
from dlc.options import Options
from dlc.target import resolve
from tests.caching import kill_compiles
from tests.targets import LEVELS

X = np.array([[-1, 2, -3, 4]], np.float32)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of a test."""
    monkeypatch.setenv("DLC_CACHE", "1")
    monkeypatch.setenv("DLC_VERIFY", "0")
    monkeypatch.setenv("DLC_CACHE_DIR", str(tmp_path / "cache"))
    # Edits of dlc's sources while the tests run must not fail them.
    monkeypatch.setattr("dlc.caching.model_cache.sources_changed", lambda: False)
    return tmp_path / "cache"


def write(path: Path, *, scale: float = 2, rows: int | str = 1, external: bool = False) -> Path:
    """A model of y = max(x, 0) · scale."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, 4])
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Mul", ["r", "scale"], ["y"])]
    weight = numpy_helper.from_array(np.full(4, scale, np.float32), "scale")
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], [weight]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    if external:
        path.with_suffix(".data").unlink(missing_ok=True)  # else it would be added to
        onnx.save(
            model,
            path,
            save_as_external_data=True,
            location=path.with_suffix(".data").name,
            size_threshold=0,
            convert_attribute=False,
        )
    else:
        onnx.save(model, path)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write(tmp_path / "m.onnx")


def hit(path: Path, **options: Any) -> bool:
    """Compile a model and check its results; return whether it was a cache hit."""
    report = Report()
    target, shapes = options.pop("target", "cpu"), options.pop("shapes", None)
    compiled = compile_file(path, target, shapes, Options.of(**options), report=report)
    assert compiled.name == path.stem
    scale = numpy_helper.to_array(onnx.load(path).graph.initializer[0])
    np.testing.assert_array_equal(compiled(x=X)["y"], np.maximum(X, 0) * scale)
    return report.from_cache


def entries() -> list[CacheEntry]:
    return Cache.standard().entries(MODEL_KIND)


def test_the_second_compilation_is_a_hit(model: Path) -> None:
    assert not hit(model) and hit(model)
    (entry,) = entries()
    assert entry.hits == 1
    assert (entry.metadata["model"], entry.metadata["file"], entry.metadata["inputs"]) == (
        "m",
        str(model),
        ["x: float32[1, 4]"],
    )


@pytest.mark.parametrize(
    "use",
    [
        "import numpy, dlc; dlc.compile_model(sys.argv[1])(numpy.zeros((1, 4), numpy.float32))",
        "from dlc.cli import main; main(['run', sys.argv[1], '-o', sys.argv[1] + '.npz'], standalone_mode=False)",
    ],
    ids=["compile_model", "run"],
)
def test_a_hit_needs_no_compiler(model: Path, use: str) -> None:
    assert not hit(model)
    script = f"import sys; {use}; print([m for m in ('xdsl', 'onnx', 'llvmlite', 'pyopencl') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script, model], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda path: {"path": write(path, scale=3)}, "the model file changed"),
        (lambda _: {"target": "cpu:generic"}, "the target changed"),
        (lambda _: {"shapes": {"x": (1, 4)}}, "the shapes changed"),
        (lambda _: {"values": {"x": X}}, "the values of inputs changed"),
        (lambda _: {"pipeline": "simplify"}, "the passes changed"),
    ],
    ids=["file", "target", "shapes", "values", "passes"],
)
def test_all_dependencies_are_in_the_key(model: Path, change: Callable[[Path], dict[str, Any]], reason: str) -> None:
    options = {"target": "cpu:avx2", "shapes": {}, "values": {}, "pipeline": None}
    first = CachedFile.identify(model, {}, resolve("cpu:avx2"), Options())
    Cache.standard().store(
        MODEL_KIND, first.key.digest, lambda p: p.write_text(""), {"model": "m", "file": str(model), "fields": first.key.fields}
    )
    assert explain(first).hit
    options |= change(model)
    device, passes = resolve(options["target"]), Options.of(pipeline=options["pipeline"])
    second = CachedFile.identify(model, options["shapes"], device, passes, options["values"])
    found = explain(second)
    assert second.key.digest != first.key.digest
    assert not found.hit and len(found.reasons) == 1 and found.reasons[0].startswith(reason)


@pytest.mark.parametrize("part", [dlc_version, package_versions], ids=["dlc", "packages"])
def test_another_version_of_the_compiler_is_a_miss(
    model: Path, monkeypatch: pytest.MonkeyPatch, part: Callable[[], str]
) -> None:
    assert not hit(model)
    now = part()
    monkeypatch.setattr(f"dlc.caching.keys.{part.__name__}", lambda: f"{now}, but another")
    (reason,) = explain(CachedFile.identify(model, {}, resolve("cpu"), Options())).reasons
    assert now in reason and "but another now" in reason


def test_an_edited_compiler_stores_nothing(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlc.caching.model_cache.sources_changed", lambda: True)
    assert not hit(model) and not hit(model)
    monkeypatch.setattr("dlc.caching.source_digest._IMPORTED_STATE", "others")
    assert sources_changed()


def test_every_option_is_in_the_key_or_does_not_affect_code() -> None:
    in_the_key = {"pipeline", "numerics", "precision", "weights", "group", "tune", "inter_op"}
    watched = {"dump_ir", "verify", "check_each_pass", "plan", "write_plan", "replaced_kernels"}
    # Other targets' own, and how a model is compiled or run, whatever it becomes.
    without_effect = {"until", "device", "num_threads", "cpus", "streams", "workers", "cache"}
    assert {f.name for f in fields(Options)} == in_the_key | watched | without_effect


def test_run_time_settings_are_not_in_the_key(model: Path) -> None:
    assert not hit(model, num_threads=1)
    assert hit(model, num_threads=2) and hit(model, workers=1)


def test_a_renamed_copy_is_a_hit(model: Path, tmp_path: Path) -> None:
    assert not hit(model)
    (tmp_path / "copy.onnx").write_bytes(model.read_bytes())
    assert hit(tmp_path / "copy.onnx")


def test_observed_compilations_bypass_the_cache(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not hit(model)
    assert not hit(model, dump_ir=tmp_path / "ir") and (tmp_path / "ir" / "index.md").exists()
    assert not hit(model, cache=False)
    assert not hit(model, verify=True)
    monkeypatch.setenv("DLC_CACHE", "0")
    assert not hit(model)


def test_external_data_is_in_the_key(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", external=True)
    graph = path.read_bytes()
    assert not hit(path) and hit(path)
    write(path, scale=5, external=True)
    assert path.read_bytes() == graph
    assert explain(CachedFile.identify(path, {}, resolve("cpu"), Options())).reasons == (
        "the external data of the model changed",
    )
    assert not hit(path) and hit(path)
    write(path, external=True)
    assert hit(path)
    (names,) = Cache.standard().entries(EXTERNAL_DATA_KIND)
    for damage in ("[", '["m.dada"]', "\xff"):
        names.path.write_bytes(damage.encode("latin-1"))
        hit(path)
        assert hit(path)


def test_a_file_that_changes_during_compilation_is_not_cached(model: Path) -> None:
    looked = CachedFile.identify(model, {}, resolve("cpu"), Options())
    assert looked.after_import(()) == looked
    write(model, scale=7)
    assert looked.after_import(()) is None


def test_a_damaged_entry_is_recreated(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert not hit(model)
    data = bytearray(entries()[0].path.read_bytes())
    data[len(data) // 2] ^= 1
    entries()[0].path.write_bytes(data)
    with caplog.at_level(logging.INFO, "dlc"):
        assert not hit(model)
    assert "removing damaged entry" in caplog.text
    assert hit(model)


def test_one_entry_serves_all_sizes(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", rows="n")
    for rows in (1, 2, 3):
        result = dlc.compile_model(path)(x=np.repeat(X, rows, 0))["y"]
        np.testing.assert_array_equal(result, np.repeat(np.maximum(X, 0) * 2, rows, 0))
    assert len(entries()) == 1


def test_each_specialization_by_shape_is_an_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is specialized per shape."""
    monkeypatch.setattr(driver, "reason_to_specialize", lambda *_: "it is to be seen")
    path = write(tmp_path / "m.onnx", rows="n")

    def call(rows: int) -> bool:
        """Return whether a call with so many rows made an entry."""
        before = len(entries())
        result = dlc.compile_model(path)(x=np.repeat(X, rows, 0))["y"]
        np.testing.assert_array_equal(result, np.repeat(np.maximum(X, 0) * 2, rows, 0))
        return len(entries()) > before

    assert [call(rows) for rows in (1, 2, 1, 2)] == [True, True, False, False]
    found = explain(CachedFile.identify(path, {}, resolve("cpu"), Options()))
    assert not found.hit and sorted(str(e.metadata["inputs"]) for e in found.call_entries) == [
        "['x: float32[1, 4]']",
        "['x: float32[2, 4]']",
    ]


def test_each_specialization_by_value_is_an_entry(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])
    sizes = helper.make_tensor_value_info("sizes", TensorProto.INT64, [2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Reshape", ["x", "sizes"], ["y"])], "g", [x, sizes], [y])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    given = np.arange(8, dtype=np.float32).reshape(2, 4)

    def call(*sizes: int) -> bool:
        """Return whether a call with these sizes made an entry."""
        before = len(entries())
        result = dlc.compile_model(path)(given, np.int64(sizes))["y"]
        np.testing.assert_array_equal(result, given.reshape(sizes))
        return len(entries()) > before

    assert [call(1, 8), call(8, 1), call(1, 8), call(8, 1)] == [True, True, False, False]


def test_functions_are_cached_by_their_program() -> None:
    @dataclass
    class Count:
        """The number of entries."""

        n: int = 0

        def grew(self) -> bool:
            before, self.n = self.n, len(entries())
            return self.n > before

    count, weights = Count(), np.arange(4, dtype=np.float32)

    def scaled(factor: float) -> Callable[..., Any]:
        def function(x: Any) -> Any:
            return dnp.abs(x) * factor + weights

        return dlc.jit(function)

    np.testing.assert_array_equal(scaled(2)(X), np.abs(X) * 2 + weights)
    assert count.grew()
    np.testing.assert_array_equal(scaled(2)(X), np.abs(X) * 2 + weights)
    assert not count.grew()
    np.testing.assert_array_equal(scaled(3)(X), np.abs(X) * 3 + weights)
    assert count.grew()

    @dlc.jit
    def elsewhere(x: Any) -> Any:
        return dnp.abs(x) * 3 + weights

    np.testing.assert_array_equal(elsewhere(X), np.abs(X) * 3 + weights)
    assert not count.grew()
    weights = weights + 1
    np.testing.assert_array_equal(scaled(3)(X), np.abs(X) * 3 + weights)
    assert count.grew()


def test_a_cached_model_can_be_saved(model: Path, tmp_path: Path) -> None:
    dlc.compile_model(model).save(tmp_path / "made.dlc")
    dlc.compile_model(model).save(tmp_path / "found.dlc")
    assert (tmp_path / "made.dlc").read_bytes() == (tmp_path / "found.dlc").read_bytes()


def test_an_unusable_folder_does_not_prevent_compilation(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("DLC_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert not hit(model) and not hit(model)


def test_twenty_processes_compile_once(model: Path, folder: Path) -> None:
    with kill_compiles.FORKS.Pool(20) as pool:
        found = pool.starmap(kill_compiles.compile_in, [(folder, model)] * 20, chunksize=1)
    assert found.count(False) == 1
    assert len(entries()) == 1


def test_killed_compilations_leave_nothing_broken(model: Path, tmp_path: Path) -> None:
    kill_compiles.kill_compiles(12, model, tmp_path)


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(main, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.stderr
    return result


def test_the_command_line_uses_it(model: Path) -> None:
    def from_cache(*arguments: object) -> bool:
        return json.loads(run("compile", model, "--json", *arguments).stdout)["from_cache"]

    assert [from_cache(), from_cache(), from_cache("--no-cache"), from_cache("--time-passes")] == [False, True, False, False]
    assert "Loaded from the cache" in run("compile", model, "-v").stdout
    run("run", model)
    run("bench", model, "--seconds", 0)
    assert entries()[0].hits == 4
    run("run", model, "--no-cache")
    assert entries()[0].hits == 4


def test_the_command_line_lists_and_explains_entries(model: Path, folder: Path) -> None:
    assert f"{folder}: 0 entries" in run("cache").stdout
    assert "miss: no entry of the cache" in run("cache", "explain", model).stdout
    run("compile", model)
    assert run("cache", "explain", model).stdout.startswith("hit")
    other = next(name for name in LEVELS if name != resolve("cpu").name)
    missed = run("cache", "explain", model, "--target", other).stdout
    assert missed.startswith("miss: the target changed") and "nearest: model m for" in missed
    listed = run("cache").stdout
    assert "1 entry" in listed and "x: float32[1, 4]" in listed
    assert "│ m " in listed and "ago" not in listed.partition("just now")[0] and "just now" in listed
    state = json.loads(run("cache", "--json").stdout)
    assert state["folder"] == str(folder) and [e["model"] for e in state["entries"]] == ["m"]
    assert json.loads(run("cache", "explain", model, "--json").stdout)["hit"]
    assert "1 entry removed" in run("cache", "clear").stdout
    assert json.loads(run("cache", "--json").stdout)["entries"] == []


def test_entries_that_cannot_be_removed_are_reported(model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("compile", model)
    monkeypatch.setattr(
        "dlc.caching.cache.os.rename", lambda *_: (_ for _ in ()).throw(PermissionError(13, "Permission denied"))
    )
    refused = CliRunner().invoke(main, ["cache", "clear"])
    assert refused.exit_code == 1 and "1 entry could not be removed" in refused.stderr.replace("\n", " ")


def test_the_command_line_reports_why_the_cache_is_not_used(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = CliRunner().invoke(main, ["cache", "explain", str(model), "--target", "reference"])
    assert refused.exit_code == 1 and "models for reference are not cached" in refused.stderr
    monkeypatch.setenv("DLC_CACHE", "0")
    for arguments in (["cache"], ["cache", "clear"], ["cache", "explain", str(model)]):
        refused = CliRunner().invoke(main, arguments)
        assert refused.exit_code == 1 and "DLC_CACHE_DIR" in refused.stderr
