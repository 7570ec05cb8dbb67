"""Models that are imported again for the sizes of a call: the program serves all sizes whose comparisons have equal outcomes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

import dlc
from dlc.errors import ModelError
from dlc.runtime.models.specialized_model import SpecializedModel

HEADER = '<ir_version: 8, opset_import: ["" : 18]> g '
# Graphs of `x` with N rows, and the domains of the programs for sizes 0 to 12 in random order.
GRAPHS = {
    "clamped": ("s = Slice(x, one, five)", {"N in 5..", "N in 1..4", "N = 0"}),
    "clamped_from_the_end": ("s = Slice(x, minus_five, minus_one)", {"N in 5..", "N in 1..4", "N = 0"}),
    "computed": ("n = Shape<end=1>(x) b = Sub(n, five) s = Slice(x, b, n)", {"N in 5..", "N in 3..4", "N in 0..2"}),
    "empty": ("s = Slice(x, five, minus_one)", {"N in 6..", "N in 1..4", "N = 5", "N = 0"}),
    "ceil_mode": ("t = Transpose(x) u = Unsqueeze(t, zero) s = MaxPool<kernel_shape=[2], strides=[2], ceil_mode=1>(u)", 2),
    "same": ("t = Transpose(x) u = Unsqueeze(t, zero) s = MaxPool<kernel_shape=[3], strides=[2], auto_pad=\"SAME_UPPER\">(u)", 2),
}  # fmt: skip
CONSTANTS = "int64[1] zero={0}, int64[1] one={1}, int64[1] five={5}, int64[1] minus_one={-1}, int64[1] minus_five={-5}"


@pytest.mark.parametrize("name", GRAPHS)
def test_specializations_serve_all_sizes_with_equal_comparisons(name: str, tmp_path: Path) -> None:
    nodes, domains = GRAPHS[name]
    proto = onnx.parser.parse_model(f"{HEADER} (float[N, 2] x) => (y) <{CONSTANTS}> {{ {nodes} y = Relu(s) }}")
    onnx.save(proto, tmp_path / "m.onnx")
    model = dlc.compile_model(tmp_path / "m.onnx", target="reference", cache=False)
    # Specializations do not read the file.
    (tmp_path / "m.onnx").unlink()
    for n in (7, 3, 2, 9, 5, 4, 12, 6, 10, 1, 0) if isinstance(domains, set) else (7, 3, 2, 9, 5, 4, 12):
        x = np.arange(2 * n, dtype=np.float32).reshape(n, 2) - 3
        (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
        np.testing.assert_array_equal(model(x)["y"], expected)
    assert isinstance(model.artifact, SpecializedModel)
    found = [str(entry.domain) for entry in model.artifact.specializations.entries]
    assert len(found) == domains if isinstance(domains, int) else set(found) == domains


def test_sizes_that_the_model_refuses_are_errors() -> None:
    proto = onnx.parser.parse_model(
        f"{HEADER} (float[N, 2] x) => (y) <{CONSTANTS}, int64[2] shape={{3, -1}}> {{ s = Slice(x, one, five) y = Reshape(s, shape) }}"
    )
    model = dlc.compile_model(proto, target="reference", cache=False)
    assert model(np.ones((4, 2), np.float32))["y"].shape == (3, 2)
    with pytest.raises(ModelError, match=r"Reshape.*4 elements do not fill"):
        model(np.ones((3, 2), np.float32))


def test_a_symbolic_size_selects_an_interpretation() -> None:
    """The last axis of a signal has size 1 if it is real, 2 if it is complex."""
    proto = onnx.parser.parse_model(f"{HEADER} (float[1, N, M] x) => (y) {{ y = DFT<axis=1>(x) }}".replace(": 18", ": 17"))
    model = dlc.compile_model(proto, target="reference", cache=False)
    for n, components in ((4, 2), (6, 2), (4, 1)):
        x = np.arange(n * components, dtype=np.float32).reshape(1, n, components)
        (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
        np.testing.assert_allclose(model(x)["y"], expected, atol=1e-4)
    with pytest.raises(ModelError, match=r"expected .* \(complex\)"):
        model(np.ones((1, 4, 3), np.float32))


def test_a_size_of_1_that_broadcasts_does_not_keep_shapes_of_later_ops() -> None:
    """For K = 4, the product has K rows, not K % 3 as for the sizes of which the symbolic types hold."""
    source = (
        '<ir_version: 8, opset_import: ["" : 18]> g (float[K,2] x) => (float[R,1] y) '
        "<int64[1] three = {3}, int64[1] one = {1}, int64[1] two = {2}> { k = Shape <start = 0, end = 1> (x) r = Mod (k, three) "
        "s = Concat <axis = 0> (r, one) c = ConstantOfShape (s) z = Add (x, c) y = Slice (z, one, two, one) }"
    )
    model = dlc.compile_model(onnx.parser.parse_model(source), target="reference", cache=False)
    for k in (2, 4, 1, 7):
        x = np.arange(2 * k, dtype=np.float32).reshape(k, 2)
        np.testing.assert_array_equal(model(x)["y"], x[:, 1:])


# Graphs of data-dependent sizes, of which only some have the types for symbolic sizes, with inputs of different sizes.
DATA_DEPENDENT: dict[str, tuple[str, list[NDArray[np.float32]]]] = {
    "copied": (
        "p = NonZero(x) f = Cast<to = 1>(p) n = Shape<start = 1>(p) s = Concat<axis = 0>(n, minus_one, two) y = Reshape(f, s)",
        [np.ones((3, 4), np.float32), np.ones((16, 0), np.float32), np.zeros((3, 4), np.float32)],
    ),
    "broadcast": (
        "flat = Reshape(x, minus_one) u = Unique(x) m = Greater(flat, zero) c = Compress(flat, m) a = Add(u, c) "
        "n = Shape(a) r = ConstantOfShape(n) y = Concat<axis = 0>(a, r)",
        [np.float32(x) for x in ([[1, 2, 3]], [[1, 1, 1]], [[2]], [[-1, -1]], [[1], [1]])],
    ),
    "counted": (
        "m = Greater(x, zero) k = Cast<to = 7>(m) t = ReduceSum<keepdims = 0>(k) n = Reshape(t, minus_one) flat = Reshape(x, minus_one) "
        "some = Slice(flat, start, n) y = Add(some, tens)",
        [np.float32(x) for x in ([[1, -1, -1, -1]], [[1, 2, 3, -1]], [[5, -1, -1, -1]])],
    ),
    "expanded": (
        "u = Unique(x) n = Shape(x) e = Expand(u, n) y = Relu(e)",
        [np.arange(12, dtype=np.float32).reshape(shape) % 6 for shape in ((2, 6), (12, 1))],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DATA_DEPENDENT)
@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_data_dependent_sizes_of_other_types(name: str, target: str) -> None:
    nodes, inputs = DATA_DEPENDENT[name]
    constants = "int64[1] minus_one = {-1}, int64[1] two = {2}, int64[1] start = {0}, float zero = {0.0}, float[3] tens = {10.0, 20.0, 30.0}"
    proto = onnx.parser.parse_model(f"{HEADER} (float[N, M] x) => (y) <{constants}> {{ {nodes} }}")
    model = dlc.compile_model(proto, target=target, cache=False, num_threads=1)
    for x in inputs:
        (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
        np.testing.assert_array_equal(model(x)["y"], expected)
        static = dlc.compile_model(proto, target=target, input_shapes={"x": x.shape}, cache=False, num_threads=1)
        np.testing.assert_array_equal(static(x)["y"], expected)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_a_composite_op_whose_sizes_a_guard_makes_equal(target: str) -> None:
    """The rows have 2 · N · M elements by their type, and 48 by the scales."""
    proto = onnx.parser.parse_model(
        f"{HEADER} (float[N, M] x) => (uint8[R, 48] y) <float[48] scales = {{{', '.join(['0.5'] * 48)}}}, int64[2] one_row = {{1, -1}}> "
        "{ row = Reshape(x, one_row) rows = Concat<axis = 1>(row, row) y = QuantizeLinear<axis = 1>(rows, scales) }"
    )
    model = dlc.compile_model(proto, target=target, cache=False)
    for shape in ((4, 6), (24, 1), (3, 8)):
        x = np.arange(24, dtype=np.float32).reshape(shape)
        (expected,) = ReferenceEvaluator(proto).run(None, {"x": x})
        np.testing.assert_array_equal(model(x)["y"], expected)
