"""`dlc explain-sharding`: the report on a training step, its estimates, and wrong arguments."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from dlc.cli import main
from tests.training.models import perceptron


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return perceptron(tmp_path / "m.onnx", batch=8)


def explain(model: Path, *arguments: str) -> Any:
    return CliRunner().invoke(main, ["explain-sharding", str(model), *arguments], catch_exceptions=False)


def report(model: Path, *arguments: str) -> Any:
    step = ("--train-step", "sgd", "--loss", "cross_entropy", "--json")
    result = explain(model, *step, *arguments)
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_data_parallel_step(model: Path) -> None:
    network = ("--latency", "3us", "--bandwidth", "1GB/s", "--flops", "1GFLOP/s")
    result = report(model, "--mesh", "data=4", *network)
    # One bucket: 2·8 + 8 + 8·3 + 3 gradients and the loss, of which each rank sends two times three quarters.
    (collective,) = result["collectives"]
    assert "dl.all_reduce" in collective["label"] and '"data"' in collective["label"]
    assert (collective["runs"], collective["bytes"]) == (1, 2 * 4 * 52 * 3 // 4)
    assert collective["seconds"] == pytest.approx(2 * 2 * 3e-6 + collective["bytes"] / 1e9)
    shardings = {value["name"]: (value["spec"], value["reason"]) for value in result["inputs"]}
    assert shardings["x"] == ("P('data', None)", "annotation in_shardings of x") and shardings["w1"] == ("P(None, None)", "")
    seconds = result["compute_seconds"] + result["collective_seconds"]
    assert 0 < result["efficiency"] < result["compute_seconds"] / seconds


def test_annotated_weight(model: Path) -> None:
    result = report(model, "--mesh", "data=2,model=2", "--shard", "w1=,model")
    specs = {value["name"]: (value["spec"], value["reason"].split(" at ")[0]) for value in result["inputs"]}
    assert specs["w1"][0] == "P(None, 'model')" and specs["w2"] == ("P('model', None)", "reader dl.matmul")
    assert specs["x"][0] == "P('data', None)"


def test_redundant_computation(model: Path) -> None:
    """Without an annotation for `model`, both of its ranks compute everything."""
    result = report(model, "--mesh", "data=2,model=2", "--latency", "1ns")
    assert {line["line"] for line in result["redundant"]} >= {"node 'first'", "node 'last'"} and result["efficiency"] < 0.6
    assert "Redundant computation" in explain(model, "--mesh", "data=2,model=2").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mesh", "data"], "'data': expected axes and their sizes, such as data=4,model=2"),
        (["--mesh", "data=3"], 'axis 0 of [8, 2] in 3 parts of "data": 8 is not a multiple of 3'),
        (["--mesh", "data=2", "--shard", "y=data"], "no input matches y; the inputs are x"),
        (["--mesh", "data=2", "--shard", "x"], "'x': expected NAME=AXIS,AXIS,…, such as x=data or w=,model"),
        (["--mesh", "data=2", "--latency", "2"], "'2': expected a number of s, such as 10us"),
    ],
)
def test_wrong_arguments(model: Path, arguments: list[str], message: str) -> None:
    result = explain(model, *arguments)
    assert result.exit_code != 0 and message in result.stderr
