"""The content of a page: graph, fusion stops, tile plans, memory, timeline."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest

import dlc
from dlc import nn
from dlc.compiler import Program
from dlc.dialects.registry import make_context
from dlc.explore import Page, collect
from dlc.explore.data import Box, Edge, Exploration
from dlc.explore.encode import to_plain_data
from dlc.explore.graph import build_graph
from dlc.explore.layout import layout_graph
from dlc.frontend.onnx import import_model
from dlc.frontend.onnx.graph import load
from dlc.ir import parse_module
from dlc.models.model_files import import_program
from dlc.options import Options
from dlc.runtime.models.model import Model
from dlc.runtime.opencl.devices import all_devices
from dlc.target import resolve
from tests.explore.programs import (
    ROWS,
    XS,
    W,
    chosen_rows,
    explored,
    mnist,
    page_of_counts,
    recurrence,
    rows,
    sums,
    three_rows,
    tiny,
    until,
)
from tests.targets import SHORT


def test_boxes_are_kernel_launches_in_loops() -> None:
    graph = explored().graph
    (loop,) = [k for k, box in enumerate(graph.boxes) if box.kind == "loop"]
    assert graph.boxes[loop].name == "scan, 40 steps"
    inside = [box for box in graph.boxes if box.parent == loop and box.kind == "kernel"]
    assert [part.ops for part in inside[0].groups] == [("matmul", "add", "tanh")]
    assert inside[0].groups[0].flops == 2 * 4 * 16 * 16
    assert [box.launch for box in graph.boxes if box.kind == "kernel"] == list(range(len(explored().memory.launches)))
    # Edges into a loop end at the loop's box.
    ends = [(graph.boxes[e.source], graph.boxes[e.target]) for e in graph.edges]
    assert all(a.parent == b.parent for a, b in ends)
    assert {a.name for a, b in ends if b is graph.boxes[loop]} >= {"xs"}


def test_every_kernel_has_a_fusion_stop_reason() -> None:
    reasons = {box.name: (box.next_op, box.reason) for box in mnist().graph.boxes if box.kind == "kernel"}
    assert reasons["conv_add_relu"] == (
        "max_pool node_max_pool2d",
        "it reads each element several times, so its operands must be in memory: it starts a kernel",
    )
    assert reasons["matmul_add"] == ("softmax node_softmax", "it reduces rows, which this kernel does not")
    assert reasons["max_pool_transpose"][1] == "the result is stored in the layout that its users read"
    assert all(reason for _, reason in reasons.values())


def test_launches_of_data_dependent_loops_are_counted() -> None:
    assert {k.name: k.runs for k in until().kernels}["tanh"] == 5


def test_kernels_of_one_line_have_separate_reasons() -> None:
    def twice(x, w):
        for _ in range(2):
            x = nn.softmax(x @ w)
        return x

    x, w = np.ones((4, 8), np.float32), np.ones((8, 8), np.float32)
    boxes = [box for box in collect(dlc.jit(twice).lower(x, w).program, SHORT).graph.boxes if box.name == "softmax"]
    assert [box.next_op.partition(" ")[0] for box in boxes] == ["matmul", "return"]


def test_plans_are_explained() -> None:
    plan = next(k.plan for k in mnist().kernels if k.name == "conv_add_relu_1")
    assert plan[0].startswith("nest 0: TaskTiles grid {")
    assert "  a contraction, 3 ops over d0 = 14 × d1 = 14 × d2 = 16, reduced over d3 = 3 × d4 = 24" in plan
    assert any(f"of 16 registers of {resolve(SHORT).lanes(4)} lanes, vectors along d2" in line for line in plan)


def test_memory_is_that_of_the_arena() -> None:
    memory = mnist().memory
    assert memory is not None and max(b.offset + b.bytes for b in memory.buffers) == memory.arena_bytes
    assert {w.name: w.kernels for w in memory.weights}["8_bias"] == ("matmul_add",)
    # Buffers that are live at the same time do not overlap.
    for k, a in enumerate(memory.buffers):
        for b in memory.buffers[k + 1 :]:
            if a.first_launch <= b.last_launch and b.first_launch <= a.last_launch:
                assert a.offset + a.bytes <= b.offset or b.offset + b.bytes <= a.offset


def test_memory_of_dynamic_shapes_is_that_of_a_call() -> None:
    model = dlc.compile_model(rows(), target=SHORT, num_threads=1)
    planned, given = model.explore().program, model.explore(np.ones((100, 8), np.float32)).program
    for shown, n in ((planned, 4), (given, 100)):
        assert shown.sizes == {"n": n} and shown.memory.input_bytes == shown.memory.output_bytes == n * 32
        (buffer,) = shown.memory.buffers
        assert (buffer.type, buffer.bytes, buffer.offset) == ("float32[n, 8]", n * 32, 0)
        assert n * 32 <= shown.memory.arena_bytes < n * 32 + 64
    # The kernels are those of the dynamic-shape program.
    assert [u.steps[-1].listing.text for u in planned.units] == [u.steps[-1].listing.text for u in given.units]
    assert planned.measurements is None
    assert [given.memory.launches[s.launch] for s in given.measurements.spans] == [s.kernel for s in given.measurements.spans]


def test_timeline_of_a_run() -> None:
    measured = explored().measurements
    names = [k for k in explored().memory.launches]
    assert [names[s.launch] for s in measured.spans] == [s.kernel for s in measured.spans]
    assert all(a.start + a.seconds <= b.start + 1e-12 for a, b in pairwise(measured.spans))
    runs = {k.name: k.runs for k in explored().kernels}
    assert all(runs[k.name] == sum(s.kernel == k.name for s in measured.spans) for k in explored().kernels)


@pytest.mark.skipif(not all_devices(), reason="no OpenCL device")
def test_timeline_on_a_device() -> None:
    program = import_program(load(tiny("Exp").SerializeToString()), None, None, None)
    shown = collect(program, "opencl", inputs=[np.zeros(4, np.float32)])
    (kernel,), (span,) = shown.kernels, shown.measurements.spans
    assert (
        kernel.bytes == 32
        and 0 < kernel.limit_seconds < kernel.seconds
        and shown.measurements.flops > shown.measurements.memory > 0
    )
    assert span.kernel == kernel.name and span.thread == 0 and len(shown.measurements.row_labels) == 1
    assert shown.memory is not None and shown.memory.launches == (kernel.name,)


def test_texts_are_stored_once() -> None:
    data = to_plain_data([mnist()])
    assert len(set(data["texts"])) == len(data["texts"])
    step = data["pages"][0]["units"][1]["steps"][-1]["listing"]
    text = data["texts"][step["text"]]
    assert len(step["sets"]) == len(step["lines"]) == text.count("\n")
    names = {data["names"][n] for s in step["sets"] for n in data["sets"][s]}
    assert names <= {o for k in mnist().kernels for o in k.origins}
    json.dumps(data)


def test_json_summary() -> None:
    facts = json.loads(json.dumps(Page(mnist()).as_dict()))
    slowest = max(facts["kernels"], key=lambda k: k["seconds"])
    assert slowest["origins"] and [p["pass"] for p in slowest["changed_by"] if p["stage"] == "tiling"]
    ended = {run["kernel"]: run["fusion_stop"] for run in facts["runs"]}
    assert all(set(ended[k.name] or {"next_op", "reason"}) == {"next_op", "reason"} for k in mnist().kernels)
    assert facts["memory"]["arena_bytes"] == mnist().memory.arena_bytes


def test_page_is_self_contained() -> None:
    content = Page(mnist()).html
    assert (
        "default-src 'none'" in content
        and "src=" not in content
        and "http:" not in content.replace("http://www.w3.org/2000/svg", "")
    )
    assert len(content) < 1 << 20


def test_names_are_escaped() -> None:
    named = Exploration(**{**vars(mnist()), "name": "<script>alert(1)</script>"})
    assert "<script>alert" not in Page(named).html


def test_notebook_representation() -> None:
    shown = Page(mnist())._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and "<!doctype" not in shown


@pytest.mark.parametrize("seed", range(3))
def test_boxes_do_not_overlap(seed: int) -> None:
    random.seed(seed)
    boxes = [Box("kernel", str(k)) for k in range(40)]
    edges = [Edge(a, b, "") for a in range(40) for b in range(a + 1, 40) if random.random() < 0.05]
    graph = layout_graph(boxes, edges)
    for k, a in enumerate(graph.boxes):
        assert a.x >= 0 and a.x + a.width <= graph.width + 1e-6 and a.y + a.height <= graph.height + 1e-6
        for b in graph.boxes[k + 1 :]:
            assert a.x + a.width <= b.x or b.x + b.width <= a.x or a.y + a.height <= b.y or b.y + b.height <= a.y
    for edge in graph.edges:
        assert all(a[1] <= b[1] for a, b in pairwise(edge.points)) and len(edge.points) >= 2
        assert edge.points[0][1] == pytest.approx(graph.boxes[edge.source].y + graph.boxes[edge.source].height, abs=0.1)


VIEWED = """builtin.module {
  func.func @main(%x: tensor<4x6xf32>) -> tensor<2x12xf32> {
    %0 = dl.dispatch @relu(%x) : (tensor<4x6xf32>) -> tensor<4x6xf32> loc(fused["a"])
    %1 = dl.reshape %0 {shape = array<i64: 24>} : (tensor<4x6xf32>) -> tensor<24xf32> loc("a")
    %2 = dl.reshape %1 {shape = array<i64: 2, 12>} : (tensor<24xf32>) -> tensor<2x12xf32> loc("mine")
    func.return %2 : tensor<2x12xf32>
  }
  dl.kernel @relu(%x: tensor<4x6xf32>) -> (tensor<4x6xf32>) {
    %0 = dl.relu %x : (tensor<4x6xf32>) -> tensor<4x6xf32> loc("#0")
    dl.yield %0 : tensor<4x6xf32>
  }
}
"""


def test_only_views_of_the_user_are_shown() -> None:
    graph = build_graph(parse_module(make_context(), VIEWED), ["x"], ["y"], {})
    assert [(b.kind, b.name) for b in graph.boxes] == [("input", "x"), ("kernel", "relu"), ("view", "reshape"), ("output", "y")]
    assert [(e.source, e.target) for e in graph.edges] == [(0, 1), (1, 2), (2, 3)]


def test_from_python(tmp_path: Path) -> None:
    page = recurrence.explore(W, XS)
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == page.html and "recurrence" in page.html


def test_loaded_models_cannot_be_explored(tmp_path: Path) -> None:
    x = np.zeros(4, np.float32)
    model = dlc.compile_model(tiny("Relu"), target=SHORT, num_threads=1)
    assert all("<title>tiny · dlc</title>" in page.html for page in (model.explore(x), model.explore()))
    model.save(tmp_path / "m.dlc")
    loaded: Model = dlc.load(tmp_path / "m.dlc")
    with pytest.raises(dlc.UnsupportedError, match="a loaded model cannot be inspected"):
        loaded.explore(x)


def test_data_dependent_sizes_are_those_of_a_call() -> None:
    shown = page_of_counts().program
    assert [(u.kind, u.name) for u in shown.units[:3]] == [
        ("program", "program"),
        ("segment", "segment 1"),
        ("segment", "segment 2"),
    ]
    assert [s.producer for s in shown.units[0].steps[1:3]] == ["import", "segments"]
    assert shown.sizes == {"n": 6, "nonzero_0": 3} and shown.measurements is not None
    assert {b.type: b.bytes for b in shown.memory.buffers}["int64[1, nonzero_0 + 1]"] == 4 * 8
    boxes = shown.graph.boxes
    (size,) = [k for k, box in enumerate(boxes) if box.kind == "size"]
    other_program = [(boxes[e.source].name, boxes[e.target].name) for e in shown.graph.edges if size in (e.source, e.target)]
    assert other_program == [("cast_reduce_sum", "nonzero_0"), ("nonzero_0", "true_indices")]
    assert all(box.reason for box in boxes if box.kind == "kernel")
    # Without inputs: the sizes used for tile planning.
    planned = dlc.compile_model(chosen_rows(), target=SHORT).explore().program
    assert planned.sizes == {"n": 4, "nonzero_0": 4} and planned.measurements is None


def test_data_dependent_sizes_that_need_specialization() -> None:
    """The program continues only with three selected rows: the page shows the specialization of a call with three."""
    model = dlc.compile_model(three_rows(), target=SHORT, num_threads=1)
    shown = model.explore(ROWS).program
    assert shown.sizes == {"n": 6, "nonzero_0": 3} and shown.measurements is not None
    with pytest.raises(dlc.ShapeError, match="24 elements"):
        model.explore(ROWS[:2])


def test_python_ops_are_boxes() -> None:
    text = (
        '<ir_version: 9, opset_import: ["": 20]> g (string[n] x) => (string[n, k] p, int64[n] c) '
        '{ p, m = StringSplit<delimiter = " ">(x) c = Add(m, m) }'
    )
    imported = import_model(onnx.parser.parse_model(text), {})
    options = Options.of(num_threads=1)
    shown = collect(Program(imported.module, imported.weights), SHORT, options, inputs=None)
    boxes = [(box.kind, box.name) for box in shown.graph.boxes]
    assert ("host", "string_split") in boxes and ("kernel", "add") in boxes


def test_shape_inputs_are_taken_from_the_call() -> None:
    model = dlc.compile_model(sums(), target=SHORT, num_threads=1)
    x = np.ones((4, 8), np.float32)
    assert [model.explore(x, np.array([axis])).program.outputs for axis in (0, 1)] == [("y: float32[8]",), ("y: float32[4]",)]
    with pytest.raises(dlc.UnsupportedError, match="input 'axes'"):
        model.explore()


def test_programs_without_kernels_are_errors() -> None:
    model = dlc.compile_model(tiny("Relu"), target="reference")
    with pytest.raises(dlc.UnsupportedError, match="the target reference does not generate kernels"):
        model.explore(np.zeros(4, np.float32))
