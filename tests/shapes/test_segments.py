"""Programs with data-dependent sizes, divided into segments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from dlc.compiler import Program, compile, emit, load_program
from dlc.compiler.segments import Segment, split
from dlc.frontend.onnx import import_model
from dlc.options import Options
from dlc.runtime.models.model import Model
from tests.shapes.data_dependent_models import positive
from tests.targets import TARGETS


def compiled(target: str, **options: object) -> Model:
    return compile(positive(), target, Options.of(num_threads=1, **options))  # type: ignore[arg-type]


def check(model: Model, x: np.ndarray, y: np.ndarray) -> None:
    kept, total, late = map(np.asarray, model(x, y).values())
    expected = y[x > 0] * np.float32(3)
    np.testing.assert_array_equal(kept, expected)
    np.testing.assert_allclose(total, expected.sum(), 1e-5, 1e-5)
    np.testing.assert_array_equal(late, np.flatnonzero(expected > 3))


@pytest.mark.parametrize("target", TARGETS)
def test_sizes_depend_on_the_data_of_each_call(target: str) -> None:
    model = compiled(target)
    assert [str(size) for o in model.outputs for size in o.shape] == ["nonzero_0", "nonzero_1"]
    for x in ([1.0, -1, 2, 3], [-1.0, -2, -3, -4], [4.0, 3, 2, 1], [1.0, 1]):
        check(model, np.array(x, np.float32), np.arange(len(x), dtype=np.float32))


def test_programs_are_divided_at_data_dependent_ops() -> None:
    kinds = [type(step).__name__ for step in split(positive()).steps]
    assert kinds == ["Segment", "DataDependentStep", "Segment", "DataDependentStep", "Segment"]


def test_weights_stay_weights_in_the_segments_that_read_them() -> None:
    for step in split(positive()).steps:
        if isinstance(step, Segment):
            assert not any(i.name.split("_")[0] == "w" for i in step.program.inputs)


def test_one_segment_where_no_op_is_data_dependent() -> None:
    imported = import_model(
        onnx.parser.parse_model('<ir_version: 10, opset_import: ["": 21]> f (float[n] x) => (float[n] y) { y = Relu(x) }')
    )
    segments = split(Program(imported.module, imported.weights))
    assert len(segments.steps) == 1 and not segments.is_split


def test_emission_of_data_dependent_models() -> None:
    for model in (positive(), positive(4)):
        assert emit(model, "dl").count("dl.bind_size") == 2
        text = emit(model, "linalg")
        assert text.count("dl.bind_size") == 2 and "linalg.generic" in text
        assert "define void @" in emit(model, "llvm")


def test_each_segment_dumps_to_its_folder(tmp_path: Path) -> None:
    model = compiled("cpu", dump_ir=tmp_path)
    check(model, np.ones(3, np.float32), np.ones(3, np.float32))
    assert {p.name for p in tmp_path.iterdir() if p.name.startswith("segment")} == {"segment0", "segment1", "segment2"}
    assert (tmp_path / "stage-host.mlir").read_text().count("host.bind_size") == 2
    # Segments are joined once they consist of kernels: later dumps are of the whole program.
    again = compile(load_program(tmp_path / "00-start.mlir"), "cpu", Options(num_threads=1))
    check(again, np.ones(3, np.float32), np.ones(3, np.float32))
