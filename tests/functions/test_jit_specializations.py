"""Specializations of `@dlc.jit`: one per shapes, dtypes, structure and static arguments; their IR and code."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dlc
import dlc.numpy as dnp
from dlc.dialects.registry import make_context
from dlc.errors import DTypeError, ShapeError, UnsupportedError
from dlc.ir import parse_module

draw = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return draw.standard_normal(shape).astype(np.float32)


class Counted:
    """A function that counts how often Python runs it, that is, how often it is traced."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.count = 0
        self.__signature__ = inspect.signature(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.count += 1
        return self.function(*args, **kwargs)


def test_one_trace_per_shapes_dtypes_and_structure() -> None:
    function = Counted(lambda x, n=1: x * n)
    compiled = dlc.jit(function)
    x = normal(3, 4)

    def traces(*args: Any, **kwargs: Any) -> int:
        np.testing.assert_allclose(compiled(*args, **kwargs), function.function(*args, **kwargs), rtol=1e-6)
        return function.count

    assert traces(x) == 1
    assert traces(x + 1) == 1
    assert traces(x[:2]) == 2
    assert traces(x.astype(np.float64)) == 3
    assert traces(x) == 3
    assert traces(compiled(x)) == 3
    # A scalar is an input: its value is not part of the cache key, its weak type is.
    assert traces(x, 2.0) == 4
    assert traces(x, 3.0) == 4
    assert traces(x, 3) == 5
    assert traces(x, np.float64(3)) == 6
    assert traces(x, n=3.0) == 7
    assert traces(x, 5.0) == 7


def test_static_arguments() -> None:
    function = Counted(lambda x, axis, mode="sum": x.sum(axis) if mode == "sum" else x.max(axis))
    compiled = dlc.jit(static_argnames=("axis", "mode"))(function)
    x = normal(3, 4)
    np.testing.assert_allclose(compiled(x, 0), x.sum(0), rtol=1e-5)
    np.testing.assert_allclose(compiled(x, axis=0), x.sum(0), rtol=1e-5)
    assert function.count == 1
    np.testing.assert_allclose(compiled(x, 1), x.sum(1), rtol=1e-5)
    np.testing.assert_allclose(compiled(x, (0, 1), "max"), x.max(), rtol=1e-5)
    assert function.count == 3
    with pytest.raises(DTypeError, match=r"static argument axis is a list, which cannot be hashed"):
        compiled(x, [0])
    with pytest.raises(DTypeError, match=r"static_argnames.*'axes'.*no parameters"):
        dlc.jit(static_argnames=("axes",))(lambda x: x)


def test_equal_static_values_of_different_types() -> None:
    compiled = dlc.jit(static_argnames=("n",))(lambda x, n: x * 2 if n is True else x * 3)
    x = normal(3)
    np.testing.assert_allclose(compiled(x, 1), 3 * x)
    np.testing.assert_allclose(compiled(x, True), 2 * x)
    np.testing.assert_allclose(compiled(x, 1.0), 3 * x)


@dataclass(frozen=True)
class Setting:
    factor: float


@pytest.mark.parametrize(
    ("settings", "factor"),
    [
        (((2,), (2.0,), (True,)), lambda n: n[0]),
        (((1, (0.0,)), (1, (-0.0,))), lambda n: 1 / np.float64(n[1][0])),
        ((0.0, -0.0), lambda n: np.copysign(2.0, n)),
        ((frozenset({2}), frozenset({2.0})), lambda n: sum(n)),
        ((Setting(2), Setting(2.0)), lambda n: n.factor),
    ],
    ids=["tuple", "nested", "zero", "set", "dataclass"],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_equal_static_objects_of_different_meaning(settings: Any, factor: Callable[[Any], Any]) -> None:
    compiled = dlc.jit(target="reference", static_argnames=("n",))(lambda x, n: x * factor(n))
    for setting in settings:
        found, expected = compiled(np.arange(1, 4), setting), np.arange(1, 4) * factor(setting)
        assert np.array_equal(found, expected) and found.dtype == expected.dtype


def test_failed_trace_is_not_cached() -> None:
    function = Counted(lambda x: x @ x)
    compiled = dlc.jit(function)
    for _ in range(2):
        with pytest.raises(ShapeError):
            compiled(normal(2, 3))
    np.testing.assert_allclose(compiled(np.eye(2, dtype=np.float32)), np.eye(2))
    assert function.count == 3


def test_calls_from_several_threads() -> None:
    function = Counted(lambda x: dnp.tanh(x) * 2)
    compiled = dlc.jit(function)
    arrays = [normal(50, 3) for _ in range(8)]
    results: dict[int, Any] = {}
    threads = [threading.Thread(target=lambda k=k: results.update({k: compiled(arrays[k])})) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert function.count == 1
    for k, array in enumerate(arrays):
        np.testing.assert_allclose(results[k], 2 * np.tanh(array), atol=1e-6)


def test_compiled_functions_call_one_another() -> None:
    """A compiled function called during tracing is inlined."""
    inner = dlc.jit(static_argnames=("n",))(lambda x, n: {"y": x**n})
    outer = dlc.jit(lambda x: inner(x + 1, n=2)["y"] - inner(2.0 * x, 1)["y"])
    x = normal(4)
    np.testing.assert_allclose(outer(x), (x + 1) ** 2 - 2 * x, rtol=1e-5, atol=1e-6)


def test_static_arguments_by_position() -> None:
    @dlc.jit(static_argnums=1)
    def scale(x: Any, n: int) -> Any:
        return x * len(range(n))

    np.testing.assert_array_equal(scale(np.ones(2), 3), [3, 3])
    np.testing.assert_array_equal(dlc.jit(static_argnums=(-1,))(lambda x, n: x * len(range(n)))(np.ones(2), 2), [2, 2])
    with pytest.raises(DTypeError, match=r"static_argnums \[3\]"):
        dlc.jit(static_argnums=3)(lambda x: x)


def test_numbers_share_the_program_of_their_dtype() -> None:
    """NumPy's scalars are arrays of rank 0; a Python number takes the dtype of the arrays, and must fit."""
    scale = dlc.jit(lambda x, s: x * s, target="reference")
    x = np.ones(3, np.int8)
    for _ in range(2):
        assert scale(x, np.float64(1.5)).dtype == scale(x, np.asarray(1.5)).dtype == np.float64
        assert scale(x, np.int16(300))[0] == 300
        assert scale(x, 2).dtype == np.int8
        assert scale(np.float32([1.0]), 0.5).dtype == np.float32
        with pytest.raises(DTypeError, match="300"):
            scale(x, 300)


# Looking inside


@pytest.mark.parametrize("stage", ["dl", "fusion", "linalg", "tiling", "loops", "host"])
def test_ir_at_every_stage(stage: str) -> None:
    params = {"w": normal(4, 3), "b": normal(3)}
    text = dlc.jit(lambda p, x: dnp.tanh(x @ p["w"] + p["b"])).lower(params, normal(2, 4)).as_text(stage)
    parse_module(make_context(), text).verify()
    telling = {"dl": "dl.tanh", "fusion": "dl.dispatch", "linalg": "linalg.generic", "tiling": "scf.parallel"}
    assert telling.get(stage, {"loops": "vector.", "host": "host.launch"}.get(stage, "")) in text
    assert "params" in text or "p['w']" in text


def test_code() -> None:
    lowered = dlc.jit(lambda x: x * 2 + 1).lower(normal(8))
    assert "define" in lowered.as_text("llvm") and "target-cpu" in lowered.as_text("llvm")
    assert "ret" in lowered.as_text("asm") and ".globl" in lowered.as_text("asm")
    with pytest.raises(UnsupportedError, match=r"cpu:\w+ has no listing format 'opencl'; available: llvm, asm"):
        lowered.as_text("opencl")
    assert "__kernel" in dlc.jit(lambda x: x * 2, target="opencl:cpu256").lower(normal(8)).as_text("opencl")
    with pytest.raises(UnsupportedError, match=r"linalgg.*dl, fusion, linalg, tiling, loops"):
        lowered.as_text("linalgg")


def test_locations_are_user_lines() -> None:
    def function(x: Any) -> Any:
        y = dnp.exp(x)
        return y + 1

    line = inspect.getsourcelines(function)[1]
    text = dlc.jit(function).lower(normal(2)).as_text("dl")
    assert f'test_jit_specializations.py":{line + 1}:' in text and f'test_jit_specializations.py":{line + 2}:' in text


def test_a_lowered_function_is_a_model() -> None:
    model = dlc.jit(lambda p, x: {"y": x + p["b"]}).lower({"b": normal(3)}, normal(2, 3)).compile()
    assert [str(i) for i in model.inputs] == ["p['b']: float32[3]", "x: float32[2, 3]"]
    assert [str(o) for o in model.outputs] == ["result['y']: float32[2, 3]"]


def test_the_ir_of_the_first_compilation_is_dumped(tmp_path: Path) -> None:
    function = dlc.jit(dump_ir=tmp_path / "ir")(lambda x: x + 1)
    function(normal(3))
    written = {p: p.read_bytes() for p in (tmp_path / "ir").rglob("*.*")}
    assert any(p.name == "index.md" for p in written)
    function(normal(4))
    assert {p: p.read_bytes() for p in (tmp_path / "ir").rglob("*.*")} == written


def test_the_ir_is_dumped_if_guards_exclude_the_first_program(tmp_path: Path) -> None:
    # A program of the symbols N and M does not serve a size 1 that broadcasts.
    dynamic = {"x": {0: "N"}, "y": {0: "M"}}
    dlc.jit(dump_ir=tmp_path / "ir", target="reference", dynamic=dynamic)(lambda x, y: x + y)(normal(1), normal(5))
    assert (tmp_path / "ir" / "index.md").exists()


def test_a_custom_pipeline() -> None:
    doubled = dlc.jit(target="reference", pipeline="cse,dce")(lambda x: x + x)
    x = normal(3)
    np.testing.assert_allclose(doubled(x), 2 * x)
    with pytest.raises(UnsupportedError, match="did you mean cse"):
        dlc.jit(pipeline="csee")(lambda x: x)(x)


def test_sizes_of_arguments_decide_comparisons_of_lowered_functions(tmp_path: Path) -> None:
    """The decision is a guard of the program."""

    @dlc.jit(dynamic={"x": {0: "N"}, "y": {0: "M"}})
    def f(x: Any, y: Any) -> Any:
        return x[:3].sum() if x.shape[0] >= y.shape[0] else y.sum()

    f.save(tmp_path / "f.dlc", np.ones(5, np.float32), dlc.ShapeDtype((4,), np.float32))
    saved = dlc.load(tmp_path / "f.dlc")
    assert saved(x=np.ones(9, np.float32), y=np.ones(9, np.float32))["result"] == 3
    with pytest.raises(ShapeError, match="N >= M"):
        saved(x=np.ones(5, np.float32), y=np.ones(6, np.float32))
    with pytest.raises(ShapeError, match="jit: dynamic has axis 0 of 'x', which has the shape"):
        f.lower(1.0, np.ones(3, np.float32))


def test_slices_of_symbolic_axes_are_saved_for_all_sizes_or_like_calls(tmp_path: Path) -> None:
    """Without the sizes of arguments, a slice has a data-dependent size: two of them cannot be added, only one be saved."""
    one = dlc.jit(lambda x: x[2:5] * 2, dynamic={"x": {0: "N"}})
    two = dlc.jit(lambda x: x[1:][2:5] + x[:3], dynamic={"x": {0: "N"}})
    x = np.arange(10, dtype=np.float32)
    for f, short in ((one, [4, 6]), (two, None)):
        f.save(tmp_path / "f.dlc", x)
        saved = dlc.load(tmp_path / "f.dlc")
        np.testing.assert_array_equal(saved(x=x)["result"], f(x))
        if short is None:
            assert "-> (tensor<3xf32>" in f.lower(x).as_text()
            with pytest.raises(ShapeError, match="not compiled for N = 4"):
                saved(x=x[:4])
        else:
            np.testing.assert_array_equal(saved(x=x[:4])["result"], short)


def test_a_function_of_one_size_is_saved_for_it(tmp_path: Path) -> None:
    f = dlc.jit(lambda x: x + np.ones(5, np.float32), dynamic={"x": {0: "N"}})
    x = np.arange(5, dtype=np.float32)
    with pytest.warns(UserWarning, match="is saved for the shapes of its arguments: .*dl.add requires N == 5"):
        f.save(tmp_path / "f.dlc", x)
    np.testing.assert_array_equal(dlc.load(tmp_path / "f.dlc")(x=x)["result"], x + 1)
    with pytest.raises(UnsupportedError, match=r"at run time \(.*dl.add requires N == 5\), and was not called yet"):
        f.lower(x).compile().save(tmp_path / "f.dlc")


def test_lowered_functions_without_symbolic_sizes_are_static() -> None:
    @dlc.jit(dynamic={"x": {0: "N"}})
    def f(x: Any) -> Any:
        return dlc.numpy.fft.fft(x).real

    with pytest.warns(UserWarning, match="f is specialized per shape: .*the length must be static"):
        lowered = f.lower(np.ones(4, np.float32))
    assert [info.shape for info in lowered.program.inputs] == [(4,)]


def test_lowering_for_a_shape_and_dtype() -> None:
    lowered = dlc.jit(lambda x: x @ x.T).lower(dlc.ShapeDtype((3, 4), np.float32))
    assert "tensor<3x4xf32>" in lowered.as_text()
    assert lowered.compile()(np.ones((3, 4), np.float32))["result"][0, 0] == 4
    with pytest.raises(DTypeError, match=r"has no elements; pass it to \.lower only"):
        dlc.jit(lambda x: x)(dlc.ShapeDtype((3, 4), np.float32))


@pytest.mark.parametrize(("shape", "dtype"), [(3, "f4"), ((2.5,), "f4"), ((2,), "no dtype"), ((-2,), "f4")])
def test_invalid_shape_and_dtype(shape: Any, dtype: Any) -> None:
    with pytest.raises((DTypeError, ShapeError), match="ShapeDtype"):
        dlc.ShapeDtype(shape, dtype)
