"""Reads and writes of n-D vectors: permutations, broadcasts, strides, ragged rows, padding, views; reductions."""

from __future__ import annotations

import numpy as np
import pytest

from dlc.backends.reference import evaluate_function
from dlc.emission.llvm.kernel import emit_kernel
from dlc.errors import UnsupportedError
from dlc.target import CPU_LEVELS, Target
from tests.backends.cpu.native import LEVELS, grid, parse_kernel, run


def check(text: str, arrays: list[np.ndarray], target: Target, tolerance: float = 0.0) -> list[np.ndarray]:
    """Run a kernel natively and in the evaluator; return the results."""
    kernel = parse_kernel(text)
    expected = [a.copy() for a in arrays]
    evaluate_function(kernel, expected)
    results = run(kernel, arrays, target)
    for i, (a, e) in enumerate(zip(results, expected, strict=True)):
        np.testing.assert_allclose(a, e, rtol=tolerance, atol=tolerance, err_msg=f"argument {i}")
    return results


def numbers(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return (np.arange(np.prod(shape)) % 97 + 1).astype(dtype).reshape(shape)


TRANSFERS = {
    "rows": ("(d0, d1, d2) -> (d1, d2)", "3x20"),
    "columns": ("(d0, d1, d2) -> (d2, d1)", "20x5"),
    "transposed": ("(d0, d1, d2) -> (d2, d0)", "18x4"),
    "strided row": ("(d0, d1, d2) -> (d0)", "4"),
    "broadcast lanes": ("(d0, d1, d2) -> (d1, 0)", "3x20"),
    "broadcast rows": ("(d0, d1, d2) -> (0, d2)", "3x20"),
    "column of one": ("(d0, d1, d2) -> (d1, d2)", "6x1"),
    "everything": ("(d0, d1, d2) -> (d0, d1, d2)", "2x3x17"),
    "one past a register": ("(d0, d1, d2) -> (d2)", "17"),
}


@pytest.mark.parametrize("target", LEVELS)
@pytest.mark.parametrize("name", TRANSFERS)
def test_transfers(name: str, target: Target) -> None:
    permutation, shape = TRANSFERS[name]
    identity = ", ".join(f"d{i}" for i in range(shape.count("x") + 1))
    zeros, inside = ", ".join(["%zero"] * (shape.count("x") + 1)), ", ".join(["true"] * (shape.count("x") + 1))
    body = f"""
        %pad = arith.constant 0.0 : f32
        %two = arith.constant 2 : index
        %v = vector.transfer_read %x[%p, %two, %one], %pad {{in_bounds = [{inside}],
            permutation_map = affine_map<{permutation}>}}
          : memref<6x8x24xf32>, vector<{shape}xf32>
        %out = memref.subview %y[%p{", 0" * (shape.count("x") + 1)}] [1, {shape.replace("x", ", ")}]
          [1{", 1" * (shape.count("x") + 1)}] : memref<2x{shape}xf32> to
          memref<{shape}xf32, strided<[{strides(shape)}], offset: ?>>
        vector.transfer_write %v, %out[{zeros}] {{in_bounds = [{inside}],
            permutation_map = affine_map<({identity}) -> ({identity})>}}
          : vector<{shape}xf32>, memref<{shape}xf32, strided<[{strides(shape)}], offset: ?>>"""
    sizes = tuple(map(int, shape.split("x")))
    text = grid(body, f"%x: memref<6x8x24xf32>, %y: memref<2x{shape}xf32>", points=2)
    result = check(text, [numbers(6, 8, 24), np.zeros((2, *sizes), np.float32)], target)[1]
    assert (result != 0).all()


def strides(shape: str) -> str:
    sizes = list(map(int, shape.split("x")))
    return ", ".join(str(int(np.prod(sizes[i + 1 :]))) for i in range(len(sizes)))


# Number of groups, elements per group, repetitions of each element; index of the element, and whether it is static.
REPEATED = {
    "four of four": (8, 4, 4, "%two"),
    "three of four": (8, 3, 4, "%two"),
    "what is left of a register": (5, 4, 4, "%one"),
    "pairs": (9, 2, 2, "%zero"),
    "one of each": (12, 1, 4, "%zero"),
    "a place that the kernel computes": (8, 4, 4, "%p"),
    "far apart": (4, 9, 4, "%one"),
}


@pytest.mark.parametrize("target", LEVELS)
@pytest.mark.parametrize("dtype", ["f32", "i32", "f64"])
@pytest.mark.parametrize("name", REPEATED)
def test_reads_that_repeat_elements(name: str, dtype: str, target: Target) -> None:
    groups, inputs, times, place = REPEATED[name]
    zero = "0.0" if dtype.startswith("f") else "0"
    body = f"""
        %pad = arith.constant {zero} : {dtype}
        %two = arith.constant 2 : index
        %v = vector.transfer_read %x[%zero, %zero, {place}], %pad {{in_bounds = [true, true, true],
            permutation_map = affine_map<(d0, d1, d2) -> (d0, d1, 0)>}}
          : memref<3x{groups}x{inputs}x{dtype}>, vector<3x{groups}x{times}x{dtype}>
        %s = vector.shape_cast %v : vector<3x{groups}x{times}x{dtype}> to vector<3x{groups * times}x{dtype}>
        %out = memref.subview %y[%p, 0, 0] [1, 3, {groups * times}] [1, 1, 1] : memref<2x3x{groups * times}x{dtype}> to
          memref<3x{groups * times}x{dtype}, strided<[{groups * times}, 1], offset: ?>>
        vector.transfer_write %s, %out[%zero, %zero] {{in_bounds = [true, true]}}
          : vector<3x{groups * times}x{dtype}>, memref<3x{groups * times}x{dtype}, strided<[{groups * times}, 1], offset: ?>>"""
    text = grid(body, f"%x: memref<3x{groups}x{inputs}x{dtype}>, %y: memref<2x3x{groups * times}x{dtype}>", points=2)
    kind = {"f32": np.float32, "f64": np.float64, "i32": np.int32}[dtype]
    result = check(text, [numbers(3, groups, inputs, dtype=kind), np.zeros((2, 3, groups * times), kind)], target)[1]
    assert (result != 0).all()


@pytest.mark.parametrize("target", LEVELS)
def test_shape_casts_that_preserve_rows(target: Target) -> None:
    """Casts of a read with repeated rows, and of a computed value."""
    body = """
        %pad = arith.constant 0.0 : f32
        %v = vector.transfer_read %x[%zero, %zero], %pad {in_bounds = [true, true, true],
            permutation_map = affine_map<(d0, d1) -> (d0, 0, d1)>} : memref<3x20xf32>, vector<3x2x20xf32>
        %s = vector.shape_cast %v : vector<3x2x20xf32> to vector<6x20xf32>
        %n = arith.negf %v : vector<3x2x20xf32>
        %t = vector.shape_cast %n : vector<3x2x20xf32> to vector<6x20xf32>
        %d = arith.addf %s, %t : vector<6x20xf32>
        %e = arith.subf %s, %d : vector<6x20xf32>
        vector.transfer_write %e, %y[%zero, %zero] {in_bounds = [true, true]} : vector<6x20xf32>, memref<6x20xf32>"""
    x = numbers(3, 20)
    result = check(grid(body, "%x: memref<3x20xf32>, %y: memref<6x20xf32>"), [x, np.zeros((6, 20), np.float32)], target)[1]
    np.testing.assert_array_equal(result, np.repeat(x, 2, axis=0))


@pytest.mark.parametrize(("before", "after"), [("3x4x4", "3x16"), ("3x4x4", "48")], ids=["of others", "all"])
def test_unsupported_shape_casts_are_reported(before: str, after: str) -> None:
    body = f"""
        %pad = arith.constant 0.0 : f32
        %v = vector.transfer_read %x[%zero, %zero, %zero], %pad {{in_bounds = [true, true, true]}}
          : memref<3x4x4xf32>, vector<{before}xf32>
        %s = vector.shape_cast %v : vector<{before}xf32> to vector<{after}xf32>"""
    with pytest.raises(UnsupportedError, match=r"vector\.shape_cast"):
        emit_kernel(parse_kernel(grid(body, "%x: memref<3x4x4xf32>", points=2)), CPU_LEVELS["cpu:avx2"])


@pytest.mark.parametrize("target", LEVELS)
def test_writes_in_other_orders(target: Target) -> None:
    body = """
        %pad = arith.constant 0.0 : f32
        %v = vector.transfer_read %x[%zero, %zero], %pad {in_bounds = [true, true]} : memref<5x19xf32>, vector<5x19xf32>
        vector.transfer_write %v, %y[%zero, %zero] {in_bounds = [true, true],
            permutation_map = affine_map<(d0, d1) -> (d1, d0)>}
          : vector<5x19xf32>, memref<19x5xf32>
        %even = memref.subview %z[0, 0] [5, 19] [1, 2] : memref<5x38xf32> to memref<5x19xf32, strided<[38, 2]>>
        vector.transfer_write %v, %even[%zero, %zero] {in_bounds = [true, true]}
          : vector<5x19xf32>, memref<5x19xf32, strided<[38, 2]>>
        %row_pad = arith.constant 0.0 : f32
        %row = vector.transfer_read %even[%one, %zero], %row_pad {in_bounds = [true]}
          : memref<5x19xf32, strided<[38, 2]>>, vector<19xf32>
        vector.transfer_write %row, %w[%one, %zero] {in_bounds = [true]} : vector<19xf32>, memref<5x19xf32>"""
    text = grid(body, "%x: memref<5x19xf32>, %y: memref<19x5xf32>, %z: memref<5x38xf32>, %w: memref<5x19xf32>")
    shapes = [(5, 19), (19, 5), (5, 38), (5, 19)]
    check(text, [numbers(5, 19), *(np.zeros(s, np.float32) for s in shapes[1:])], target)


@pytest.mark.parametrize("target", LEVELS)
@pytest.mark.parametrize("dtype", ["f32", "i8", "i1"])
@pytest.mark.parametrize("start", [(2, 5), (-1, -3), (7, 30)])
def test_padding(start: tuple[int, int], dtype: str, target: Target) -> None:
    padding = "7.0" if dtype.startswith("f") else "1"
    body = f"""
        %pad = arith.constant {padding} : {dtype}
        %i = memref.load %at[%zero] : memref<2xindex>
        %j = memref.load %at[%one] : memref<2xindex>
        %v = vector.transfer_read %x[%i, %j], %pad {{in_bounds = [false, false]}} : memref<4x20x{dtype}>, vector<3x19x{dtype}>
        vector.transfer_write %v, %y[%zero, %zero] {{in_bounds = [true, true]}} : vector<3x19x{dtype}>, memref<3x19x{dtype}>
        vector.transfer_write %v, %z[%i, %j] {{in_bounds = [false, false]}} : vector<3x19x{dtype}>, memref<4x20x{dtype}>
        %t = vector.transfer_read %x[%i, %j], %pad {{in_bounds = [false, false],
            permutation_map = affine_map<(d0, d1) -> (d1, d0)>}}
          : memref<4x20x{dtype}>, vector<19x3x{dtype}>
        vector.transfer_write %t, %w[%zero, %zero] {{in_bounds = [true, true]}} : vector<19x3x{dtype}>, memref<19x3x{dtype}>"""
    shapes = ["4x20", "3x19", "4x20", "19x3"]
    arguments = [f"%{n}: memref<{s}x{dtype}>" for n, s in zip("xyzw", shapes, strict=True)]
    numpy_dtype = {"f32": np.float32, "i8": np.int8, "i1": np.bool_, "f64": np.float64}[dtype]
    arrays = [np.zeros(tuple(map(int, s.split("x"))), numpy_dtype) for s in shapes]
    arrays[0] = (numbers(4, 20) % 3).astype(numpy_dtype)
    text = grid(body, ", ".join(["%at: memref<2xindex>", *arguments]))
    check(text, [np.array(start, np.int64), *arrays], target)


@pytest.mark.parametrize("target", LEVELS)
def test_views(target: Target) -> None:
    # Overlapping windows, rank reduction, a view of a view at a dynamic offset, and a local buffer.
    body = """
        %pad = arith.constant 0.0 : f32
        %windows = memref.reinterpret_cast %x to offset: [3], sizes: [8, 6], strides: [10, 2]
          : memref<120xf32> to memref<8x6xf32, strided<[10, 2], offset: 3>>
        %part = memref.subview %windows[%p, 1] [4, 5] [1, 1]
          : memref<8x6xf32, strided<[10, 2], offset: 3>> to memref<4x5xf32, strided<[10, 2], offset: ?>>
        %line = memref.subview %part[2, 0] [1, 5] [1, 1]
          : memref<4x5xf32, strided<[10, 2], offset: ?>> to memref<5xf32, strided<[2], offset: ?>>
        %local = memref.alloca() : memref<2x5xf32>
        %a = vector.transfer_read %line[%zero], %pad {in_bounds = [true]}
          : memref<5xf32, strided<[2], offset: ?>>, vector<5xf32>
        vector.transfer_write %a, %local[%one, %zero] {in_bounds = [true]} : vector<5xf32>, memref<2x5xf32>
        %b = memref.load %local[%one, %p] : memref<2x5xf32>
        memref.store %b, %y[%p] : memref<4xf32>"""
    text = grid(body, "%x: memref<120xf32>, %y: memref<4xf32>", points=4)
    check(text, [numbers(120), np.zeros(4, np.float32)], target)


@pytest.mark.parametrize("target", LEVELS)
@pytest.mark.parametrize("size", [1, 3, 55])
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i8"])
def test_reductions(dtype: str, size: int, target: Target) -> None:
    integer = dtype.startswith("i")
    kinds = ["add", "mul", "and", "or", "xor", "maxsi", "minsi", "maxui", "minui"] if integer else [
        "add", "mul", "maximumf", "minimumf", "maxnumf", "minnumf",
    ]  # fmt: skip
    body = [
        f"%pad = arith.constant {'0' if integer else '0.0'} : {dtype}",
        f"%v = vector.transfer_read %x[%zero], %pad {{in_bounds = [true]}} : memref<{size}x{dtype}>, vector<{size}x{dtype}>",
    ]
    for i, kind in enumerate(kinds):
        body += [
            f"%i{i} = arith.constant {i} : index",
            f"%plain{i} = vector.reduction <{kind}>, %v : vector<{size}x{dtype}> into {dtype}",
            f"memref.store %plain{i}, %y[%zero, %i{i}] : memref<2x{len(kinds)}x{dtype}>",
            f"%from{i} = vector.reduction <{kind}>, %v, %plain0 : vector<{size}x{dtype}> into {dtype}",
            f"memref.store %from{i}, %y[%one, %i{i}] : memref<2x{len(kinds)}x{dtype}>",
        ]
    numpy_dtype = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i8": np.int8}[dtype]
    values = np.random.default_rng(size).uniform(-2, 2, size) if not integer else np.arange(size) * 7 - 20
    text = grid("\n        ".join(body), f"%x: memref<{size}x{dtype}>, %y: memref<2x{len(kinds)}x{dtype}>")
    check(text, [values.astype(numpy_dtype), np.zeros((2, len(kinds)), numpy_dtype)], target, 0 if integer else 1e-5)


@pytest.mark.parametrize("target", LEVELS)
def test_extremum_of_nan(target: Target) -> None:
    body = """
        %v_pad = arith.constant 0.0 : f32
        %v = vector.transfer_read %x[%zero], %v_pad {in_bounds = [true]} : memref<21xf32>, vector<21xf32>
        %a = vector.reduction <maximumf>, %v : vector<21xf32> into f32
        %b = vector.reduction <minimumf>, %v : vector<21xf32> into f32
        memref.store %a, %y[%zero] : memref<2xf32>
        memref.store %b, %y[%one] : memref<2xf32>"""
    for place in (0, 7, 16, 20):
        x = numbers(21)
        x[place] = np.nan
        check(grid(body, "%x: memref<21xf32>, %y: memref<2xf32>"), [x, np.zeros(2, np.float32)], target)


@pytest.mark.parametrize("target", LEVELS)
def test_constants_and_broadcasts(target: Target) -> None:
    values = ", ".join(f"[{i}, {i + 100}, {i + 200}]" for i in range(5))
    body = f"""
        %c = arith.constant dense<[{values}]> : vector<5x3xi32>
        vector.transfer_write %c, %y[%zero, %zero] {{in_bounds = [true, true]}} : vector<5x3xi32>, memref<5x20xi32>
        %one_lane = arith.constant dense<102> : vector<1xi32>
        %wide = vector.broadcast %one_lane : vector<1xi32> to vector<2x17xi32>
        %three = arith.constant 3 : index
        vector.transfer_write %wide, %y[%three, %three] {{in_bounds = [true, true]}} : vector<2x17xi32>, memref<5x20xi32>
        %counts = arith.constant dense<[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]> : vector<17xindex>
        %shifted = vector.broadcast %p : index to vector<17xindex>
        %sum = arith.addi %counts, %shifted : vector<17xindex>
        %narrow = arith.trunci %wide : vector<2x17xi32> to vector<2x17xi8>
        vector.transfer_write %sum, %z[%p, %zero] {{in_bounds = [true]}} : vector<17xindex>, memref<2x17xindex>
        vector.transfer_write %narrow, %w[%zero, %zero] {{in_bounds = [true, true]}} : vector<2x17xi8>, memref<2x17xi8>"""
    text = grid(body, "%y: memref<5x20xi32>, %z: memref<2x17xindex>, %w: memref<2x17xi8>", points=2)
    check(text, [np.zeros((5, 20), np.int32), np.zeros((2, 17), np.int64), np.zeros((2, 17), np.int8)], target)


@pytest.mark.parametrize("target", LEVELS)
def test_strided_booleans_are_converted_as_vectors(target: Target) -> None:
    body = """
        %pad = arith.constant false
        %apart = memref.reinterpret_cast %x to offset: [31], sizes: [16], strides: [-2]
          : memref<32xi1> to memref<16xi1, strided<[-2], offset: 31>>
        %turned = memref.reinterpret_cast %y to offset: [15], sizes: [16], strides: [-1]
          : memref<16xi1> to memref<16xi1, strided<[-1], offset: 15>>
        %v = vector.transfer_read %apart[%zero], %pad {in_bounds = [true]}
          : memref<16xi1, strided<[-2], offset: 31>>, vector<16xi1>
        vector.transfer_write %v, %turned[%zero] {in_bounds = [true]} : vector<16xi1>, memref<16xi1, strided<[-1], offset: 15>>"""
    text = grid(body, "%x: memref<32xi1>, %y: memref<16xi1>")
    check(text, [numbers(32) > 0.2, np.zeros(16, np.bool_)], target)
    emitted = emit_kernel(parse_kernel(text), target).text
    registers = 16 // min(16, target.lanes(4))
    assert emitted.count("icmp ne") == emitted.count("zext") == registers


@pytest.mark.parametrize("target", LEVELS)
@pytest.mark.parametrize(("dtype", "kind"), [("f32", np.float32), ("f64", np.float64), ("f16", np.float16), ("i8", np.int8)])
def test_remainders_are_stored_unmasked_without_mask_registers(dtype: str, kind: type, target: Target) -> None:
    zero, body, arguments, arrays = "0" if dtype == "i8" else "0.0", "", [], []
    for width in (2, 3, 5, 7, 11, 13):
        memory = f"memref<{width}x{dtype}>"
        body += f"""
        %pad{width} = arith.constant {zero} : {dtype}
        %v{width} = vector.transfer_read %x{width}[%zero], %pad{width} {{in_bounds = [true]}} : {memory}, vector<{width}x{dtype}>
        vector.transfer_write %v{width}, %y{width}[%zero] {{in_bounds = [true]}} : vector<{width}x{dtype}>, {memory}"""
        arguments.append(f"%x{width}: {memory}, %y{width}: {memory}")
        arrays += [numbers(width, dtype=kind), np.zeros(width, kind)]
    text = grid(body, ", ".join(arguments))
    check(text, arrays, target)
    has_masked_stores = "masked.store" in emit_kernel(parse_kernel(text), target).text
    assert has_masked_stores == ("avx512vl" in target.features)
