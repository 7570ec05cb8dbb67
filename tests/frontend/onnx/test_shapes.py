"""Shape arithmetic is folded at import; symbolic sizes are polynomials, which input shapes replace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, helper
from onnx.reference import ReferenceEvaluator

import dlc
from dlc.errors import DlcError, ShapeError
from dlc.frontend.onnx import check_model, import_model
from tests.frontend.onnx.build import INT64, model, op_names, run


def node(op: str, inputs: list[str], output: str, **attributes: object) -> NodeProto:
    return helper.make_node(op, inputs, [output], **attributes)


FLATTEN = [
    # Reshape(x, Concat(Shape(x)[0:1] * Shape(x)[1:2], [-1])), as exporters write it.
    node("Shape", ["x"], "shape"),
    node("Gather", ["shape", "zero"], "n", axis=0),
    node("Gather", ["shape", "one"], "c", axis=0),
    node("Mul", ["n", "c"], "rows"),
    node("Unsqueeze", ["rows", "zeros"], "rows1"),
    node("Concat", ["rows1", "minus"], "wanted", axis=0),
    node("Reshape", ["x", "wanted"], "y"),
]
INDICES = {"zero": np.int64(0), "one": np.int64(1), "zeros": np.int64([0]), "minus": np.int64([-1])}


def test_shape_arithmetic_is_folded_completely() -> None:
    source = model(FLATTEN, {"x": ["n", 3, 4]}, ["y"], weights=INDICES)
    imported = import_model(source)
    assert op_names(imported) == ["dl.reshape", "func.return"]
    assert [str(s) for s in imported.outputs[0].shape] == ["3 * n", "4"]
    static = import_model(source, {"x": (2, 3, 4)})
    assert static.outputs[0].shape == (6, 4)
    assert len(static.weights) == 0


def test_comparisons_of_sizes_fold_where_they_are_decided() -> None:
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Equal", ["shape", "minus"], "open"),
        node("ConstantOfShape", ["two"], "ones", value=helper.make_tensor("v", INT64, [1], [1])),
        node("Where", ["open", "ones", "shape"], "wanted"),
        node("Expand", ["scalar", "wanted"], "y"),
    ]
    weights = {**INDICES, "two": np.int64([2]), "scalar": np.float32(7)}
    imported = import_model(model(nodes, {"x": ["n", 4]}, ["y"], weights=weights))
    assert [str(s) for s in imported.outputs[0].shape] == ["n", "4"]
    assert op_names(imported)[-2:] == ["dl.broadcast_to", "func.return"]


def test_undecided_sizes_are_reported_with_a_remedy() -> None:
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Equal", ["shape", "four"], "is_four"),
        node("Cast", ["is_four"], "as_int", to=INT64),
    ]
    nodes.append(node("Reshape", ["x", "as_int"], "y"))
    source = model(nodes, {"x": ["n"]}, ["y"], weights={"four": np.int64([4])})
    (problem,) = check_model(source)
    assert problem.kind == "value"
    assert "input shapes" in problem.message
    assert check_model(source, {"x": (1,)}) == []
    with pytest.raises(ShapeError, match=r"node 'y' \(Reshape\)"):
        import_model(source, {"x": (4,)})


def test_a_size_as_data() -> None:
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Cast", ["shape"], "real", to=1),
        node("Mul", ["real", "half"], "y"),
    ]
    imported = import_model(model(nodes, {"x": ["n", 4]}, ["y"], weights={"half": np.float32([0.5])}))
    assert "dl.size" in op_names(imported)
    static = import_model(model(nodes, {"x": [6, 4]}, ["y"], weights={"half": np.float32([0.5])}))
    np.testing.assert_array_equal(run(static, {"x": np.zeros((6, 4), np.float32)})["y"], [3, 2])


def test_floats_of_sizes_fold() -> None:
    # Upsampling as old PyTorch exports it: the sizes pass through floats.
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Slice", ["shape", "two", "four"], "spatial"),
        node("Cast", ["spatial"], "real", to=1),
        node("Mul", ["real", "factor"], "scaled"),
        node("Floor", ["scaled"], "floor"),
        node("Cast", ["floor"], "sizes", to=INT64),
        node("Slice", ["shape", "none", "two"], "outer"),
        node("Concat", ["outer", "sizes"], "wanted", axis=0),
        node(
            "Resize",
            ["x", "", "", "wanted"],
            "y",
            mode="nearest",
            coordinate_transformation_mode="asymmetric",
            nearest_mode="floor",
        ),
    ]
    weights = {"none": np.int64([0]), "two": np.int64([2]), "four": np.int64([4]), "factor": np.float32([2, 2])}
    imported = import_model(model(nodes, {"x": [1, 2, 3, 3]}, ["y"], weights=weights))
    x = np.arange(18, dtype=np.float32).reshape(1, 2, 3, 3)
    np.testing.assert_array_equal(run(imported, {"x": x})["y"], x.repeat(2, 2).repeat(2, 3))
    assert set(op_names(imported)) == {"dl.constant", "dl.gather", "func.return"}


def test_weights_in_constant_nodes_and_unused_ones() -> None:
    value = helper.make_tensor("v", 1, [100], np.arange(100, dtype=np.float32))
    nodes = [helper.make_node("Constant", [], ["w"], value=value), node("Add", ["x", "w"], "y")]
    imported = import_model(model(nodes, {"x": [100]}, ["y"], weights={"unused": np.ones(5, np.float32)}))
    assert list(imported.weights) == ["w"]


def test_initializers_listed_as_inputs() -> None:
    source = model([node("Add", ["x", "w"], "y")], {"x": [2], "w": [2]}, ["y"], weights={"w": np.float32([1, 2])})
    source.ir_version = 3
    assert [i.name for i in import_model(source).inputs] == ["x"]


def test_an_output_may_be_an_input_or_a_weight() -> None:
    source = model(
        [node("Identity", ["x"], "y"), node("Identity", ["w"], "z")], {"x": [2]}, ["y", "z"], weights={"w": np.arange(3.0)}
    )
    got = run(import_model(source), {"x": np.float32([1, 2])})
    np.testing.assert_array_equal(got["y"], [1, 2])
    np.testing.assert_array_equal(got["z"], [0, 1, 2])


def test_provenance() -> None:
    source = model([helper.make_node("Relu", ["x"], ["a"], name="layer1/relu"), node("Neg", ["a"], "y")], {"x": [2]}, ["y"])
    (main,) = import_model(source).module.ops
    first, second, _ = main.regions[0].block.ops
    assert str(first.location) == 'loc("layer1/relu")'
    assert str(second.location) == 'loc("y")'


def test_extra_outputs() -> None:
    source = model([node("Relu", ["x"], "a"), node("Neg", ["a"], "y")], {"x": [2]}, ["y"])
    got = run(import_model(source, extra_outputs=["a"]), {"x": np.float32([-1, 2])})
    np.testing.assert_array_equal(got["a"], [0, 2])


# Input shapes


def two_inputs() -> object:
    return model([node("Add", ["a", "b"], "y")], {"a": ["n", 4], "b": ["n", 1]}, ["y"])


def test_a_symbol_is_replaced_everywhere() -> None:
    imported = import_model(two_inputs(), {"a": (3, 4)})  # pyright: ignore[reportArgumentType]
    assert [i.shape for i in imported.inputs] == [(3, 4), (3, 1)]
    renamed = import_model(two_inputs(), {"a": ("batch", 4)})  # pyright: ignore[reportArgumentType]
    assert [str(i.shape[0]) for i in renamed.inputs] == ["batch", "batch"]


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ({"a": (3, 4), "b": (5, 1)}, ["'b'", "'n'", "5", "3"]),
        ({"a": (3, 5)}, ["'a'", "5", "4"]),
        ({"a": (3,)}, ["'a'"]),
        ({"a": (-3, 4)}, ["'a'"]),
        ({"c": (1,)}, ["'c'", "a, b"]),
    ],
)
def test_shapes_that_contradict_the_model(shapes: dict[str, tuple[int, ...]], words: list[str]) -> None:
    with pytest.raises(ShapeError) as caught:
        import_model(two_inputs(), shapes)  # pyright: ignore[reportArgumentType]
    assert all(word in str(caught.value) for word in words)


def test_sizes_computed_from_symbols() -> None:
    source = model([node("Concat", ["old", "new"], "y", axis=0)], {"old": ["past"], "new": ["past + 1"]}, ["y"])
    assert [str(s) for s in import_model(source).outputs[0].shape] == ["2 * past + 1"]
    assert import_model(source, {"old": (3,)}).outputs[0].shape == (7,)
    with pytest.raises(ShapeError, match="past"):
        import_model(source, {"old": (3,), "new": (5,)})


def test_unnamed_dimensions_are_distinct_symbols() -> None:
    source = model([node("Relu", ["x"], "y")], {"x": [None, "?", -1]}, ["y"])
    assert len({str(s) for s in import_model(source).inputs[0].shape}) == 3
    assert import_model(source, {"x": (1, 2, 3)}).inputs[0].shape == (1, 2, 3)


@pytest.mark.parametrize(
    ("dtype", "chain"),
    [
        (np.int8, [("Add", ["c", "one"])]),
        (np.bool_, [("Where", ["c", "one", "two"])]),
        (np.uint64, [("Sub", ["c", "large"]), ("Div", ["d0", "two"])]),
        (np.int32, [("Less", ["c", "large"]), ("Where", ["d0", "one", "two"])]),
    ],
)
def test_a_symbolic_size_wraps_in_the_dtype_it_is_cast_to(dtype: Any, chain: list[tuple[str, list[str]]]) -> None:
    numbers = np.dtype(np.int64) if dtype == np.bool_ else np.dtype(dtype)
    weights = {"one": numbers.type(1), "two": numbers.type(2), "large": numbers.type(100 if numbers.itemsize == 1 else 400)}
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Cast", ["s"], ["c"], to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype))),
        *(helper.make_node(op, operands, [f"d{k}"]) for k, (op, operands) in enumerate(chain)),
        helper.make_node("Identity", [f"d{len(chain) - 1}"], ["y"]),
    ]
    source = model(nodes, {"x": ["n"]}, ["y"], weights=weights, dtypes={"y": helper.np_dtype_to_tensor_dtype(numbers)})
    compiled = dlc.compile_model(source, target="reference")
    for n in (0, 7, 300):
        x = np.zeros(n, np.float32)
        (expected,) = ReferenceEvaluator(source).run(None, {"x": x})
        np.testing.assert_array_equal(compiled(x)["y"], expected)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_a_slice_from_minus_a_symbolic_size(target: str) -> None:
    """The last n elements, as T5 slices its position biases; all of them for n = 0 and for n beyond the axis."""
    nodes = [node("Shape", ["q"], "n"), node("Neg", ["n"], "start"), node("Slice", ["x", "start", "end", "axis"], "y")]
    weights = {"end": np.int64([2**63 - 1]), "axis": np.int64([1])}
    source = model(nodes, {"q": ["n"], "x": [1, "k"]}, ["y"], weights=weights)
    assert [str(size) for size in import_model(source).outputs[0].shape] == ["1", "n"]
    compiled = dlc.compile_model(source, target=target)
    for n, k in ((1, 5), (3, 5), (5, 5), (0, 5), (7, 5)):
        inputs = {"q": np.zeros(n, np.float32), "x": np.arange(k, dtype=np.float32)[None]}
        np.testing.assert_array_equal(compiled(**inputs)["y"], ReferenceEvaluator(source).run(None, inputs)[0])


@pytest.mark.parametrize("stop", [-3, -4, -9])
def test_a_backward_slice_clamps_its_start_to_the_first_element(stop: int) -> None:
    """The start of a backward slice is at least 0, where NumPy's is at least -1."""
    weights = {"start": np.int64([-3]), "stop": np.int64([stop]), "axis": np.int64([0]), "step": np.int64([-1])}
    source = model([node("Slice", ["x", *weights], "y")], {"x": ["n"]}, ["y"], weights=weights)
    compiled = dlc.compile_model(source, target="reference")
    for n in (5, 3, 2, 1, 0):
        x = np.arange(n, dtype=np.float32)
        first, last = max(n - 3, 0), max(n + stop, -1)
        np.testing.assert_array_equal(compiled(x)["y"], x[np.arange(first, last, -1)] if n else x, f"n = {n}")


@pytest.mark.parametrize("allowzero", [0, 1])
@pytest.mark.parametrize("shape", [[0, -1], [-1, 0], [0, 0, -1], [-1, 3], [0, 3]], ids=str)
def test_an_inferred_size_next_to_a_size_of_zero_is_an_error(shape: list[int], allowzero: int) -> None:
    """The sizes of 0 are copied or, with `allowzero`, part of the shape."""
    source = model(
        [node("Reshape", ["x", "wanted"], "y", allowzero=allowzero)],
        {"x": ["n", 3]},
        ["y"],
        weights={"wanted": np.int64(shape)},
    )
    reference = ReferenceEvaluator(source)
    for size in (2, 0):
        x = np.arange(3 * size, dtype=np.float32).reshape(size, 3)
        try:
            expected = reference.run(None, {"x": x})[0]
        except ValueError:
            expected = None
        for shapes in ({}, {"x": x.shape}):
            if expected is not None:
                results = dlc.compile_model(source, target="reference", input_shapes=shapes)({"x": x})
                np.testing.assert_array_equal(results["y"], expected)
            else:
                with pytest.raises(
                    DlcError, match=r"elements do not fill the shape|has .* elements|requires n >= 1; with n = 0|copies a size"
                ):
                    dlc.compile_model(source, target="reference", input_shapes=shapes)({"x": x})
