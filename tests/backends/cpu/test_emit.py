"""Whole kernels: a convolution, grids, unsupported constructs, and objects in memory."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest

from dlc.backends.cpu.llvm import assembly, compile_text
from dlc.emission.llvm.alias_scopes import join_kernels
from dlc.emission.llvm.kernel import emit_kernel
from dlc.errors import CompileError, UnsupportedError
from dlc.ir import StringAttr
from dlc.runtime.cpu.code.loader import load_object, undefined_symbols
from dlc.target import CPU_LEVELS, Target, resolve
from tests.backends.cpu.native import LEVELS, grid, parse_kernel, run

GENERIC = CPU_LEVELS["cpu:generic"]
CONVOLUTION = Path(__file__).with_name("conv_add_relu.mlir")


@pytest.mark.parametrize("target", LEVELS)
def test_convolution(target: Target) -> None:
    kernel = parse_kernel(CONVOLUTION.read_text())
    rng = np.random.default_rng(0)
    shapes = [(58, 58, 64), (2, 3, 192, 32), (2, 32), (58, 58, 2, 32), (58, 58, 2, 32)]
    x, w, b, s, _ = arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    y = run(kernel, arrays, target)[-1]
    weights = w.reshape(2, 3, 3, 64, 32).transpose(1, 2, 3, 0, 4).reshape(3, 3, 64, 64)
    expected = b.reshape(64) + s[1:57, 1:57].reshape(56, 56, 64)
    for i in range(3):
        for j in range(3):
            expected = expected + x[i : i + 56, j : j + 56] @ weights[i, j]
    np.testing.assert_allclose(y[1:57, 1:57].reshape(56, 56, 64), np.maximum(expected, 0), rtol=0, atol=1e-3)


def test_accumulators_of_a_convolution_stay_in_registers() -> None:
    code = assembly(emit_kernel(parse_kernel(CONVOLUTION.read_text()), CPU_LEVELS["cpu:avx512"]).text, CPU_LEVELS["cpu:avx512"])
    assert code.count("vfmadd") == 28
    assert "Spill" not in code and "Reload" not in code


@pytest.mark.parametrize("target", LEVELS)
def test_a_grid_becomes_one_function(target: Target) -> None:
    code = assembly(emit_kernel(parse_kernel(CONVOLUTION.read_text()), target).text, target)
    assert code.count("@function") == 1


def test_accumulators_of_few_wide_rows_stay_in_registers() -> None:
    """12 accumulators, the broadcasts of three rows, and one vector of weights at a time: 16 registers."""
    kernel = parse_kernel("""
    func.func @k(%x: memref<3x64xf32>, %w: memref<64x32xf32>, %y: memref<3x32xf32>) attributes {kernel} {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c64 = arith.constant 64 : index
      %pad = arith.constant 0.0 : f32
      %zero = arith.constant dense<0.0> : vector<3x32xf32>
      "scf.parallel"(%c0, %c1, %c1) <{operandSegmentSizes = array<i32: 1, 1, 1, 0>}> ({
      ^bb0(%task: index):
        %sums = scf.for %k = %c0 to %c64 step %c1 iter_args(%acc = %zero) -> (vector<3x32xf32>) {
          %a = vector.transfer_read %x[%c0, %k], %pad {in_bounds = [true, true], permutation_map = affine_map<(d0, d1) -> (d0, 0)>} : memref<3x64xf32>, vector<3x32xf32>
          %b = vector.transfer_read %w[%k, %c0], %pad {in_bounds = [true, true], permutation_map = affine_map<(d0, d1) -> (0, d1)>} : memref<64x32xf32>, vector<3x32xf32>
          %next = vector.fma %a, %b, %acc : vector<3x32xf32>
          scf.yield %next : vector<3x32xf32>
        }
        vector.transfer_write %sums, %y[%c0, %c0] {in_bounds = [true, true]} : vector<3x32xf32>, memref<3x32xf32>
        "scf.reduce"() : () -> ()
      }) {level = "grid"} : (index, index, index) -> ()
      func.return
    }""")
    code = assembly(emit_kernel(kernel, CPU_LEVELS["cpu:avx2"]).text, CPU_LEVELS["cpu:avx2"])
    assert code.count("vfmadd") % 12 == 0 and "vfmadd" in code
    assert "Spill" not in code and "Reload" not in code


@pytest.mark.parametrize("target", LEVELS)
def test_several_grids_and_code_between_them(target: Target) -> None:
    kernel = parse_kernel("""
    func.func @k(%x: memref<6x7xindex>, %y: memref<3xindex>) attributes {kernel} {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %c3 = arith.constant 3 : index
      %c5 = arith.constant 5 : index
      %c7 = arith.constant 7 : index
      %seven = arith.addi %c2, %c5 : index
      "scf.parallel"(%c0, %c1, %c5, %c7, %c2, %c3) <{operandSegmentSizes = array<i32: 2, 2, 2, 0>}> ({
      ^bb0(%i: index, %j: index):
        %s = arith.muli %i, %seven : index
        %t = arith.addi %s, %j : index
        memref.store %t, %x[%i, %j] : memref<6x7xindex>
        "scf.reduce"() : () -> ()
      }) {level = "grid"} : (index, index, index, index, index, index) -> ()
      memref.store %seven, %y[%c0] : memref<3xindex>
      %read = memref.load %x[%c2, %c1] : memref<6x7xindex>
      memref.store %read, %y[%c1] : memref<3xindex>
      "scf.parallel"(%c0, %c1, %c1) <{operandSegmentSizes = array<i32: 1, 1, 1, 0>}> ({
      ^bb0(%i: index):
        memref.store %seven, %y[%c2] : memref<3xindex>
        "scf.reduce"() : () -> ()
      }) {level = "grid"} : (index, index, index) -> ()
      func.return
    }""")
    # The code between the grids and the second grid are one task.
    assert emit_kernel(kernel, target).grids == (6, 1)
    x, y = run(kernel, [np.zeros((6, 7), np.int64), np.zeros(3, np.int64)], target)
    expected = np.zeros((6, 7), np.int64)
    expected[0:5:2, 1:7:3] = np.arange(42).reshape(6, 7)[0:5:2, 1:7:3]
    np.testing.assert_array_equal(x, expected)
    np.testing.assert_array_equal(y, [7, 15, 7])


COPY = "%v = memref.load %x[%p] : memref<4xf32>\nmemref.store %v, %y[%p] : memref<4xf32>"
BUFFERS = "%x: memref<4xf32>, %y: memref<4xf32>"


def test_texts_of_kernels_can_be_joined() -> None:
    kernels = [parse_kernel(grid(COPY, BUFFERS).replace("@k", f"@{name}")) for name in "ab"]
    loaded = load_object(compile_text(join_kernels(emit_kernel(kernel, GENERIC).text for kernel in kernels), GENERIC))
    assert loaded.address("a.0") != loaded.address("b.0")


def test_joined_kernels_keep_names_that_look_like_metadata() -> None:
    names = ["a!1", "b!1", '"c!2"']
    kernels = [parse_kernel(grid(COPY, BUFFERS)) for _ in names]
    for kernel, name in zip(kernels, names, strict=True):
        kernel.sym_name = StringAttr(name)
    loaded = load_object(compile_text(join_kernels(emit_kernel(kernel, GENERIC).text for kernel in kernels), GENERIC))
    assert len({loaded.address(f"{name}.0") for name in names}) == len(names)


def test_buffers_have_alias_scopes() -> None:
    text = emit_kernel(parse_kernel(grid(COPY, BUFFERS)), GENERIC).text
    nodes = dict(re.findall(r"^(!\d+) = (?:distinct )?!{(.*)}$", text, re.MULTILINE))
    load, store = (
        re.search(rf"{word} .*, !alias.scope (!\d+), !noalias (!\d+)$", text, re.MULTILINE) for word in ("load", "store")
    )
    assert load is not None and store is not None
    assert nodes[load[1]] == nodes[store[2]] != nodes[load[2]] == nodes[store[1]]


def test_ops_that_cannot_be_emitted_are_named() -> None:
    body = "%v = memref.load %x[%zero] : memref<4xf32>\n%e = math.exp %v : f32\nmemref.store %e, %x[%zero] : memref<4xf32>"
    with pytest.raises(UnsupportedError, match=r"@k: .*'math.exp'"):
        emit_kernel(parse_kernel(grid(body, "%x: memref<4xf32>")), GENERIC)


def test_local_buffers_are_bounded() -> None:
    body = "%b = memref.alloca() : memref<4096x4096xf32>\n%v = memref.load %b[%p, %p] : memref<4096x4096xf32>"
    with pytest.raises(CompileError, match="67108864 bytes of local buffers"):
        emit_kernel(parse_kernel(grid(body, "%x: memref<4xf32>")), GENERIC)


def test_local_buffers_do_not_outlive_a_grid() -> None:
    text = grid("memref.store %zero, %b[%p] : memref<4xindex>", "%x: memref<4xf32>")
    loop = text[text.index('"scf.parallel"') : text.index("func.return")]
    text = text.replace("%zero = ", "%b = memref.alloca() : memref<4xindex>\n%zero = ").replace(
        "func.return", loop + "func.return"
    )
    with pytest.raises(CompileError, match="used by two grids"):
        emit_kernel(parse_kernel(text), GENERIC)


def test_objects_are_freestanding() -> None:
    text = "declare double @exp(double)\ndefine double @f(double %x) {\n  %y = call double @exp(double %x)\n  ret double %y\n}"
    with pytest.raises(CompileError, match="exp"):
        compile_text(text, GENERIC)


def test_malformed_text_is_reported() -> None:
    with pytest.raises(CompileError, match="LLVM rejects"):
        compile_text("define void @f() { ret i32 }", GENERIC)


# A copy loop and a fill loop, which LLVM's idiom recognition would turn into calls of memcpy and memset.
def test_copies_and_fills_stay_loops() -> None:
    body = """
      %end = arith.constant 4096 : index
      %nil = arith.constant 0 : i8
      scf.for %i = %zero to %end step %one {
        %v = memref.load %x[%i] : memref<4096xi8>
        memref.store %v, %y[%i] : memref<4096xi8>
        memref.store %nil, %z[%i] : memref<4096xi8>
      }"""
    kernel = parse_kernel(grid(body, "%x: memref<4096xi8>, %y: memref<4096xi8>, %z: memref<4096xi8>"))
    x = np.arange(4096).astype(np.int8)
    _, y, z = run(kernel, [x, np.zeros_like(x), np.ones_like(x)], resolve("cpu"))
    np.testing.assert_array_equal(y, x)
    assert not z.any()


def test_constants_and_calls_are_relocated() -> None:
    # A constant in one section, a function in another, and a table that needs no relocation.
    text = """
    @table = private constant [4 x i64] [i64 3, i64 1, i64 4, i64 1]
    define i64 @f(i64 %i) section ".text.other" {
      %p = getelementptr i64, ptr @table, i64 %i
      %v = load i64, ptr %p
      ret i64 %v
    }
    define i64 @g(i64 %i) {
      %a = call i64 @f(i64 %i)
      %b = add i64 %a, 10
      ret i64 %b
    }"""
    data = compile_text(text.replace("define i64 @f", "define internal i64 @f"), GENERIC)
    assert undefined_symbols(data) == []
    code = load_object(data)
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("g"))
    assert [function(i) for i in range(4)] == [13, 11, 14, 11]


@pytest.mark.parametrize("data", [b"", b"not an object", b"\x7fELF\x02\x01" + bytes(58)])
def test_only_objects_are_loaded(data: bytes) -> None:
    with pytest.raises(CompileError, match="not a relocatable little-endian ELF64"):
        load_object(data)


def test_scalars_and_empty_grids() -> None:
    kernel = parse_kernel("""
    func.func @k(%x: memref<f32>, %y: memref<f32>, %z: memref<0x4xf32>) attributes {kernel} {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %a = memref.load %x[] : memref<f32>
      %b = arith.addf %a, %a : f32
      memref.store %b, %y[] : memref<f32>
      "scf.parallel"(%c0, %c0, %c1) <{operandSegmentSizes = array<i32: 1, 1, 1, 0>}> ({
      ^bb0(%i: index):
        memref.store %b, %z[%i, %i] : memref<0x4xf32>
        "scf.reduce"() : () -> ()
      }) {level = "grid"} : (index, index, index) -> ()
      func.return
    }""")
    assert emit_kernel(kernel, GENERIC).grids == (1, 0)
    arrays = [np.array(3, np.float32), np.array(0, np.float32), np.zeros((0, 4), np.float32)]
    assert run(kernel, arrays, GENERIC)[1] == 6
