"""The compiler driver: options, dynamic shapes, and internal errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from dlc.backends.registry import backend_of
from dlc.compiler import Program, compile, emit, kernels, load_program
from dlc.compiler.compilation import Compilation
from dlc.compiler.lowering import plan
from dlc.dialects.registry import make_context
from dlc.errors import CompileError, DeviceError, ModelError, ShapeError, UnsupportedError
from dlc.instrument.report import Report
from dlc.ir import ModuleOp, parse_module
from dlc.options import Environment, Options
from dlc.passes.loops.vectorize import VectorizePass
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.load import load
from dlc.runtime.saving.container import to_bytes
from dlc.target import CPU_LEVELS, _builtin_target, flags_of, host_flags, require_host, resolve
from dlc.weights import WeightStore
from tests.models.skeletons import path_of, recordings

STATIC = """
func.func @main(%x: tensor<4x6xf32> {dl.name = "x"}) -> (tensor<4x8xf32> {dl.name = "y"}) {
  %w = dl.weight {symbol = @w, type = tensor<6x8xf32>} : () -> tensor<6x8xf32> loc("fc")
  %m = dl.matmul %x, %w : (tensor<4x6xf32>, tensor<6x8xf32>) -> tensor<4x8xf32> loc("fc")
  %y = dl.relu %m : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("act")
  func.return %y : tensor<4x8xf32>
}
"""
OPEN = """
func.func @main(%a: tensor<?x3xf32, #dl.dims<"n", 3>> {dl.name = "a"}, %b: tensor<?x3xf32, #dl.dims<"n", 3>> {dl.name = "b"})
    -> (tensor<?x3xf32, #dl.dims<"n", 3>> {dl.name = "sum"}) {
  %s = dl.add %a, %b : (tensor<?x3xf32, #dl.dims<"n", 3>>, tensor<?x3xf32, #dl.dims<"n", 3>>) -> tensor<?x3xf32, #dl.dims<"n", 3>>
  func.return %s : tensor<?x3xf32, #dl.dims<"n", 3>>
}
"""
W = np.linspace(-1, 1, 48, dtype=np.float32).reshape(6, 8)
X = np.linspace(-1, 2, 24, dtype=np.float32).reshape(4, 6)


def program(text: str) -> Program:
    weights = WeightStore()
    weights.add(W)
    return Program(parse_module(make_context(), text), weights, "small")


@pytest.mark.parametrize("target", ["cpu", "cpu:generic", "reference"])
def test_a_program_runs(target: str) -> None:
    y = compile(program(STATIC), target)(x=X)["y"]
    np.testing.assert_allclose(y, np.maximum(X @ W, 0), rtol=1e-5, atol=1e-6)


def test_compiling_does_not_change_the_program() -> None:
    given = program(STATIC)
    before = str(given.module)
    compile(given)
    assert str(given.module) == before
    assert list(given.weights) == ["w"]


def test_workers_do_not_change_the_code() -> None:
    feeds, _ = next(recordings("mnist_cnn"))  # of several kernels, which three processes share
    reports = Report(), Report()
    models = [
        compile(load_program(path_of("mnist_cnn")), options=Options(workers=n), report=r)
        for n, r in zip((1, 3), reports, strict=True)
    ]
    assert len(reports[1].kernels) > 3
    one, shared = (dict(model(feeds)) for model in models)
    assert one.keys() == shared.keys() and all(np.array_equal(one[k], shared[k]) for k in one)


def test_batches_do_not_change_the_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    feeds, _ = next(recordings("mnist_cnn"))
    alone = compile(load_program(path_of("mnist_cnn")))
    monkeypatch.setattr(kernels, "_MIN_BATCHES", 2)
    together = compile(load_program(path_of("mnist_cnn")))
    together.save(tmp_path / "together.dlc")
    loaded = load(tmp_path / "together.dlc")
    loaded.save(tmp_path / "again.dlc")
    assert (tmp_path / "again.dlc").read_bytes() == (tmp_path / "together.dlc").read_bytes()
    expected = dict(alone(feeds))
    for model in (together, loaded):
        assert all(np.array_equal(value, expected[name]) for name, value in model(feeds).items())
    one, some, read = (cast(Artifact, model.artifact).kernels for model in (alone, together, loaded))
    assert len({k.code for k in some}) < len(some) == len({k.code for k in one})
    sizes = [{k.name: k.size for k in made} for made in (one, some, read)]
    assert sizes[0] == sizes[1] == sizes[2]


def test_the_report_has_every_phase() -> None:
    report = Report()
    compile(program(STATIC), report=report)
    assert {"dl", "fusion", "linalg", "tiling", "loops", "emission", "llvm", "weights", "host", "load"} <= report.phases.keys()
    assert {p.stage for p in report.passes} >= {"dl", "loops"}
    assert sum(kernel.runs for kernel in report.kernels) == 1


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_symbolic_dimensions_are_bound_by_calls(target: str) -> None:
    report = Report()
    model = compile(program(OPEN), target, report=report)
    for n in (2, 5, 2, 0):
        a = np.arange(3 * n, dtype=np.float32).reshape(n, 3)
        np.testing.assert_array_equal(model(a=a, b=a)["sum"], a + a)
    if target == "cpu":
        # One kernel for all shapes, however often it is called.
        assert sum(kernel.name.startswith("add") for kernel in report.kernels) == 1
    with pytest.raises(ShapeError, match="n = 2"):
        model(a=np.zeros((2, 3), np.float32), b=np.zeros((4, 3), np.float32))


def test_undetermined_symbols_are_reported() -> None:
    text = OPEN.replace('%b: tensor<?x3xf32, #dl.dims<"n", 3>>', '%b: tensor<?x3xf32, #dl.dims<"j * k", 3>>', 1)
    text = text.replace("%s = dl.add %a, %b", "%s = dl.add %a, %a")
    model = compile(program(text), "reference")
    with pytest.raises(ShapeError, match="j \\* k"):
        model(a=np.zeros((2, 3), np.float32), b=np.zeros((4, 3), np.float32))


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("dl", "dl.matmul"),
        ("fusion", "dl.dispatch"),
        ("linalg", "linalg.generic"),
        ("tiling", "scf.parallel"),
        ("loops", "vector.fma"),
        ("host", "host.launch"),
        ("llvm", "define void @"),
        ("asm", "vfmadd"),
    ],
)
def test_every_form_is_text(form: str, text: str) -> None:
    assert text in emit(program(STATIC), form, "cpu:avx2")


def test_text_of_a_dynamic_shape_program() -> None:
    for form, text in (("dl", "#dl.dims<"), ("loops", "sizes <"), ("llvm", "define void @"), ("asm", "vmov")):
        assert text in emit(program(OPEN), form, "cpu:avx2"), form
    with pytest.raises(ShapeError, match="check_each_pass needs static sizes: set the shapes of the inputs"):
        emit(program(OPEN), "dl", options=Options(check_each_pass=True))


def test_a_past_stage_is_an_error() -> None:
    done = plan(Compilation(program(STATIC), backend_of("cpu")))
    late = Program(program(STATIC).module, WeightStore(), remaining_passes=",".join(str(p) for s in done[2:] for p in s.passes))
    with pytest.raises(UnsupportedError, match=r"'fusion'.*linalg, tiling, loops, host"):
        emit(late, "fusion")


def test_a_custom_pipeline_replaces_the_target_pipeline() -> None:
    stages = plan(Compilation(program(STATIC), backend_of("cpu"), Options(pipeline="cse,dce,form-kernels")))
    assert [(s.name, len(s.passes)) for s in stages] == [("dl", 2), ("fusion", 1), ("host", 4)]
    with pytest.raises(CompileError, match="loops stage"):
        compile(program(STATIC), options=Options(pipeline="cse,form-kernels"))


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("cpu:avx512", "this processor lacks avx512f, which code for cpu:avx512 needs: run it on a processor"),
        ("cpu:aarch64", "this machine is x86_64 and cannot run code for cpu:aarch64: run it on that machine"),
    ],
)
def test_code_for_another_processor_is_not_run(monkeypatch: pytest.MonkeyPatch, target: str, told: str) -> None:
    """Code for another processor is written but not run."""
    flags = {*host_flags(), *flags_of(CPU_LEVELS["cpu:avx512"])} - {"avx512f"}
    monkeypatch.setattr("dlc.target.host_flags", lambda: flags)
    model = compile(program(STATIC), target)
    with pytest.raises(DeviceError, match=told):
        model(X)
    with pytest.raises(DeviceError, match=told):
        load(to_bytes(model))


def test_an_unknown_processor(tmp_path: Path) -> None:
    try:
        with pytest.raises(DeviceError, match=r"No such file or directory; mount /proc"):
            host_flags(tmp_path / "cpuinfo")
        (tmp_path / "cpuinfo").write_bytes(b"model name: \xff\n")
        with pytest.raises(DeviceError, match="lists no processor flags"):
            host_flags(tmp_path / "cpuinfo")
    finally:
        host_flags.cache_clear()


def test_a_restricted_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(level: str) -> str:
        monkeypatch.setenv("DLC_CPU", level)
        host_flags.cache_clear()
        _builtin_target.cache_clear()
        return resolve("cpu").name

    try:
        assert found("generic") == "cpu:generic"
        with pytest.raises(DeviceError, match="lacks avx"):
            require_host(CPU_LEVELS["cpu:avx2"], "m")
        for level in ("avx9", "aarch64"):
            with pytest.raises(DeviceError, match=f"DLC_CPU={level}: unknown level; expected one of generic, avx2,"):
                found(level)
    finally:
        host_flags.cache_clear()
        _builtin_target.cache_clear()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failing_pass_can_be_reproduced(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    apply: Callable[..., None] = VectorizePass.apply

    def broken(self: VectorizePass, context: object, module: ModuleOp) -> None:
        apply(self, context, module)
        raise IndexError("no such lane")

    monkeypatch.setattr(VectorizePass, "apply", broken)
    with pytest.raises(CompileError, match=r"vectorize.*IndexError: no such lane") as caught:
        compile(program(STATIC), options=Options(workers=workers))
    file = Path(str(caught.value).partition("dlc opt ")[2].partition(" -p")[0])
    text = file.read_text()
    assert "linalg.generic" in text and "vector." not in text
    assert "no such lane" in (file.parent / "error.txt").read_text()


@pytest.mark.parametrize("content", ["func.func @main( {", "builtin.module {\n  func.return\n}\n%", "\x00\x01"])
def test_an_invalid_ir_file(tmp_path: Path, content: str) -> None:
    file = tmp_path / "broken.mlir"
    file.write_text(content)
    with pytest.raises(ModelError, match=r"broken\.mlir is not valid IR"):
        load_program(file)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DLC_VERIFY", "yes"), ("DLC_CACHE", "off"), ("DLC_WORKERS", "0"), ("DLC_NUM_THREADS", "two"), ("DLC_NUM_THREADS", "8193"),
        ("DLC_CACHE_SIZE", "4X"), ("DLC_CACHE_SIZE", "-1"),
    ],
)  # fmt: skip
def test_invalid_environment_variables_are_rejected(name: str, value: str) -> None:
    with pytest.raises(UnsupportedError, match=f"{name}={value}: expected"):
        Environment.read({name: value})


def test_the_environment_is_read_once() -> None:
    assert Environment.read({}) == Environment(verify=False, workers=None, num_threads=None)
    given = {"DLC_VERIFY": "1", "DLC_WORKERS": "3", "DLC_NUM_THREADS": ""}
    assert Environment.read(given) == Environment(verify=True, workers=3, num_threads=None)
    assert Options().verify
    assert Options.of(num_threads=None, workers=2) == Options(workers=2)
