"""Helper functions for operations that OpenCL C lacks; emission/c/syntax.py documents the template fields."""

from __future__ import annotations

_BITS = """\
    const {U} bits = ({U})(8 * sizeof({t})), amount = as_{U}(b);
"""
# Copy through an aligned array: compilers assume that vload_half and vstore_half of several elements are aligned.
_HALVES = "    ushort bits[{n}] __attribute__((aligned(64)));\n"


def _binary(name: str, *body: str) -> dict[str, str]:
    return {name: f"{{T}} {name}_{{T}}(const {{T}} a, const {{T}} b)\n{{\n{''.join(body)}}}\n"}


def _matrices(dot: str) -> str:
    """Return a function that multiplies matrices with NVIDIA's `mma.sync` in PTX: m16n8k16 on the fragments of a warp.

    The assignment of columns and of k indices is free, so a work-item can hold contiguous words in the order in which an
    instruction takes them.
    """
    lines = [
        f"void multiply_words_{dot}(float4 *c0, float4 *c1, float4 *c2, float4 *c3, const int4 a0, const int4 a1,",
        "    const int4 b0, const int4 b1, const int4 b2, const int4 b3)",
        "{",
        "    float4 s0 = *c0, s1 = *c1, s2 = *c2, s3 = *c3;",
    ]
    for column in range(4):
        for half in range(2):
            sums = ", ".join(f'"+f"(s{i}.s{column})' for i in range(4))
            rows = ", ".join(f'"r"(a{half}.s{k})' for k in range(4))
            words = f'"r"(b{column}.s{2 * half}), "r"(b{column}.s{2 * half + 1})'
            # Volatile: an instruction without side effects could be sunk into a branch, where lanes diverge.
            lines.append(
                f'    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.{dot}.{dot}.f32 {{%0, %1, %2, %3}}, '
                f'{{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};" : {sums} : {rows}, {words});'
            )
    return "\n".join([*lines, "    *c0 = s0, *c1 = s1, *c2 = s2, *c3 = s3;", "}", ""])


MATRIX_PRODUCTS = {dot: _matrices(dot) for dot in ("bf16", "f16")}
DEFINITIONS = {
    **{f"multiply_words.{dot}": text for dot, text in MATRIX_PRODUCTS.items()},
    # CPU compilers ignore OpenCL's own prefetch, and SPIR consumers need not support the builtin.
    "prefetch": """\
#define FETCH_AHEAD(p)
#ifdef __has_builtin
#if __has_builtin(__builtin_prefetch) && !defined(__SPIR__)
#undef FETCH_AHEAD
#define FETCH_AHEAD(p) __builtin_prefetch((const void *)(ulong)(p))
#endif
#endif
""",
    # NaN propagates.
    **_binary("maximumf", "    return ((b > a) | (b != b)) ? b : a;\n"),
    **_binary("minimumf", "    return ((b < a) | (b != b)) ? b : a;\n"),
    **_binary("shli", _BITS, "    return amount < bits ? as_{T}(({U})(as_{U}(a) << amount)) : ({T})(0);\n"),
    **_binary("shrui", _BITS, "    return amount < bits ? as_{T}(({U})(as_{U}(a) >> amount)) : ({T})(0);\n"),
    **_binary("shrsi", _BITS, "    return ({T})(a >> (amount < bits ? b : ({T})(8 * sizeof({t}) - 1)));\n"),
    # OpenCL does not define the conversion of NaN.
    "saturate": """\
{T} {S}_to_{T}(const {S} x)
{
    return convert_{T}_sat(x == x ? x : ({S})(0));
}
""",
    "from_memory.f16.scalar": """\
float half_float(const ushort x)
{
    ushort bits = x;
    return vload_half(0, (const half *)&bits);
}
""",
    "from_memory.f16.vector": f"""\
{{T}} half_{{T}}(const {{S}} x)
{{
{_HALVES}    vstore{{n}}(x, 0, bits);
    return vload_half{{n}}(0, (const half *)bits);
}}
""",
    "to_memory.f16.scalar": """\
ushort half_bits_float(const float x)
{
    ushort bits;
    vstore_half_rte(x, 0, (half *)&bits);
    return x != x ? 0x7e00 : bits;
}
""",
    "to_memory.f16.vector": f"""\
{{T}} half_bits_{{S}}(const {{S}} x)
{{
{_HALVES}    vstore_half{{n}}_rte(x, 0, (half *)bits);
    return convert_{{T}}(x != x) != ({{T}})(0) ? ({{T}})(0x7e00) : vload{{n}}(0, bits);
}}
""",
    "round.f16.scalar": """\
float round_half_float(const float x)
{
    ushort bits;
    vstore_half_rte(x, 0, (half *)&bits);
    return vload_half(0, (const half *)&bits);
}
""",
    "round.f16.vector": f"""\
{{T}} round_half_{{T}}(const {{T}} x)
{{
{_HALVES}    vstore_half{{n}}_rte(x, 0, (half *)bits);
    return vload_half{{n}}(0, (const half *)bits);
}}
""",
    "round.bf16": """\
{T} round_bfloat_{T}(const {T} x)
{
    const {U} bits = as_{U}(x), rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    return as_{T}((x != x ? bits | 0x400000u : rounded) & 0xffff0000u);
}
""",
    # Round to odd (the odd neighbor of the nearest float on the other side of x), so that a second rounding is correct.
    "odd": """\
{T} odd_{T}(const {S} x)
{
    const {T} nearest = convert_{T}(x);
    const {S} back = convert_{S}(nearest);
    const {M} too_large = convert_{M}(fabs(back) > fabs(x)), inexact = convert_{M}((back < x) | (back > x));
    const {M} towards_zero = too_large != 0 ? as_{M}(nearest) - 1 : as_{M}(nearest);
    return as_{T}(inexact != 0 ? towards_zero | 1 : towards_zero);
}
""",
}  # fmt: skip
