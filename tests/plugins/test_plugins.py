"""Plug-ins that a script registers: each kind of table, failures, and cache keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper

import dlc
from dlc import extend
from dlc.backends.cpu.backend import Cpu
from dlc.caching.keys import KEY_FIELDS
from dlc.caching.model_cache import reason_not_cached
from dlc.cli import main
from dlc.dialects import dl
from dlc.errors import DeviceError, UnsupportedError
from dlc.extend.language_models import GgufType, QuantizedMatrix
from dlc.extend.ops import (
    Array,
    Composite,
    DlBuilder,
    SSAValue,
    Tensor,
    TensorType,
    apply,
    element_type_of,
    irdl_op_definition,
    operand_def,
    result_def,
    shape_of,
    tensor_type,
)
from dlc.extend.passes import Context, ModuleOp, ModulePass
from dlc.options import Options
from dlc.pipelines import PASSES, parse, stages_of
from dlc.plugins import registry
from dlc.target import CPU_LEVELS, REFERENCE
from tests.language_models.models import LLAMA, gguf_bytes, llama_tensors
from tests.targets import NATIVE

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


@irdl_op_definition
class CenterOp(Composite):
    """`x` minus the mean of its last axis."""

    name = "test.center"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def infer(self) -> Sequence[Tensor]:
        return [tensor_type(shape_of(self.x), element_type_of(self.x))]

    def reference(self, *operands: Array) -> Array:
        (x,) = operands
        return (x - x.mean(-1, keepdims=True)).astype(x.dtype)

    def decompose(self, *operands: SSAValue) -> Sequence[SSAValue]:
        build, (x,) = DlBuilder(self), operands
        return [build(dl.SubOp, x, build(dl.ReduceMeanOp, x, axes=(-1,), keepdims=True))]


def center(x: Any) -> Any:
    return apply(CenterOp, x)


@dataclass(frozen=True)
class RecordingPass(ModulePass):
    """`record-modules`: counts its runs."""

    name = "record-modules"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        RUNS.append(self.name)


RUNS = list[str]()
Register = Callable[..., extend.Plugin]


@pytest.fixture
def register() -> Iterator[Register]:
    names = list[str]()

    def add(name: str = "test", **tables: Any) -> extend.Plugin:
        plugin = extend.Plugin(name=name, **tables)
        dlc.register(plugin)
        names.append(name)
        return plugin

    yield add
    for name in dict.fromkeys(names):
        extend.unregister(name)


@pytest.mark.parametrize("target", ["reference", *NATIVE])
def test_an_op_of_a_plugin_is_compiled_differentiated_and_batched(target: str, register: Register) -> None:
    register(ops=[CenterOp])
    expected = X - X.mean(-1, keepdims=True)
    np.testing.assert_allclose(np.asarray(dlc.jit(lambda x: center(x) * 2, target=target)(X)), expected * 2, atol=1e-6)
    np.testing.assert_allclose(np.asarray(dlc.jit(dlc.vmap(center), target=target)(X)), expected, atol=1e-6)
    gradient = dlc.jit(dlc.grad(lambda x: (center(x) ** 2).sum()), target=target)(X)
    np.testing.assert_allclose(np.asarray(gradient), 2 * expected, atol=1e-6)


def test_a_dumped_module_with_an_op_of_a_plugin_is_parsed(register: Register, tmp_path: Path) -> None:
    register(ops=[CenterOp])
    text = "builtin.module { func.func @main(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {\n  %y = test.center %x : (tensor<2x3xf32>) -> tensor<2x3xf32>\n  func.return %y : tensor<2x3xf32>\n} }"
    (tmp_path / "m.mlir").write_text(text)
    (result,) = dlc.compile_model(tmp_path / "m.mlir")(X).values()
    np.testing.assert_allclose(result, X - X.mean(-1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize(
    ("anchor", "stage", "index"),
    [
        ({"after": "fold-scales"}, "dl", lambda names: names.index("fold-scales") + 1),
        ({"before": "form-kernels"}, "fusion", lambda names: names.index("form-kernels")),
        ({"before": "simplify"}, "dl", lambda names: names.index("simplify")),
        ({"after": "simplify"}, "dl", lambda names: len(names) - names[::-1].index("simplify")),
        ({"stage": "loops"}, "loops", len),
    ],
    ids=["after", "before", "before the first", "after the last", "stage"],
)
def test_passes_are_placed_at_anchors(anchor: dict[str, str], stage: str, index: Any, register: Register) -> None:
    before = stages_of(REFERENCE)
    register(passes=[extend.PassPlacement(RecordingPass, **anchor)])
    for old, new in zip(before, stages_of(REFERENCE), strict=True):
        names = [p.name for p in old.passes]
        if old.name == stage:
            names.insert(index(names), "record-modules")
        assert [p.name for p in new.passes] == names
    assert PASSES["record-modules"] == (stage, RecordingPass)
    assert [p.name for p in parse("cse,record-modules")] == ["cse", "record-modules"]
    RUNS.clear()
    dlc.jit(lambda x: x + 1, target="cpu").lower(X).compile()
    extend.unregister("test")
    assert "record-modules" not in PASSES
    register()


def test_an_anchor_that_a_pipeline_lacks_keeps_its_position(register: Register) -> None:
    register(passes=[extend.PassPlacement(RecordingPass, after="winograd")])
    strict = [p.name for p in stages_of(REFERENCE, numerics="strict")[0].passes]
    assert "winograd" not in strict
    assert strict.index("record-modules") + 1 == strict.index("pack-dot-operands")
    RUNS.clear()
    dlc.jit(lambda x: x * 2 + 1)(X)
    assert RUNS


def test_invalid_placements_name_the_plugin(register: Register) -> None:
    with pytest.raises(UnsupportedError, match="expected one of after, before and stage"):
        extend.PassPlacement(RecordingPass, after="cse", stage="dl")
    register(passes=[extend.PassPlacement(RecordingPass, after="fold-scale")])
    with pytest.warns(UserWarning, match="plug-in test .* there is no pass 'fold-scale'.*did you mean fold-scales"):
        assert "record-modules" not in PASSES
    assert dlc.jit(lambda x: x + 1)(X).shape == X.shape


def test_onnx_converters(register: Register) -> None:
    onnx_api = pytest.importorskip("dlc.extend.onnx")
    table = onnx_api.ConverterTable()

    @table("Center")
    def convert(node: Any) -> Any:
        return node.emit(CenterOp, node[0])

    register(ops=[CenterOp], onnx_converters={"com.test": table})
    node = helper.make_node("Center", ["x"], ["y"], domain="com.test")
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy"]
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.test", 1)]
    model = helper.make_model(helper.make_graph([node], "g", info[:1], info[1:]), opset_imports=opsets)
    (result,) = dlc.compile_model(model.SerializeToString())(X).values()
    np.testing.assert_allclose(result, X - X.mean(-1, keepdims=True), atol=1e-6)
    extend.unregister("test")
    with pytest.raises(UnsupportedError, match=r"domain 'com\.test' is not supported"):
        dlc.compile_model(model.SerializeToString())
    register()


def test_stablehlo_converters(register: Register, tmp_path: Path) -> None:
    text = (
        "module { func.func @main(%arg0: tensor<2x3xf32>) -> tensor<2x3xf32> {\n"
        "  %0 = stablehlo.custom_call @center(%arg0) : (tensor<2x3xf32>) -> tensor<2x3xf32>\n"
        "  return %0 : tensor<2x3xf32>\n} }"
    )
    register(ops=[CenterOp], stablehlo_converters={"stablehlo.custom_call @center": lambda node: node.build(CenterOp, node[0])})
    (tmp_path / "m.mlir").write_text(text)
    (result,) = dlc.compile_model(tmp_path / "m.mlir")(X).values()
    np.testing.assert_allclose(result, X - X.mean(-1, keepdims=True), atol=1e-6)


def test_tflite_and_pytorch_tables(register: Register) -> None:
    from dlc.extend import pytorch, tflite
    from dlc.frontend.tflite.reader import OPERATORS
    from dlc.pytorch.rules import RULES

    operators, rules = tflite.TfliteConverterTable(), pytorch.RuleTable()

    @operators("CUSTOM center")
    def convert(node: Any) -> Any:
        return node.emit(CenterOp, node[0])

    rules("test::center")(center)
    register(ops=[CenterOp], tflite_converters=operators.entries, pytorch_rules=rules.rules)
    assert OPERATORS["CUSTOM center"].convert is convert and RULES["test::center"] is center


def test_targets(register: Register) -> None:
    backend = Cpu(replace(CPU_LEVELS["cpu:generic"], name="test_cpu"))
    register(targets={"test_cpu": backend})
    np.testing.assert_array_equal(dlc.jit(lambda x: x + 1, target="test_cpu")(X), X + 1)
    assert "test_cpu" in CliRunner().invoke(main, ["targets"]).output
    extend.unregister("test")
    with pytest.raises(DeviceError, match="unknown target 'test_cpu'; expected cpu, cpu:generic"):
        dlc.jit(lambda x: x + 1, target="test_cpu")(X)
    register()


def test_block_formats(register: Register, tmp_path: Path) -> None:
    """A language model has weights in a format of 8 bits with one f32 scale per 32 weights."""

    def decode(blocks: np.ndarray) -> QuantizedMatrix:
        rows = len(blocks)
        scale = np.ascontiguousarray(blocks[..., :4]).view(np.float32).reshape(rows, -1)
        return QuantizedMatrix(blocks[..., 4:].view(np.int8).reshape(rows, -1), scale, None)

    def recoded(shape: Any, kind: int, data: bytes) -> tuple[Any, int, bytes]:
        if kind != 8:
            return shape, kind, data
        blocks = np.frombuffer(data, np.uint8).reshape(-1, 34)
        scale = np.ascontiguousarray(blocks[:, :2]).view(np.float16).astype(np.float32).view(np.uint8)
        return shape, 200, np.concatenate([scale, blocks[:, 2:]], 1).tobytes()

    tensors = llama_tensors(num_layers=1)
    metadata = LLAMA | {"llama.block_count": 1}
    original, path = tmp_path / "original.gguf", tmp_path / "recoded.gguf"
    original.write_bytes(gguf_bytes(metadata, tensors))
    path.write_bytes(gguf_bytes(metadata, {name: recoded(*tensor) for name, tensor in tensors.items()}))
    with pytest.raises(dlc.UnsupportedError, match="has type 200; supported: F32"):
        dlc.LanguageModel.load(path)
    register(gguf_types={200: GgufType("Q8_F32", 32, 36, decode=decode)})
    models = [dlc.LanguageModel.load(file, num_threads=1) for file in (path, original)]
    tokens, expected = (dlc.generate(model, "ab cd", max_tokens=8).tokens for model in models)
    assert tokens == expected


def test_calibration_methods(register: Register) -> None:
    from dlc.quantization.ranges import METHODS
    from dlc.quantization.settings import QuantizationSettings

    register(calibration_methods={"unit": lambda histogram, settings: (-1.0, 1.0)})
    assert QuantizationSettings(method="unit").method in METHODS


def test_conflicts_and_missing_modules_leave_the_rest_working(register: Register) -> None:
    register(
        "first",
        ops=[CenterOp],
        partials={dl.ExpOp: (lambda r, x: r,)},
        pytorch_rules="missing_module:RULES",
        no_derivative={CenterOp: "test"},
    )
    with pytest.warns(UserWarning, match=r"plug-in first .*partials: dl.exp exist already; its partials are left out"):
        np.testing.assert_allclose(dlc.grad(lambda x: dlc.numpy.exp(x).sum())(X), np.exp(X), rtol=1e-6)
    rows = CliRunner().invoke(main, ["plugins", "--json"]).output
    assert "No module named 'missing_module'" in rows and "dl.exp exist already" in rows
    assert registry.has_failures()
    table = CliRunner().invoke(main, ["plugins"], env={"COLUMNS": "400"}).output
    assert "ops, no derivative" in table
    with pytest.raises(UnsupportedError, match=r"expected a dlc\.extend\.Plugin, got a str"):
        extend.register("name")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="no plug-in 'unknown'"):
        extend.unregister("unknown")


def test_invalid_ops_and_targets_leave_the_rest_working(register: Register) -> None:
    for ops, message in (
        ([dl.AddOp], r"plug-in test .*ops: dl\.add exist already; its ops are left out"),
        (["add"], r"ops: 'add' is not an op class"),
    ):
        register(ops=ops)
        with pytest.warns(UserWarning, match=message):
            np.testing.assert_array_equal(dlc.jit(lambda x: x + 1)(X), X + 1)
    register(targets={"test": None})
    with (
        pytest.warns(UserWarning, match=r"targets: 'test' is None; expected a Backend"),
        pytest.raises(dlc.DlcError, match="unknown target 'test'"),
    ):
        dlc.jit(lambda x: x + 1, target="test")(X)


def test_cache_keys_contain_the_version_and_the_sources(register: Register, tmp_path: Path) -> None:
    assert "plugins" in KEY_FIELDS
    without = registry.key_text()
    keys = [without]
    for version, body in (("1", ""), ("2", ""), ("2", "# changed")):
        source = tmp_path / "script.py"
        source.write_text(f"from dlc import extend\nplugin = extend.Plugin(name='test', version={version!r})\n{body}")
        namespace: dict[str, Any] = {"__name__": "script"}
        exec(compile(source.read_text(), str(source), "exec"), namespace)
        dlc.register(namespace["plugin"])
        keys.append(registry.key_text())
    assert len(set(keys)) == 4 and "test 2 sources" in keys[-1]
    extend.unregister("test")
    assert registry.key_text() == without and registry.plugin_without_sources() is None
    exec(compile("from dlc import extend\nplugin = extend.Plugin(name='cell')", "<cell 1>", "exec"), namespace)
    dlc.register(namespace["plugin"])
    assert registry.plugin_without_sources() == "cell"
    assert (
        reason_not_cached(CPU_LEVELS["cpu:avx2"], Options(cache=True, verify=False))
        == "the sources of plug-in cell are not in a file"
    )
    extend.unregister("cell")


def test_the_api_is_listed(register: Register) -> None:
    from dlc.extend import language_models, onnx, ops, passes, pytorch, quantization, rules, stablehlo, targets, tflite

    page = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()
    for module in (ops, passes, rules, onnx, tflite, stablehlo, pytorch, quantization, language_models, targets):
        name = module.__name__.removeprefix("dlc.")
        assert module.__doc__ and f"`{name}`" in page
        assert all(hasattr(module, n) for n in module.__all__)
