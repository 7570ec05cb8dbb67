"""Autotuning: all variants compute the same, and measurements are cached."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import dlc
from dlc.backends.cpu.backend import Cpu
from dlc.cli import main
from dlc.compiler import load_program
from dlc.compiler.compilation import Compilation
from dlc.compiler.lowering import Lowering, plan
from dlc.compiler.tuning import KernelTiming, Tuner, choose_variant, with_variant
from dlc.cost_model import UnrollingCosts
from dlc.instrument.provenance import kernel_origins
from dlc.instrument.report import Report, TunedKernel
from dlc.models.model_files import compile_file
from dlc.options import Options
from dlc.passes.base import TargetPass
from dlc.passes.tiling.tasks.variants import VARIANTS
from dlc.target import CPU_LEVELS, resolve

AVX2 = CPU_LEVELS["cpu:avx2"]
MNIST = Path(__file__).parent / "models" / "small" / "mnist_cnn.onnx"


@pytest.fixture
def tuner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Tuner, Lowering]:
    monkeypatch.setenv("DLC_CACHE", "1")
    monkeypatch.setenv("DLC_CACHE_DIR", str(tmp_path))
    backend = Cpu(resolve("cpu"))
    lowering = Lowering(Compilation(load_program(MNIST), backend))
    lowering.run(lowering.stages(kernels=False))
    runs = {name: len(places) for name, places in kernel_origins(lowering.module).items()}
    return Tuner(lowering.stages(kernels=True), backend, lowering.context, 1, runs), lowering


def test_kernels_are_measured_once(tuner: tuple[Tuner, Lowering], monkeypatch: pytest.MonkeyPatch) -> None:
    measuring, lowering = tuner
    first = measuring.tune(lowering.module, 0.5, None)
    assert first and all(t.after <= t.before and 0 <= t.variant < len(VARIANTS) for t in first)
    entries: dict[str, TunedKernel] = {t.name: t for t in first}
    measure = Tuner.measure

    def only_the_usual(self, kernel, variants, seconds):
        assert list(variants) == [0], "the variants of a kernel that is known are not compiled again"
        return measure(self, kernel, variants, seconds)

    monkeypatch.setattr(Tuner, "measure", only_the_usual)
    for name, kernel in ((k.symbol, k) for k in lowering.module.ops if k.name == "dl.kernel"):
        if name in entries:
            assert measuring.tune_kernel(name, kernel, 1) == entries[name]


@pytest.mark.parametrize(
    ("times", "chosen"),
    [
        ({0: (1.0, 1.0), 3: (0.9, 0.9)}, 3),
        ({0: (1.0, 1.3), 3: (0.9, 0.99)}, 0),  # the worse half is no better than the rules' other one, but for noise
        ({0: (1.0, 1.0), 3: (0.81, 0.8), 5: (0.79, 0.8)}, 3),  # as good as the fastest, and before it
        ({0: (1.0, 1.0), 3: (0.9, 0.9), 5: (0.8, 0.8)}, 5),
        ({0: (1.0, 1.0)}, 0),
    ],
)
def test_variants_must_be_significantly_faster(times: dict[int, tuple[float, float]], chosen: int) -> None:
    assert choose_variant({variant: KernelTiming(*halves) for variant, halves in times.items()}) == chosen


# Of the other variants, the passes are tested with many settings.
@pytest.mark.parametrize(
    "variant", [k for k, v in enumerate(VARIANTS) if v.adapted(AVX2) == AVX2], ids=lambda v: str(VARIANTS[v])
)
def test_tile_variants_compute_the_same(variant: int) -> None:
    stages = with_variant(plan(Compilation(load_program(MNIST), Cpu(resolve("cpu")))), variant)
    pipeline = ",".join(str(p) for stage in stages for p in stage.passes)
    x = np.random.default_rng(0).random((1, 1, 28, 28), np.float32)
    usual, other = (dlc.compile_model(MNIST, pipeline=p)(x)["probs"] for p in (None, pipeline))
    np.testing.assert_allclose(other, usual, rtol=1e-5, atol=1e-6)


def test_variants_change_prefetching_and_unrolling() -> None:
    costs = {str(v): v.adapted(AVX2).costs for v in VARIANTS}
    usual = costs["default rules"]
    assert usual == AVX2.costs and usual.prefetch is not None and usual.prefetch.next_panel_rows
    assert costs["with the other prefetching"].prefetch == replace(usual.prefetch, next_panel_rows=0)
    assert costs["prefetching 16 iterations ahead"].prefetch == replace(usual.prefetch, prefetch_distance=16)
    assert costs["unrolled by 1"].unrolling is None and costs["unrolled by 2"].unrolling == UnrollingCosts(2, 2)


def test_all_passes_use_the_target_of_the_variant(tuner: tuple[Tuner, Lowering]) -> None:
    measuring, _ = tuner
    stages = [with_variant(measuring.stages, variant) for variant in range(len(VARIANTS))]
    targets = [{p.target for stage in s for p in stage.passes if isinstance(p, TargetPass)} for s in stages]
    assert all(targets[k] == {v.adapted(measuring.backend.target)} for k, v in enumerate(VARIANTS))


def test_the_command_line_shows_results() -> None:
    result = CliRunner().invoke(main, ["compile", str(MNIST), "--tune", "0.3", "--json", "--no-cache"])
    assert result.exit_code == 0, result.output
    tuned = json.loads(result.stdout)["tuned"]
    assert tuned and all(t["before"] >= t["after"] > 0 and t["plan"] for t in tuned)


def test_dynamic_shape_kernels_are_measured_at_representative_sizes() -> None:
    """Of a dynamic-shape program with data-dependent sizes."""
    text = (
        '<ir_version: 10, opset_import: ["": 21]> g (float[n,16] x) => (float[k,24] y) { z = ReduceSum<keepdims = 0>(x, one) '
        "p = NonZero(z) t = Transpose(p) some = GatherND(x, t) y = MatMul(some, w) }"
    )
    model = onnx.parser.parse_model(text)
    weight = np.random.default_rng(0).standard_normal((16, 24), np.float32)
    arrays = {"w": weight, "one": np.int64([1])}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    report = Report()
    compiled = compile_file(model.SerializeToString(), options=Options.of(tune=0.2, cache=False), report=report)
    assert report.tuned and report.specialization_reason is None and report.dynamic_domain is None
    x = np.random.default_rng(1).standard_normal((7, 16), np.float32)
    x[3] = 0
    np.testing.assert_allclose(compiled(x)["y"], np.delete(x, 3, 0) @ weight, rtol=1e-4, atol=1e-5)
