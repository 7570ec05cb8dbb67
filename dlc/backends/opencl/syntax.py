"""OpenCL C 1.2 as a dialect of C."""

from __future__ import annotations

from dlc.backends.opencl.functions import DEFINITIONS, MATRIX_PRODUCTS
from dlc.emission.c.syntax import OPERATORS, Syntax

_TYPES = {
    "f32": "float", "f64": "double", "f16": "half", "bf16": "ushort",
    "i8": "char", "i16": "short", "i32": "int", "i64": "long",
    "u8": "uchar", "u16": "ushort", "u32": "uint", "u64": "ulong",
}  # fmt: skip

_UNSIGNED_COMPARISONS = {
    f"cmpi.{name}": f"as_{{V}}({{0}}) {sign} as_{{V}}({{1}})"
    for name, sign in (("ult", "<"), ("ule", "<="), ("ugt", ">"), ("uge", ">="))
}

_OPERANDS = ", ".join(f"{{{k}}}" for k in range(10))
_EXPRESSIONS = {
    **OPERATORS,
    **_UNSIGNED_COMPARISONS,
    # Literals and lanes
    "literal.f16": "(half){0}f",
    "infinity": "INFINITY",
    "infinity.f16": "(half)INFINITY",
    "nan": "({T})NAN",
    "splat": "({T})({0})",
    "lanes": "({T})({lanes})",
    "lane": "{0}.s{x}",
    "low": "{0}.lo",
    "high": "{0}.hi",
    # Memory
    "load.vector": "vload{n}(0, {a})",
    "load.aligned": "*({space}{T} *)({a})",
    "store.vector": "vstore{n}({0}, 0, {a})",
    "store.aligned": "*({space}{T} *)({a}) = {0}",
    "from_memory.i1.vector": "convert_{T}({0} != ({S})(0))",
    "to_memory.i1.vector": "convert_{T}({0} & 1)",
    "from_memory.f16": "half_{T}({0})",
    "to_memory.f16": "half_bits_{S}({0})",
    "from_memory.bf16": "as_{T}(convert_{U}({0}) << 16)",
    "to_memory.bf16": "convert_{T}(as_{V}({0}) >> 16)",
    "prefetch": "FETCH_AHEAD({a})",
    # Conversions
    "convert.vector": "convert_{T}({0})",
    "saturate": "{S}_to_{T}({0})",
    "bits": "as_{T}({0})",
    "odd": "odd_{T}({0})",
    "round.f16": "round_half_{T}({0})",
    "round.bf16": "round_bfloat_{T}({0})",
    # Arithmetic
    "shrui.constant.vector": "as_{T}(as_{U}({0}) >> {1})",
    "fma": "fma({0}, {1}, {2})",
    "maximumf": "maximumf_{T}({0}, {1})",
    "minimumf": "minimumf_{T}({0}, {1})",
    "maxnumf": "fmax({0}, {1})",
    "minnumf": "fmin({0}, {1})",
    **{
        f"{name}.vector": f"as_{{T}}(as_{{U}}({{0}}) {sign} as_{{U}}({{1}}))" for name, sign in (("divui", "/"), ("remui", "%"))
    },
    "sqrt": "sqrt({0})",
    "absf": "fabs({0})",
    "floor": "floor({0})",
    "ceil": "ceil({0})",
    "trunc": "trunc({0})",
    "roundeven": "rint({0})",
    "copysign": "copysign({0}, {1})",
    "maxsi": "max({0}, {1})",
    "minsi": "min({0}, {1})",
    "maxui": "as_{T}(max(as_{U}({0}), as_{U}({1})))",
    "minui": "as_{T}(min(as_{U}({0}), as_{U}({1})))",
    **{name: f"{name}_{{T}}({{0}}, {{1}})" for name in ("shli", "shrsi", "shrui")},
    # Matrices
    **{f"multiply_words.{dot}": f"multiply_words_{dot}({_OPERANDS})" for dot in MATRIX_PRODUCTS},
}

OPENCL = Syntax(
    name="OpenCL C",
    types=_TYPES,
    expressions=_EXPRESSIONS,
    definitions=DEFINITIONS,
    # Multiply-adds are fused only where the kernel has an fma, as on every target.
    header="#pragma OPENCL FP_CONTRACT OFF\n",
    extensions={kind: f"#pragma OPENCL EXTENSION cl_khr_fp{kind[1:]} : enable\n" for kind in ("f16", "f64")},
    function="__kernel __attribute__((reqd_work_group_size({items}, 1, 1)))\nvoid {name}({parameters})",
    group="get_group_id(0)",
    item="get_local_id(0)",
    barrier="barrier({fences});",
    fences={"local": "CLK_LOCAL_MEM_FENCE", "global": "CLK_GLOBAL_MEM_FENCE"},
    unrolled="#pragma unroll",
    rolled="#pragma unroll 1",
    passes_buffer_offsets=True,
    spaces={"global": "__global ", "local": "__local ", "private": ""},
    reserved_words="kernel global local constant private half uchar ushort uint ulong image2d_t sampler_t event_t size_t "
    "step mix sign dot length normalize cross distance clamp radians degrees smoothstep exp log pow sin cos tan tanh",
)
