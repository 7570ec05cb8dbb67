"""The IR dump of ResNet-50 by the command line: small, readable, and the same function at every stage."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import ModelProto

from dlc import load
from dlc.cli import main
from dlc.compiler import compile, load_program
from dlc.pipelines import HOST, stages_of
from dlc.target import resolve
from tests.mlir import needs_mlir
from tests.models.skeletons import TOLERANCE, deviation, filled, inputs, recorded, sampled
from tests.stages.test_dump import read_by_mlir

STAGES = [stage.name for stage in (*stages_of(resolve("cpu")), HOST)]


@pytest.fixture(scope="module")
def network() -> ModelProto:
    return filled("resnet50")


@pytest.fixture(scope="module")
def ir(network: ModelProto, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resnet50")
    onnx.save(network, folder / "resnet50.onnx")
    command = ["compile", str(folder / "resnet50.onnx"), "--dump-ir", str(folder / "ir"), "-o", str(folder / "resnet50.dlc")]
    result = CliRunner().invoke(main, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return folder / "ir"


# One test, since every worker that runs a part of it would compile the network again.
def test_the_dump(network: ModelProto, ir: Path) -> None:
    files = [p for p in ir.rglob("*") if p.is_file() and ir / "weights" not in p.parents]
    assert sum(p.stat().st_size for p in files) < 10e6
    assert set(re.findall(r"\]\((.+?)\)", (ir / "index.md").read_text())) == {p.name for p in ir.glob("*.mlir")}
    each_convolution_is_readable(network, ir)
    each_stage_goes_on(network, ir)


@needs_mlir
def test_mlir_reads_every_file(ir: Path) -> None:
    read_by_mlir(ir)


def each_convolution_is_readable(network: ModelProto, ir: Path) -> None:
    """Check that each 3×3 convolution is in short files that name it first, and its values.

    It is one kernel, or the two Winograd transforms of its tiles; the matrix product between them is named after it as well.
    """
    loops = {p: p.read_text() for pattern in ("conv*", "winograd*") for p in (ir / "kernels").glob(f"{pattern}.loops.mlir")}
    headers = {p: re.findall(r"#0 ([^,\s]+)", text.partition("func.func")[0]) for p, text in loops.items()}
    for node in network.graph.node:
        kernel_shape = next((list(a.ints) for a in node.attribute if a.name == "kernel_shape"), [])
        if node.op_type != "Conv" or kernel_shape != [3, 3]:
            continue
        texts = {p.name.split("_")[0]: loops[p] for p, names in headers.items() if node.name in names}
        assert set(texts) in ({"conv"}, {"winograd"})
        for text in texts.values():
            # The remainder of a row after its last full tile is unrolled too.
            assert len(text.splitlines()) < 200
            assert not re.search(r"%\d", text)


def each_stage_goes_on(network: ModelProto, ir: Path) -> None:
    arrays = list(inputs("resnet50", network).values())
    results = {s: compile(load_program(ir / f"stage-{s}.mlir"))(*arrays) for s in STAGES}
    expected = load(ir.parent / "resnet50.dlc")(*arrays)
    outputs, _ = recorded("resnet50")
    assert max(deviation(sampled(np.asarray(expected[name])), array) for name, array in outputs.items()) < TOLERANCE
    for stage, got in results.items():
        assert got.keys() == expected.keys()
        for name, array in expected.items():
            np.testing.assert_array_equal(got[name], array, err_msg=stage)
