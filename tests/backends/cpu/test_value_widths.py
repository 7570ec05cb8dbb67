"""LLVM values that span several registers: where they are used, and that the code is not worse."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dlc.backends.cpu.llvm import assembly
from dlc.emission.llvm.kernel import emit_kernel
from dlc.emission.llvm.value_widths import ValueWidths
from dlc.target import CPU_LEVELS, Target
from tests.backends.cpu.native import LEVELS, grid, parse_kernel, run

BUFFERS = "%x: memref<256xf32>, %y: memref<256xf32>"
READ = """
    %pad = arith.constant 0.0 : f32
    %v = vector.transfer_read %x[%zero], %pad {in_bounds = [true]} : memref<256xf32>, vector<256xf32>"""
WRITE = "vector.transfer_write %r, %y[%zero] {in_bounds = [true]} : vector<256xf32>, memref<256xf32>"


def text_of(body: str, target: Target) -> str:
    return emit_kernel(parse_kernel(grid(READ + body + WRITE, BUFFERS)), target).text


@pytest.mark.parametrize(
    ("size", "pieces"),
    [
        (128, [(64, 64), (64, 64)]),
        (100, [(64, 64), (32, 32), (4, 4)]),
        (37, [(32, 32), (8, 5)]),
        (16, [(16, 16)]),
        (3, [(4, 3)]),
    ],
)
def test_rows_are_split_into_the_widest_values_first(size: int, pieces: list[tuple[int, int]]) -> None:
    assert ValueWidths(16, 64).split(size) == pieces


@pytest.mark.parametrize("target", LEVELS)
def test_elementwise_values_span_four_registers(target: Target) -> None:
    text = text_of("%r = arith.mulf %v, %v : vector<256xf32>", target)
    assert re.findall(r"fmul <(\d+) x float>", text) == [str(4 * target.lanes(4))] * (64 // target.lanes(4))


APART = {
    "a carried sum": """
        %r = scf.for %k = %zero to %one step %one iter_args(%s = %v) -> (vector<256xf32>) {
          %n = arith.mulf %s, %s : vector<256xf32>
          scf.yield %n : vector<256xf32> }""",
    "a sum of products": "%r = vector.fma %v, %v, %v : vector<256xf32>",
    "elements that become narrower": """
        %h = arith.truncf %v : vector<256xf32> to vector<256xf16>
        %r = arith.extf %h : vector<256xf16> to vector<256xf32>""",
    "masks of masks": """
        %m = arith.cmpf olt, %v, %v : vector<256xf32>
        %n = arith.xori %m, %m : vector<256xi1>
        %r = arith.select %n, %v, %v : vector<256xi1>, vector<256xf32>""",
}


@pytest.mark.parametrize("target", LEVELS)
@pytest.mark.parametrize("name", APART)
def test_other_values_span_one_register(name: str, target: Target) -> None:
    text = text_of(APART[name], target)
    assert max(int(n) for n in re.findall(r"<(\d+) x (?:float|i1)>", text)) == target.lanes(4)


@pytest.mark.parametrize("name", ["cpu:generic", "cpu:avx2", "cpu:avx512"])
@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("order", ["%v, %c", "%c, %v"])
@pytest.mark.parametrize("predicate", ["olt", "ogt"])
@pytest.mark.parametrize("limit", [0.0, 6.0])
def test_extrema_are_one_instruction(limit: float, predicate: str, order: str, kind: str, name: str) -> None:
    body = f"""
        %c = arith.constant dense<{limit}> : vector<256xf32>
        %m = arith.cmpf {predicate}, %v, %c : vector<256xf32>
        %r = arith.select %m, {order} : vector<256xi1>, vector<256xf32>"""
    text = emit_kernel(parse_kernel(grid(READ + body + WRITE, BUFFERS).replace("f32", kind)), CPU_LEVELS[name]).text
    code = assembly(text, CPU_LEVELS[name])
    assert re.search(r"\tv?(max|min)p[sd]", code) and not re.search(r"\tv?(cmp\w*p[sd]|andn?p[sd]|blend\w*)\b", code)


@pytest.mark.parametrize("target", LEVELS)
def test_accesses_without_a_single_load_or_store(target: Target) -> None:
    """Strided accesses, accesses that may exceed the buffer, and transposed ones."""
    body = """
        %pad = arith.constant 2.0 : f32
        %even = memref.subview %x[0, 1] [12, 72] [1, 2] : memref<12x160xf32> to memref<12x72xf32, strided<[160, 2], offset: 1>>
        %a = vector.transfer_read %even[%zero, %zero], %pad {in_bounds = [true, true]}
          : memref<12x72xf32, strided<[160, 2], offset: 1>>, vector<8x72xf32>
        %b = vector.transfer_read %x[%p, %at], %pad {in_bounds = [false, false]} : memref<12x160xf32>, vector<8x72xf32>
        %c = vector.transfer_read %z[%zero, %zero], %pad {in_bounds = [true, true],
            permutation_map = affine_map<(d0, d1) -> (d1, d0)>} : memref<72x8xf32>, vector<8x72xf32>
        %s = arith.addf %a, %b : vector<8x72xf32>
        %t = arith.addf %s, %c : vector<8x72xf32>
        %odd = memref.subview %y[0, 0] [8, 72] [1, 2] : memref<8x144xf32> to memref<8x72xf32, strided<[144, 2]>>
        vector.transfer_write %t, %odd[%zero, %zero] {in_bounds = [true, true]}
          : vector<8x72xf32>, memref<8x72xf32, strided<[144, 2]>>"""
    body = "%hundred = arith.constant 100 : index\n%at = arith.addi %p, %hundred : index\n" + body
    kernel = parse_kernel(grid(body, "%x: memref<12x160xf32>, %z: memref<72x8xf32>, %y: memref<8x144xf32>"))
    draw = np.random.default_rng(0)
    x, z = (draw.integers(-99, 99, shape).astype(np.float32) for shape in ((12, 160), (72, 8)))
    (_, _, y) = run(kernel, [x, z, np.zeros((8, 144), np.float32)], target)
    beyond = np.pad(x[:8, 100:], ((0, 0), (0, 12)), constant_values=2)
    np.testing.assert_array_equal(y[:, ::2], x[:8, 1:145:2] + beyond + z.T)
