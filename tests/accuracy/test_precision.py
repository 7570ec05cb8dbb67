"""The option `precision`: half-precision contractions with weights, accumulated in f32, on every target."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import helper, numpy_helper

import dlc
import dlc.numpy as dnp
from dlc.backends.cpu.backend import Cpu
from dlc.backends.cpu.llvm import assembly
from dlc.caching.keys import program_key
from dlc.cli import main
from dlc.compiler import Program, compile
from dlc.dialects import dl
from dlc.dialects.dl.contractions.convolution import convolve
from dlc.emission.llvm import dot_products
from dlc.emission.llvm.kernel import emit_kernel
from dlc.errors import UnsupportedError
from dlc.ir import Context, SSAValue
from dlc.options import Options
from dlc.passes.base import kernels_of
from dlc.passes.dl.low_precision.downcast_contractions import DowncastContractionsPass
from dlc.pipelines import stages_of
from dlc.target import CPU_LEVELS, resolve
from dlc.weights import WeightStore
from tests.passes.programs import Writer, program, randoms
from tests.targets import NATIVE

TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}
W, TAPS, GROUPED = randoms((45, 40), (3, 3, 3, 8), (3, 3, 2, 8), seed=3)
INSTRUCTED = CPU_LEVELS["cpu:avx512_bf16"]


def rounded(x: np.ndarray, precision: str) -> np.ndarray:
    return x.astype(TYPES[precision]).astype(np.float32)


def net(b: Writer, image: SSAValue, frame: SSAValue, rows: SSAValue) -> list[SSAValue]:
    """A padded image of three channels, a grouped convolution, and rows of odd length."""
    x = b(dl.PadOp, image, b.scalar(0.0, like=image), low=(0, 1, 1, 0), high=(0, 1, 1, 0), pad_mode="constant")
    x = b(dl.ReluOp, b(dl.ConvOp, x, b.weight(TAPS), strides=(2, 2), dilations=(1, 1), groups=1))
    y = b(dl.ConvOp, b(dl.ReluOp, frame), b.weight(GROUPED), strides=(1, 1), dilations=(1, 1), groups=4)
    return [x, y, b(dl.MatmulOp, rows, b.weight(W))]


def emulated(precision: str, *inputs: np.ndarray) -> list[np.ndarray]:
    image, frame, rows, taps, grouped, w = (rounded(v, precision) for v in (*inputs, TAPS, GROUPED, W))
    with np.errstate(invalid="ignore"):
        x = convolve(np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0))), taps, (2, 2), (1, 1), 1)
    return [np.maximum(x, 0), convolve(np.maximum(frame, 0), grouped, (1, 1), (1, 1), 4), rows @ w]


def assert_close(got: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    """Equal but for the order of sums of f32."""
    for result, numbers in zip(got, expected, strict=True):
        np.testing.assert_allclose(result, numbers, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", NATIVE)
def test_numbers(target: str) -> None:
    inputs = randoms((1, 11, 11, 3), (1, 5, 5, 8), (3, 45))
    for precision in ("bf16", "f16") if target == "cpu" else ("bf16",):
        p, options = program(net, *inputs), Options(precision=precision, num_threads=1, workers=1)
        model = compile(Program(p.module, p.weights), target, options)
        assert_close(list(model(*inputs).values()), emulated(precision, *inputs))


def test_products_of_words_without_the_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has it multiplies words: the same numbers by the code that says what they are."""
    monkeypatch.setitem(dot_products._INTRINSICS, ("x86_64", "bf16"), {})
    target = Cpu(replace(CPU_LEVELS["cpu:generic"], name="cpu:words", dot_products=("bf16",)))
    inputs = randoms((1, 11, 11, 3), (1, 5, 5, 8), (12, 45))
    # What lies beside a window, or behind a row's last element, does not get in.
    inputs[0][0, 0, 5], inputs[0][0, 9, 10] = np.inf, np.nan
    p, options = program(net, *inputs), Options(precision="bf16", num_threads=1, workers=1, cache=False)
    assert_close(list(compile(Program(p.module, p.weights), target, options)(*inputs).values()), emulated("bf16", *inputs))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("rows", [3, 24])
def test_instruction(rows: int, dtype: Any) -> None:
    """Of a model in bf16, and in f32 with the option."""
    (x,) = randoms((rows, 64))
    p = program(lambda b, x: b(dl.MatmulOp, x, b.weight(randoms((64, 64))[0].astype(dtype))), x.astype(dtype))
    expected = x.astype(ml_dtypes.bfloat16).astype(np.float32) @ rounded(randoms((64, 64))[0], "bf16")
    for stage in stages_of(INSTRUCTED, precision="bf16"):
        for step in stage.passes:
            step.apply(Context(), p.module)
    np.testing.assert_allclose(p.run()[0].astype(np.float32), expected, rtol=1e-5 if dtype == np.float32 else 8e-3, atol=1e-4)
    kernel = next(k for k in kernels_of(p.module) if "matmul" in k.sym_name.data)
    code = assembly(emit_kernel(kernel, INSTRUCTED).text, INSTRUCTED)
    assert len(re.findall(r"vdpbf16ps\s.*%zmm", code)) >= 8
    # No product is computed as it is said.
    assert not re.search(r"vfmadd|vpslld|vmulps|Spill", code)


def test_what_stays() -> None:
    """Products of two that are data, of two that are weights, and of other types."""

    def body(b: Writer, x: SSAValue, y: SSAValue) -> list[SSAValue]:
        w = b.weight(W)
        square = b(dl.MatmulOp, b(dl.TransposeOp, w, permutation=(1, 0)), w)
        wide = b(dl.MatmulOp, y, b.weight(W.astype(np.float64)))
        return [b(dl.MatmulOp, x, b(dl.TransposeOp, x, permutation=(1, 0))), square, wide]

    (x,) = randoms((4, 45))
    assert "cast" not in program(body, x, x.astype(np.float64)).apply(DowncastContractionsPass()).ops


def test_the_command_and_the_key(tmp_path: Path) -> None:
    file, node = tmp_path / "m.onnx", helper.make_node("MatMul", ["x", "w"], ["y"])
    infos = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", (1, 45)), ("y", (1, 40)))]
    onnx.save(helper.make_model(helper.make_graph([node], "g", infos[:1], infos[1:], [numpy_helper.from_array(W, "w")])), file)
    result = CliRunner().invoke(main, ["compile", str(file), "--precision", "bf16", "--target", "cpu:generic", "--emit", "dl"])
    assert result.exit_code == 0 and "tensor<45x40xbf16>" in result.output
    keys = [program_key("", WeightStore(), None, resolve("cpu:generic"), Options(precision=p)) for p in ("f32", "bf16")]
    assert keys[0].differences(keys[1].fields) == ["precision"]


def test_what_the_option_takes() -> None:
    with pytest.raises(UnsupportedError, match=r"int8.*f32, bf16, f16"):
        dlc.jit(precision="int8")(dnp.exp)


def test_a_function() -> None:
    (x,) = randoms((3, 45))
    np.testing.assert_allclose(
        dlc.jit(precision="bf16")(lambda x: x @ W)(x), rounded(x, "bf16") @ rounded(W, "bf16"), 1e-5, 1e-5
    )
