"""`gpu.subgroup_matmul` in plain OpenCL C, through local memory, for devices without matrix units.

It implements the documentation of the op, not NVIDIA's instruction (`MATRIX_PRODUCTS`), which `test_instructions` compares with
the op; so kernels compute the same on any device. The emulation contains barriers, which could hide missing barriers elsewhere:
for race detection there is a variant in which each work-item works alone, and computes a function of everything that it reads.
"""

from __future__ import annotations

import re
from dataclasses import replace

from dlc.dialects.matrix_multiply import SUBGROUP_ITEMS
from dlc.emission.c.kernel import KernelSource

# The dot product of two words of two elements each.
_WORDS = {
    "bf16": "as_float(a << 16) * as_float(b << 16) + as_float(a & 0xffff0000) * as_float(b & 0xffff0000)",
    "f16": "vload_half(0, (const half *)&a) * vload_half(0, (const half *)&b)\n"
    "        + vload_half(1, (const half *)&a) * vload_half(1, (const half *)&b)",
}
_TEXT = """\
float product_of_words_{dot}(const uint a, const uint b)
{{
    return {product};
}}

float product_of_four_{dot}(const uint4 a, const uint4 b)
{{
    return product_of_words_{dot}(a.s0, b.s0) + product_of_words_{dot}(a.s1, b.s1)
        + product_of_words_{dot}(a.s2, b.s2) + product_of_words_{dot}(a.s3, b.s3);
}}

void multiply_words_{dot}(__local uint4 *shared, float4 *c0, float4 *c1, float4 *c2, float4 *c3, const int4 a0, const int4 a1,
    const int4 b0, const int4 b1, const int4 b2, const int4 b3)
{{
    const int item = get_local_id(0), number = item % {items}, g = number / 4, t = number % 4, first = item - number;
    const uint4 own[6] = {{as_uint4(a0), as_uint4(a1), as_uint4(b0), as_uint4(b1), as_uint4(b2), as_uint4(b3)}};
    for (int i = 0; i < 6; ++i)
        shared[6 * item + i] = own[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    float upper[8] = {{0}}, lower[8] = {{0}};
    for (int i = 0; i < 8; ++i)
        for (int u = 0; u < 4; ++u) {{
            const int column = 8 * t + i;
            __local const uint4 *rows = shared + 6 * (first + 4 * g + u);
            const uint4 words = shared[6 * (first + 4 * (column / 4) + u) + 2 + column % 4];
            upper[i] += product_of_four_{dot}((uint4)(rows[0].s02, rows[1].s02), words);
            lower[i] += product_of_four_{dot}((uint4)(rows[0].s13, rows[1].s13), words);
        }}
    barrier(CLK_LOCAL_MEM_FENCE);
    *c0 += vload4(0, upper), *c1 += vload4(1, upper), *c2 += vload4(0, lower), *c3 += vload4(1, lower);
}}
"""


_ALONE = """\
void multiply_words_{dot}(float4 *c0, float4 *c1, float4 *c2, float4 *c3, const int4 a0, const int4 a1,
    const int4 b0, const int4 b1, const int4 b2, const int4 b3)
{{
    *c0 += convert_float4(a0 ^ b0), *c1 += convert_float4(a1 ^ b1), *c2 += convert_float4(b2), *c3 += convert_float4(b3);
}}
"""


def emulated(source: KernelSource, *, alone: bool = False) -> KernelSource:
    """Rewrite a kernel that uses matrix units so that any device can run it; other kernels are returned unchanged."""
    calls = re.findall(r"multiply_words_(\w+)\(&", source.functions)
    if not calls:
        return source
    dot, items = calls[0], max(grid.items for grid in source.grids)
    kept = [text for text in source.definitions if "multiply_words" not in text]
    if alone:
        return replace(source, definitions=(*kept, _ALONE.format(dot=dot)))
    text = source.functions.replace(f"multiply_words_{dot}(&", f"multiply_words_{dot}(shared, &")
    text = text.replace("\n{\n", f"\n{{\n    __local uint4 shared[{6 * items}];\n")
    return replace(
        source, definitions=(*kept, _TEXT.format(dot=dot, product=_WORDS[dot], items=SUBGROUP_ITEMS)), functions=text
    )
