"""The text of kernels in OpenCL C; test_emit_ops.py checks their results."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlc.backends.opencl.emit import emit_kernel
from dlc.compiler import emit, load_program
from dlc.errors import UnsupportedError
from dlc.runtime.program.kernel_text import Grid, program_text
from dlc.target import OPENCL_PROFILES
from tests.backends.cpu.native import grid, parse_kernel
from tests.models.skeletons import path_of

CPU = OPENCL_PROFILES["opencl:cpu512"]
GPU = OPENCL_PROFILES["opencl:gpu"]


def text_of(body: str, arguments: str, points: int = 1) -> str:
    """Return the functions of a kernel with one grid."""
    return emit_kernel(parse_kernel(grid(body, arguments, points)), CPU).functions


TILE = """
    %start = arith.constant dense<0.0> : vector<2x20xf32>
    %pad = arith.constant 0.0 : f32
    %three = arith.constant 3 : index
    %outer = scf.for %k0 = %zero to %three step %one iter_args(%acc = %start) -> (vector<2x20xf32>) {
      %inner = scf.for %k1 = %zero to %three step %one iter_args(%acc1 = %acc) -> (vector<2x20xf32>) {
        %a = vector.transfer_read %x[%p, %k0, %k1], %pad {in_bounds = [true, true],
            permutation_map = affine_map<(d0, d1, d2) -> (d1, 0)>} : memref<4x8x8xf32>, vector<2x20xf32>
        %b = vector.transfer_read %w[%k0, %k1, %zero], %pad {in_bounds = [true, true],
            permutation_map = affine_map<(d0, d1, d2) -> (0, d2)>} : memref<3x3x20xf32>, vector<2x20xf32>
        %fma = vector.fma %a, %b, %acc1 : vector<2x20xf32>
        scf.yield %fma : vector<2x20xf32>
      }
      scf.yield %inner : vector<2x20xf32>
    }
    %y_tile = memref.subview %y[%p, 0, 0] [1, 2, 20] [1, 1, 1] : memref<4x2x20xf32> to
      memref<2x20xf32, strided<[20, 1], offset: ?>>
    vector.transfer_write %outer, %y_tile[%zero, %zero] {in_bounds = [true, true]}
      : vector<2x20xf32>, memref<2x20xf32, strided<[20, 1], offset: ?>>"""
TILE_ARGUMENTS = "%x: memref<4x8x8xf32>, %w: memref<3x3x20xf32>, %y: memref<4x2x20xf32>"


def test_a_tile_accumulates_into_one_set_of_variables() -> None:
    assert (
        text_of(TILE, TILE_ARGUMENTS, points=4)
        == """\
// 4 groups of 1
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void k_0(
    __global const char *restrict x_memory, const long x_start /* 4x8x8 */,
    __global const char *restrict w_memory, const long w_start /* 3x3x20 */,
    __global char *restrict y_memory, const long y_start /* 4x2x20 */)
{
    __global const float *x = (__global const float *)(x_memory + x_start);
    __global const float *w = (__global const float *)(w_memory + w_start);
    __global float *y = (__global float *)(y_memory + y_start);
    const int group = get_group_id(0);
    float16 acc_0_0 = (float16)(0.0f);
    float4 acc_0_1 = (float4)(0.0f);
    float16 acc_1_0 = (float16)(0.0f);
    float4 acc_1_1 = (float4)(0.0f);
    __global const float *x_1 = x + group * 64;
    for (int k0 = 0; k0 < 3; ++k0) {
        __global const float *x_2 = x_1 + k0 * 8;
        __global const float *w_1 = w + k0 * 60;
        for (int k1 = 0; k1 < 3; ++k1) {
            const float16 b_0_0 = vload16(0, w_1 + k1 * 20);
            acc_0_0 = fma((float16)(x_2[k1]), b_0_0, acc_0_0);
            const float4 b_0_1 = *(__global const float4 *)(w_1 + (k1 * 20 + 16));
            acc_0_1 = fma((float4)(x_2[k1]), b_0_1, acc_0_1);
            acc_1_0 = fma((float16)(x_2[k1 + 8]), b_0_0, acc_1_0);
            acc_1_1 = fma((float4)(x_2[k1 + 8]), b_0_1, acc_1_1);
        }
    }
    vstore16(acc_0_0, 0, y + group * 40);
    *(__global float4 *)(y + (group * 40 + 16)) = acc_0_1;
    vstore16(acc_1_0, 0, y + (group * 40 + 20));
    *(__global float4 *)(y + (group * 40 + 36)) = acc_1_1;
}
"""
    )


def test_every_grid_is_a_function() -> None:
    one = """"scf.parallel"(%zero, %points, %one) <{operandSegmentSizes = array<i32: 1, 1, 1, 0>}> ({
      ^bb0(%p: index):
        memref.store %f, %y[%p] : memref<4xf32>
        "scf.reduce"() : () -> ()
      }) {level = "grid"} : (index, index, index) -> ()"""
    source = emit_kernel(
        parse_kernel(f"""func.func @k(%y: memref<4xf32>) attributes {{kernel}} {{
      %zero = arith.constant 0 : index
      %one = arith.constant 1 : index
      %points = arith.constant 4 : index
      %f = arith.constant 1.5 : f32
      {one}
      memref.store %f, %y[%one] : memref<4xf32>
      {one}
      func.return
    }}"""),
        CPU,
    )
    assert source.grids == (Grid(4, 1), Grid(1, 1), Grid(4, 1))
    assert [f"void k_{g}(" in source.text for g in range(4)] == [True, True, True, False]


def test_indices_are_ints_and_divide_where_they_must() -> None:
    body = """
        %c32 = arith.constant 32 : index
        %c5 = arith.constant 5 : index
        %scaled = arith.muli %p, %c32 : index
        %moved = arith.addi %scaled, %c5 : index
        %panel = arith.divui %moved, %c32 : index
        %lane = arith.remui %moved, %c32 : index
        %part = arith.divui %p, %c5 : index
        %f = memref.load %x[%panel, %lane] : memref<64x32xf32>
        memref.store %f, %x[%part, %lane] : memref<64x32xf32>"""
    text = text_of(body, "%x: memref<64x32xf32>", points=64)
    assert "const int part = group / 5;" in text
    assert "x[part * 32 + 5] = x[group * 32 + 5];" in text


def test_long_indices_are_longs() -> None:
    body = """
        %i = memref.load %at[%zero] : memref<1xindex>
        %f = memref.load %x[%i] : memref<9xf32>
        memref.store %f, %x[%zero] : memref<9xf32>"""
    assert "const long i = at[0];" in text_of(body, "%at: memref<1xindex>, %x: memref<9xf32>")


def test_names_do_not_hide_the_language() -> None:
    body = "%fma = memref.load %max[%p] : memref<4xf32>\n memref.store %fma, %float[%p] : memref<4xf32>"
    text = text_of(body, "%max: memref<4xf32>, %float: memref<4xf32>", points=4)
    assert "float_1[group] = max_1[group];" in text


def test_unused_definitions_are_removed() -> None:
    body = """%f = memref.load %x[%p] : memref<4xf32>
        %unused = arith.addf %f, %f : f32
        memref.store %f, %y[%p] : memref<4xf32>"""
    text = text_of(body, "%x: memref<4xf32>, %y: memref<4xf32>", points=4)
    assert "unused" not in text
    assert "    y[group] = x[group];" in text


def test_origins_are_comments() -> None:
    body = """%f = memref.load %x[%p] : memref<4xf32> loc("#0")
        memref.store %f, %y[%p] : memref<4xf32> loc("#1")"""
    assert "    // #1\n    y[group]" in text_of(body, "%x: memref<4xf32>, %y: memref<4xf32>", points=4)


HALVES = """%v_pad = arith.constant 0.0 : f16
%v = vector.transfer_read %x[%zero], %v_pad {in_bounds = [true]} : memref<16xf16>, vector<16xf16>
    %sum = arith.addf %v, %v : vector<16xf16>
    vector.transfer_write %sum, %x[%zero] {in_bounds = [true]} : vector<16xf16>, memref<16xf16>"""


@pytest.mark.parametrize(("elements", "loads"), [(18, "float2"), (20, "float4"), (24, "float8"), (32, "float8")])
def test_array_alignment_follows_from_array_size(elements: int, loads: str) -> None:
    """Arrays may be consecutive elements of a sequence."""
    moves = "".join(
        f"""
        %pad{n} = arith.constant 0.0 : f32
        %v{n} = vector.transfer_read %x[%zero], %pad{n} {{in_bounds = [true]}} : memref<{elements}xf32>, vector<{n}xf32>
        vector.transfer_write %v{n}, %y[%zero] {{in_bounds = [true]}} : vector<{n}xf32>, memref<16xf32>"""
        for n in (2, 4, 8)
    )
    text = text_of(moves, f"%x: memref<{elements}xf32>, %y: memref<16xf32>")
    aligned = [f"float{n}" for n in (2, 4, 8) if f"*(__global const float{n} *)(x)" in text]
    assert aligned == ["float2", "float4", "float8"][: len(aligned)] and aligned[-1] == loads


def test_halves() -> None:
    kernel = parse_kernel(grid(HALVES, "%x: memref<16xf16>"))
    native, stored = (emit_kernel(kernel, replace(CPU, has_f16=has_f16)).text for has_f16 in (True, False))
    assert "#pragma OPENCL EXTENSION cl_khr_fp16 : enable" in native
    assert "const half16 sum = v + v;" in native
    assert "cl_khr_fp16" not in stored
    assert "__global ushort *x = " in stored
    assert "const float16 sum = round_half_float16(v + v);" in stored


def test_unsupported_doubles_are_refused() -> None:
    kernel = parse_kernel(grid(HALVES.replace("f16", "f64"), "%x: memref<16xf64>"))
    assert "double16" in emit_kernel(kernel, CPU).text
    with pytest.raises(UnsupportedError, match="kernel @k: target opencl:small does not compute in f64"):
        emit_kernel(kernel, OPENCL_PROFILES["opencl:small"])


def test_items_share_local_memory() -> None:
    body = """
        %shared = memref.alloca() : memref<64xf32, #gpu.address_space<workgroup>>
        %items = arith.constant 64 : index
        "scf.parallel"(%zero, %items, %one) <{operandSegmentSizes = array<i32: 1, 1, 1, 0>}> ({
        ^bb1(%i: index):
          %f = memref.load %x[%p, %i] : memref<4x64xf32>
          memref.store %f, %shared[%i] : memref<64xf32, #gpu.address_space<workgroup>>
          "gpu.barrier"() : () -> ()
          %last = arith.constant 63 : index
          %j = arith.subi %last, %i : index
          %g = memref.load %shared[%j] : memref<64xf32, #gpu.address_space<workgroup>>
          memref.store %g, %y[%p, %i] : memref<4x64xf32>
          "scf.reduce"() : () -> ()
        }) {level = "item"} : (index, index, index) -> ()"""
    source = emit_kernel(parse_kernel(grid(body, "%x: memref<4x64xf32>, %y: memref<4x64xf32>", points=4)), GPU)
    assert source.grids == (Grid(4, 64, 256),)
    assert "reqd_work_group_size(64, 1, 1)" in source.text
    assert (
        """\
    __local float shared[64] __attribute__((aligned(64)));
    __global const float *x = (__global const float *)(x_memory + x_start);
    __global float *y = (__global float *)(y_memory + y_start);
    const int group = get_group_id(0);
    const int item = get_local_id(0);
    shared[item] = x[group * 64 + item];
    barrier(CLK_LOCAL_MEM_FENCE);
    y[group * 64 + item] = shared[63 - item];
"""
        in source.text
    )
    # Reading what other work-items wrote to global memory needs a global fence.
    other = body.replace("memref.store %f, %shared[%i]", "memref.store %f, %x[%p, %i]").replace(
        "%x[%p, %i] : memref<64xf32, #gpu.address_space<workgroup>>", "%x[%p, %i] : memref<4x64xf32>"
    )
    text = emit_kernel(parse_kernel(grid(other, "%x: memref<4x64xf32>, %y: memref<4x64xf32>", points=4)), GPU).text
    assert "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);" in text


def test_unroll_pragmas() -> None:
    body = """
        %four = arith.constant 4 : index
        scf.for %i = %zero to %four step %one {
          %f = memref.load %x[%i] : memref<4xf32>
          memref.store %f, %y[%i] : memref<4xf32>
        } {unrolled}"""
    text = text_of(body, "%x: memref<4xf32>, %y: memref<4xf32>")
    assert "    #pragma unroll\n    for (int i = 0; i < 4; ++i) {\n        y[i] = x[i];\n    }\n" in text


def test_kernels_of_a_program_share_definitions() -> None:
    body = """%v_pad = arith.constant 0.0 : f32
%v = vector.transfer_read %x[%zero], %v_pad {in_bounds = [true]} : memref<16xf32>, vector<16xf32>
        %w_pad = arith.constant 0.0 : f32
        %w = vector.transfer_read %y[%zero], %w_pad {in_bounds = [true]} : memref<16xf32>, vector<16xf32>
        %most = arith.maximumf %v, %w : vector<16xf32>
        vector.transfer_write %most, %y[%zero] {in_bounds = [true]} : vector<16xf32>, memref<16xf32>"""
    text = grid(body, "%x: memref<16xf32>, %y: memref<16xf32>")
    kernels = [emit_kernel(parse_kernel(text.replace("@k", f"@{name}")), CPU) for name in ("a", "b")]
    program = program_text(kernels)
    assert program.count("float16 maximumf_float16(const float16 a") == 1
    assert program.count("__kernel") == 2
    assert program.count("#pragma") == 1


def test_shifts_by_constants_use_operators() -> None:
    body = """
        %seven = arith.constant dense<7> : vector<4xi32>
        %far = arith.constant dense<32> : vector<4xi32>
        %v_pad = arith.constant 0 : i32
        %v = vector.transfer_read %x[%zero], %v_pad {in_bounds = [true]} : memref<4xi32>, vector<4xi32>
        %a = arith.shli %v, %seven : vector<4xi32>
        %b = arith.shrui %a, %seven : vector<4xi32>
        %c = arith.shrsi %b, %seven : vector<4xi32>
        %d = arith.shli %c, %far : vector<4xi32>
        vector.transfer_write %d, %x[%zero] {in_bounds = [true]} : vector<4xi32>, memref<4xi32>"""
    text = text_of(body, "%x: memref<4xi32>")
    assert (
        """ << 7;
    const int4 b = as_int4(as_uint4(a) >> 7);
    const int4 c = b >> 7;
    const int4 d = shli_int4(c, (int4)(32));
"""
        in text
    )


def test_offsets_beyond_an_int_are_longs() -> None:
    body = """
        %f = memref.load %x[%p, %zero] : memref<4x1000000000xf32>
        memref.store %f, %x[%zero, %p] : memref<4x1000000000xf32>"""
    text = text_of(body, "%x: memref<4x1000000000xf32>", points=4)
    assert "x[group] = x[(long)group * 1000000000];" in text


def test_loop_steps_are_known_divisors() -> None:
    body = """
        %c8 = arith.constant 8 : index
        %c64 = arith.constant 64 : index
        scf.for %i = %zero to %c64 step %c8 {
          %moved = arith.addi %i, %p : index
          %lane = arith.remui %moved, %c8 : index
          %v_pad = arith.constant 0.0 : f32
          %v = vector.transfer_read %x[%i], %v_pad {in_bounds = [true]} : memref<64xf32>, vector<8xf32>
          %w_pad = arith.constant 0.0 : f32
          %w = vector.transfer_read %x[%lane], %w_pad {in_bounds = [true]} : memref<64xf32>, vector<8xf32>
          %sum = arith.addf %v, %w : vector<8xf32>
          vector.transfer_write %sum, %x[%i] {in_bounds = [true]} : vector<8xf32>, memref<64xf32>
        }"""
    text = text_of(body, "%x: memref<64xf32>", points=8)
    assert "= *(__global float8 *)(x + i) + vload8(0, x_1);" in text
    assert "x_1 = x + group;" in text


def test_kernels_have_comments_with_their_layers() -> None:
    text = emit(load_program(path_of("mnist_cnn")), "opencl", "opencl:gpu")
    assert '// kernel @conv_add_relu_1: 1 run; loc("#k") is the k-th origin' in text
    assert "//   #0 node_conv2d_1, #1 node_relu_1\n" in text


def test_prefetch_uses_the_builtin_if_available() -> None:
    body = """
        %i = arith.addi %p, %one : index
        "memref.prefetch"(%x, %i) <{isWrite = false, localityHint = 3 : i32, isDataCache = true}> : (memref<4xf32>, index) -> ()"""
    kernel = parse_kernel(grid(body, "%x: memref<4xf32>", points=4))
    text = emit_kernel(kernel, CPU).text
    assert "#if __has_builtin(__builtin_prefetch) && !defined(__SPIR__)" in text
    assert "    FETCH_AHEAD(x + (group + 1));" in text


def test_broadcast_elements_are_loaded_as_vectors() -> None:
    body = """
        %v_pad = arith.constant 0.0 : f32
        %v = vector.transfer_read %x[%zero, %p], %v_pad
            {in_bounds = [true, true], permutation_map = affine_map<(d0, d1) -> (d0, 0)>}
            : memref<8x4xf32, strided<[1, 8]>>, vector<8x4xf32>
        vector.transfer_write %v, %y[%zero, %zero] {in_bounds = [true, true]} : vector<8x4xf32>, memref<8x4xf32>"""
    kernel = parse_kernel(grid(body, "%x: memref<8x4xf32, strided<[1, 8]>>, %y: memref<8x4xf32>", points=4))
    items, processor = (emit_kernel(kernel, target).text for target in (GPU, CPU))
    assert "const float4 v_0 = *(__global const float4 *)(x + group * 8);" in items
    assert "= (float4)(v_0.s1);" in items and "x + (group * 8 + 4)" in items
    assert "x[group * 8 + 1]" in processor and "(__global const float4 *)" not in processor
