"""Functions and function bodies are inlined; specified input values become constants."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import FunctionProto, ModelProto, helper, numpy_helper

from dlc.errors import DTypeError, ModelError, ShapeError
from dlc.frontend.onnx import check_model, import_model
from tests.frontend.onnx.build import INT64, model, op_names, run

DOMAIN = "com.example"


def function(name: str, body: list[object], inputs: list[str], output: str, **options: object) -> FunctionProto:
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_function(DOMAIN, name, inputs, [output], body, opsets, **options)  # pyright: ignore[reportArgumentType]


def calling(functions: list[FunctionProto], **attributes: object) -> ModelProto:
    node = helper.make_node(functions[0].name, ["x"], ["y"], domain=DOMAIN, name="call", **attributes)
    source = model([node], {"x": [3]}, ["y"])
    source.functions.extend(functions)
    source.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return source


def with_reference(op: str, inputs: list[str], output: str, attribute: str, formal: str) -> object:
    node = helper.make_node(op, inputs, [output])
    reference = node.attribute.add()
    reference.name, reference.ref_attr_name, reference.type = attribute, formal, 1  # a float
    return node


def test_a_function_of_the_model() -> None:
    # Names of the body are local: its `x` is not that of the model.
    body = [with_reference("LeakyRelu", ["a"], "x", "alpha", "slope"), helper.make_node("Add", ["x", "a"], ["b"])]
    imported = import_model(calling([function("Bent", body, ["a"], "b", attributes=["slope"])], slope=0.5))
    assert op_names(imported) == ["dl.leaky_relu", "dl.add", "func.return"]
    np.testing.assert_array_equal(run(imported, {"x": np.float32([-2, 0, 3])})["y"], np.float32([-3, 0, 6]))


def test_actual_attributes_and_inputs_apply_inside_branches() -> None:
    graphs = [
        helper.make_graph([node], name, [], [helper.make_empty_tensor_value_info("r")])
        for name, node in (
            ("then", with_reference("LeakyRelu", ["a"], "r", "alpha", "slope")),
            ("else", helper.make_node("Clip", ["a", "least", "most"], ["r"])),
        )
    ]
    branches = dict(zip(("then_branch", "else_branch"), graphs, strict=True))
    for least in (True, False):
        picks = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.bool_(least)))
        body = [picks, helper.make_node("If", ["c"], ["q"], **branches), helper.make_node("Clip", ["q", "least"], ["b"])]
        source = calling([function("F", body, ["a", "most", "least"], "b", attributes=["slope"])], slope=0.5)
        source.graph.node[0].input.append("top")
        source.graph.initializer.append(numpy_helper.from_array(np.float32(1), "top"))
        got = run(import_model(source), {"x": np.float32([-2, 0, 3])})["y"]
        np.testing.assert_array_equal(got, np.float32([-1, 0, 3] if least else [-2, 0, 1]))


def test_overloaded_functions() -> None:
    functions = [function("F", [helper.make_node(op, ["a"], ["b"])], ["a"], "b") for op in ("Neg", "Abs")]
    functions[1].overload = "other"
    source = calling(functions)
    source.graph.node.append(helper.make_node("F", ["y"], ["z"], domain=DOMAIN, overload="other"))
    source.graph.output[0].name = "z"
    assert op_names(import_model(source)) == ["dl.neg", "dl.abs", "func.return"]


def test_functions_call_functions_but_not_themselves() -> None:
    inner = function("Inner", [helper.make_node("Neg", ["a"], ["b"])], ["a"], "b")
    outer = function("Outer", [helper.make_node("Inner", ["a"], ["b"], domain=DOMAIN)], ["a"], "b")
    assert op_names(import_model(calling([outer, inner]))) == ["dl.neg", "func.return"]
    endless = function("Outer", [helper.make_node("Outer", ["a"], ["b"], domain=DOMAIN)], ["a"], "b")
    with pytest.raises(ModelError, match=r"'b' \(Outer\): the function Outer calls itself"):
        import_model(calling([endless]))


def test_exponential_function_inlining_is_refused() -> None:
    inner = function("F0", [helper.make_node("Neg", ["a"], ["b"])], ["a"], "b")
    twice = [
        function(f"F{k}", [helper.make_node(f"F{k - 1}", [x], [y], domain=DOMAIN) for x, y in ("ac", "cb")], ["a"], "b")
        for k in range(1, 31)
    ]
    with pytest.raises(ModelError, match=r"'call' \(F30\): the function F30 expands to 3221225470 nodes, more than 300000"):
        import_model(calling([*reversed(twice), inner]))


def test_a_problem_in_a_function_names_the_call() -> None:
    (problem,) = check_model(calling([function("Odd", [helper.make_node("Frobnicate", ["a"], ["b"])], ["a"], "b")]))
    assert str(problem) == "node 'call' (Odd) > node 'b' (Frobnicate): operator: not supported"


def test_a_standard_function_body() -> None:
    source = model([helper.make_node("Swish", ["x"], ["y"], alpha=2.0)], {"x": [3]}, ["y"], opset=24)
    x = np.float32([-1, 0, 2])
    np.testing.assert_allclose(run(import_model(source), {"x": x})["y"], x / (1 + np.exp(-2 * x)), 1e-6)


def test_a_malformed_call_of_a_standard_function() -> None:
    source = model([helper.make_node("NegativeLogLikelihoodLoss", ["x"], ["y"], name="loss")], {"x": [3, 2]}, ["y"], opset=22)
    with pytest.raises(ModelError, match=r"node 'loss' \(NegativeLogLikelihoodLoss\): .*input size 1"):
        import_model(source)


def test_values_of_inputs() -> None:
    source = model([helper.make_node("ReduceSum", ["x", "axes"], ["y"])], {"x": [2, 3], "axes": ["n"]}, ["y"],
                   dtypes={"axes": INT64})  # fmt: skip
    imported = import_model(source, input_values={"axes": np.array([1])})
    assert [i.name for i in imported.inputs] == ["x"]
    assert imported.outputs[0].shape == (2, 1)
    with pytest.raises(DTypeError, match="input 'axes': expected dtype int64, got a value of dtype float32"):
        import_model(source, input_values={"axes": np.float32([1])})
    with pytest.raises(ShapeError, match="no input 'axis'"):
        import_model(source, input_values={"axis": np.array([1])})
