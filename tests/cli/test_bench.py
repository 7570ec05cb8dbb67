"""`dlc bench`: latency, kernels compared with the machine's limits, other runtimes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dlc.cli import main
from dlc.cli.console import out
from dlc.measure.kernel_times import Measurement
from dlc.measure.other_runtimes import PEERS
from dlc.runtime.opencl.devices import all_devices

MNIST = Path(__file__).parents[1] / "models" / "small" / "mnist_cnn.onnx"


def bench(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["bench", *map(str, arguments), "--seconds", "0"], catch_exceptions=False)


def test_kernel_times_add_up() -> None:
    result = bench(MNIST, "--kernels", "--num-threads", 1, "--json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    kernels = {kernel["name"]: kernel for kernel in report["kernels"]}
    # 8 and 16 channels from 1 and 8, 3×3, padded, on 28×28 and 14×14; then 784 to 10.
    assert sum(kernel["flops"] for kernel in kernels.values()) == 2 * (28 * 28 * 8 * 9 + 14 * 14 * 16 * 8 * 9 + 784 * 10)
    assert all(kernel["origins"] and kernel["seconds"] > 0 for kernel in kernels.values())
    assert report["limits"]["flops"] > 0 and report["calls"] >= 1 and report["slowdown"] >= 1


@pytest.mark.parametrize(("slowdown", "is_shared"), [(1.05, False), (1.5, True)])
def test_runs_that_differ_are_reported(slowdown: float, is_shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Measurement, "slowdown", slowdown)
    assert ("1.50 times as long" in bench(MNIST, "--kernels", "--num-threads", 1).stdout) == is_shared


@pytest.mark.parametrize("cpus", ["abc", "", "0-", "-1", "5-3", "0,,1", "0-99999999999"])
def test_invalid_processors(cpus: str) -> None:
    assert "expected numbers and ranges of processors" in bench(MNIST, f"--cpus={cpus}").stderr


@pytest.mark.parametrize("width", [80, 160])
def test_tables(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out, "width", width)
    result = bench(MNIST, "--kernels", "--num-threads", 1)
    assert "of limit" in result.stdout and "GFLOP/s" in result.stdout and "conv" in result.stdout
    # The time of each kernel is shown at any width, a bar only on wide terminals.
    share = r"\d+\.\d%" if width == 80 else r"\d+\.\d% █+"
    assert len(re.findall(rf"│ +\d+(\.\d+)? [mµn]?s │ +{share} *│", result.stdout)) >= 5


def test_a_compiled_model_has_the_same_kernels(tmp_path: Path) -> None:
    saved = tmp_path / "m.dlc"
    assert CliRunner().invoke(main, ["compile", str(MNIST), "-o", str(saved)]).exit_code == 0
    names = [
        sorted(kernel["name"] for kernel in json.loads(bench(path, "--kernels", "--json").stdout)["kernels"])
        for path in (MNIST, saved)
    ]
    assert names[0] == names[1]
    assert bench(saved, "--vs", "onnxruntime").exit_code in (1, 2)


@pytest.mark.skipif(not all_devices(), reason="no OpenCL device")
def test_kernels_of_a_model_for_a_device(tmp_path: Path) -> None:
    saved, trace = tmp_path / "m.dlc", tmp_path / "trace.json"
    loop = MNIST.with_name("gru_stream.onnx")
    assert CliRunner().invoke(main, ["compile", str(loop), "--target", "opencl", "-o", str(saved)]).exit_code == 0
    report = json.loads(bench(saved, "--kernels", "--json", "--trace", trace).stdout)
    step = max(report["kernels"], key=lambda kernel: kernel["runs"])
    assert step["runs"] == 20 and step["origins"] and step["seconds"] > 0 and report["limits"]["memory"] > 0
    events = json.loads(trace.read_text())["traceEvents"]
    assert sum(e["ph"] == "X" and e["name"] == step["name"] for e in events) == 20


def test_unsupported_measurements_are_errors() -> None:
    result = bench(MNIST, "--kernels", "--target", "reference")
    assert result.exit_code == 1 and "one program for a CPU or an OpenCL device" in result.stderr
    assert "'fast'" in bench(MNIST, "--vs", "fast").stderr


@pytest.mark.parametrize("name", PEERS)
def test_other_runtimes(name: str) -> None:
    if not PEERS[name].installed:
        pytest.skip(f"{name} is not installed")
    result = bench(MNIST, "--vs", name, "--json")
    assert json.loads(result.stdout)["others"][name]["median_ms"] > 0


def test_throughput_by_streams() -> None:
    report = json.loads(bench(MNIST, "--streams", "1,2", "--in-flight", 3, "--json").stdout)
    assert [(row["streams"], row["in_flight"]) for row in report["streams"]] == [(1, 3), (2, 3)]
    assert all(row["requests_per_second"] > 0 and row["p50_ms"] <= row["p99_ms"] for row in report["streams"])
    assert "best" in bench(MNIST, "--streams", "auto").stdout
    assert "expected auto, or numbers" in bench(MNIST, "--streams", "many").stderr
    assert "remove --vs" in bench(MNIST, "--streams", "auto", "--kernels").stderr
