"""OpenCL C 1.2 as a dialect of C."""

from __future__ import annotations

from dlc.backends.clike.syntax import OPERATORS, Syntax

_TYPES = {
    "f32": "float", "f64": "double", "f16": "half", "bf16": "ushort",
    "i8": "char", "i16": "short", "i32": "int", "i64": "long",
    "u8": "uchar", "u16": "ushort", "u32": "uint", "u64": "ulong",
}  # fmt: skip

_UNSIGNED_COMPARISONS = {
    f"cmpi.{name}": f"as_{{V}}({{0}}) {sign} as_{{V}}({{1}})"
    for name, sign in (("ult", "<"), ("ule", "<="), ("ugt", ">"), ("uge", ">="))
}

_EXPRESSIONS = {
    **OPERATORS,
    **_UNSIGNED_COMPARISONS,
    # Literals and lanes
    "literal.f32": "{0}f",
    "literal.f64": "{0}",
    "literal.f16": "(half){0}f",
    "literal.i8": "(char){0}",
    "literal.i16": "(short){0}",
    "literal.i32": "{0}",
    "literal.i64": "{0}L",
    "infinity": "({T})INFINITY",
    "nan": "({T})NAN",
    "splat": "({T})({0})",
    "lanes": "({T})({lanes})",
    "lane": "{0}.s{x}",
    "lane.dynamic": "lane_{S}({0}, {1})",
    "insert.dynamic": "insert_{S}({0}, {1}, {2})",
    "low": "{0}.lo",
    "high": "{0}.hi",
    # Memory
    "load.scalar": "{p}[{i}]",
    "load.vector": "vload{n}(0, {a})",
    "load.aligned": "*({space}{T} *)({a})",
    "load.i1.scalar": "{p}[{i}] != 0",
    "load.i1.vector": "convert_int{n}(vload{n}(0, {a}) != (uchar{n})(0))",
    "load.f16.scalar": "vload_half(0, {a})",
    "load.f16.vector": "vload_half{n}(0, {a})",
    "load.bf16.scalar": "as_float((uint){p}[{i}] << 16)",
    "load.bf16.vector": "as_float{n}(convert_uint{n}(vload{n}(0, {a})) << 16)",
    "store.scalar": "{p}[{i}] = {0}",
    "store.vector": "vstore{n}({0}, 0, {a})",
    "store.aligned": "*({space}{T} *)({a}) = {0}",
    "store.i1.scalar": "{p}[{i}] = {0}",
    "store.i1.vector": "vstore{n}(convert_uchar{n}({0} & 1), 0, {a})",
    "store.f16.scalar": "vstore_half_rte({0}, 0, {a})",
    "store.f16.vector": "vstore_half{n}_rte({0}, 0, {a})",
    "store.bf16.scalar": "{p}[{i}] = (ushort)(as_uint({0}) >> 16)",
    "store.bf16.vector": "vstore{n}(convert_ushort{n}(as_uint{n}({0}) >> 16), 0, {a})",
    # Conversions
    "convert": "convert_{T}({0})",
    "saturate": "{S}_to_{T}({0})",
    "bits": "as_{T}({0})",
    "odd": "odd_{T}({0})",
    "round.f16": "round_half_{T}({0})",
    "round.bf16": "round_bfloat_{T}({0})",
    "to_bits.f16": "half_bits_{T}({0})",
    "to_bits.bf16.scalar": "(short)(as_int({0}) >> 16)",
    "to_bits.bf16.vector": "convert_short{n}(as_int{n}({0}) >> 16)",
    "from_bits.f16": "bits_half_{T}({0})",
    "from_bits.bf16.scalar": "as_float((int){0} << 16)",
    "from_bits.bf16.vector": "as_{T}(convert_int{n}({0}) << 16)",
    # Arithmetic
    "fma": "fma({0}, {1}, {2})",
    "maximumf": "maximumf_{T}({0}, {1})",
    "minimumf": "minimumf_{T}({0}, {1})",
    "maxnumf": "fmax({0}, {1})",
    "minnumf": "fmin({0}, {1})",
    "sqrt": "sqrt({0})",
    "absf": "fabs({0})",
    "floor": "floor({0})",
    "ceil": "ceil({0})",
    "trunc": "trunc({0})",
    "roundeven": "rint({0})",
    "round": "round({0})",
    "copysign": "copysign({0}, {1})",
    "absi": "as_{T}(abs({0}))",
    "ctpop": "popcount({0})",
    "ctlz": "clz({0})",
    "cttz": "popcount(({T})(~{0} & ({0} - 1)))",
    "maxsi": "max({0}, {1})",
    "minsi": "min({0}, {1})",
    "maxui": "as_{T}(max(as_{U}({0}), as_{U}({1})))",
    "minui": "as_{T}(min(as_{U}({0}), as_{U}({1})))",
    **{
        name: f"{name}_{{T}}({{0}}, {{1}})"
        for name in ("divsi", "divui", "remsi", "remui", "floordivsi", "ceildivsi", "ceildivui")
    },
    **{name: f"{name}_{{T}}({{0}}, {{1}})" for name in ("shli", "shrsi", "shrui")},
}


def _function(parameters: str, *body: str, name: str, result: str = "{T}") -> str:
    lines = "\n".join(f"    {line}" for line in body)
    return f"{result} {name}({parameters})\n{{\n{lines}\n}}\n"


def _binary(name: str, *body: str) -> dict[str, str]:
    return {name: _function("const {T} a, const {T} b", *body, name=f"{name}_{{T}}")}


# A division by zero traps on some devices, and so does that of the most negative number by -1: they divide by one.
_SIGNED = "const {T} one = ({T})(1), zero = ({T})(0), divisor = ((b == zero) | (b == -one)) ? one : b;"
_QUOTIENT = "const {T} quotient = b == zero ? zero : b == -one ? as_{T}(({U})(as_{U}(zero) - as_{U}(a))) : ({T})(a / divisor);"
_REMAINDER = "const {T} remainder = ({T})(a % divisor);"
_UNSIGNED = "const {U} one = ({U})(1), zero = ({U})(0), x = as_{U}(a), y = as_{U}(b), divisor = y == zero ? one : y;"
_BITS = "const {U} bits = ({U})(8 * sizeof({t})), amount = as_{U}(b);"

_DEFINITIONS = {
    # A NaN wins.
    **_binary("maximumf", "return ((b > a) | (b != b)) ? b : a;"),
    **_binary("minimumf", "return ((b < a) | (b != b)) ? b : a;"),
    **_binary("divsi", _SIGNED, _QUOTIENT, "return quotient;"),
    **_binary("remsi", _SIGNED, _REMAINDER, "return remainder;"),
    **_binary("floordivsi", _SIGNED, _QUOTIENT, _REMAINDER, "return ((remainder != zero) & ((a ^ b) < zero)) "
    "? quotient - one : quotient;"),
    **_binary("ceildivsi", _SIGNED, _QUOTIENT, _REMAINDER, "return ((remainder != zero) & ((a ^ b) >= zero)) "
    "? quotient + one : quotient;"),
    **_binary("divui", _UNSIGNED, "return as_{T}(({U})(y == zero ? zero : ({U})(x / divisor)));"),
    **_binary("remui", _UNSIGNED, "return as_{T}(({U})(x % divisor));"),
    **_binary(
        "ceildivui", _UNSIGNED,
        "return as_{T}(({U})(y == zero ? zero : ({U})(x / divisor + (x % divisor != zero ? one : zero))));",
    ),
    **_binary("shli", _BITS, "return amount < bits ? as_{T}(({U})(as_{U}(a) << amount)) : ({T})(0);"),
    **_binary("shrui", _BITS, "return amount < bits ? as_{T}(({U})(as_{U}(a) >> amount)) : ({T})(0);"),
    **_binary("shrsi", _BITS, "return ({T})(a >> (amount < bits ? b : ({T})(8 * sizeof({t}) - 1)));"),
    # What NaN becomes is left open by OpenCL.
    "saturate": _function("const {S} x", "return convert_{T}_sat(x == x ? x : ({S})(0));", name="{S}_to_{T}"),
    "lane.dynamic": _function(
        "const {S} x, const int i", "{s} lanes[{m}];", "vstore{m}(x, 0, lanes);", "return lanes[i];",
        name="lane_{S}", result="{s}",
    ),
    "insert.dynamic": _function(
        "const {T} x, const {t} element, const int i",
        "{t} lanes[{n}];",
        "vstore{n}(x, 0, lanes);",
        "lanes[i] = element;",
        "return vload{n}(0, lanes);",
        name="insert_{T}",
    ),
    "round.f16.scalar": _function(
        "const {T} x", "ushort bits[1];", "vstore_half_rte(x, 0, (half *)bits);", "return vload_half(0, (const half *)bits);",
        name="round_half_{T}",
    ),
    "round.f16.vector": _function(
        "const {T} x", "ushort bits[{n}] __attribute__((aligned(64)));", "vstore_half{n}_rte(x, 0, (half *)bits);",
        "return vload_half{n}(0, (const half *)bits);", name="round_half_{T}",
    ),
    "round.bf16": _function(
        "const {T} x",
        "const {U} bits = as_{U}(x), rounded = bits + 0x7fffu + ((bits >> 16) & 1u);",
        "return as_{T}((x != x ? bits | 0x400000u : rounded) & 0xffff0000u);",
        name="round_bfloat_{T}",
    ),
    "odd": _function(
        "const {S} x",
        "// The nearest float's odd neighbour on the other side of x: a second rounding is correct then.",
        "const {T} nearest = convert_{T}(x);",
        "const {S} back = convert_{S}(nearest);",
        "const {M} too_large = convert_{M}(fabs(back) > fabs(x)), inexact = convert_{M}((back < x) | (back > x));",
        "const {M} towards_zero = too_large != 0 ? as_{M}(nearest) - 1 : as_{M}(nearest);",
        "return as_{T}(inexact != 0 ? towards_zero | 1 : towards_zero);",
        name="odd_{T}",
    ),
    "to_bits.f16.scalar": _function(
        "const {T} x", "short bits[1];", "vstore_half_rte(x, 0, (half *)bits);", "return bits[0];", name="half_bits_{T}",
        result="short",
    ),
    "to_bits.f16.vector": _function(
        "const {T} x", "short bits[{n}] __attribute__((aligned(64)));", "vstore_half{n}_rte(x, 0, (half *)bits);", "return vload{n}(0, bits);",
        name="half_bits_{T}", result="short{n}",
    ),
    "from_bits.f16.scalar": _function(
        "const short x", "short bits[1] = {x};", "return vload_half(0, (const half *)bits);", name="bits_half_{T}"
    ),
    "from_bits.f16.vector": _function(
        "const short{n} x", "short bits[{n}] __attribute__((aligned(64)));", "vstore{n}(x, 0, bits);", "return vload_half{n}(0, (const half *)bits);",
        name="bits_half_{T}",
    ),
}  # fmt: skip

OPENCL = Syntax(
    name="OpenCL C",
    types=_TYPES,
    expressions=_EXPRESSIONS,
    definitions=_DEFINITIONS,
    # Sums and products are fused where the kernel says so, as on every target.
    header="#pragma OPENCL FP_CONTRACT OFF\n",
    extensions={kind: f"#pragma OPENCL EXTENSION cl_khr_fp{kind[1:]} : enable\n" for kind in ("f16", "f64")},
    function="__kernel __attribute__((reqd_work_group_size({items}, 1, 1)))\nvoid {name}({parameters})",
    group="get_group_id(0)",
    item="get_local_id(0)",
    barrier="barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);",
    spaces={"global": "__global ", "local": "__local ", "private": ""},
    words="kernel global local constant private half uchar ushort uint ulong image2d_t sampler_t event_t size_t "
    "step mix sign dot length normalize cross distance clamp radians degrees smoothstep exp log pow sin cos tan tanh",
)
