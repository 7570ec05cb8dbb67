"""Define a custom target: plain C, compiled by the system's `cc`.

    python examples/c_target.py tests/models/small/mnist_cnn.onnx        print the C kernels and results for random inputs
    dlc run tests/models/small/mnist_cnn.onnx --target examples/c_target.py:C        use the target in any command

`SYNTAX` maps each construct of a kernel to GNU C; a vector operation without a C operator is a loop over the vector's lanes.
bf16 and f16 models are not supported.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

import dlc
from dlc.backends.cpu.backend import ObjectBackend
from dlc.compiler import emit as emit_program
from dlc.compiler import load_program
from dlc.emission.c.kernel import KernelSource, emit
from dlc.emission.c.syntax import OPERATORS, Syntax
from dlc.ir import func
from dlc.runtime.cpu.kernel_object import KernelObject
from dlc.runtime.program.host_program import KernelSignature
from dlc.runtime.program.kernel_text import program_text
from dlc.target import CPU_LEVELS


def by_lane(head: str, lane: str) -> str:
    """Return a C function that computes a vector lane by lane."""
    return f"static {{T}} {head}\n{{\n    {{T}} r;\n    for (int i = 0; i < {{n}}; i++) r[i] = {lane};\n    return r;\n}}\n"


COMPARISONS = {"max": ">", "min": "<"}
# Operations that GNU C's vectors lack, as expressions on one lane of each operand.
LANE_CODE = {
    **{f"{name}imumf": f"{{1}} {sign} {{0}} || {{1}} != {{1}} ? {{1}} : {{0}}" for name, sign in COMPARISONS.items()},
    **{f"{name}si": f"{{0}} {sign} {{1}} ? {{0}} : {{1}}" for name, sign in COMPARISONS.items()},
    **{f"{name}ui": f"({{u}}){{0}} {sign} ({{u}}){{1}} ? {{0}} : {{1}}" for name, sign in COMPARISONS.items()},
    **{name: f"__builtin_{name}({{0}})" for name in ("sqrt", "floor", "ceil", "trunc")},
    "absf": "__builtin_fabs({0})",
    "roundeven": "__builtin_rint({0})",
    "copysign": "__builtin_copysign({0}, {1})",
    "shli": "({u}){1} < 8 * sizeof({t}) ? ({u}){0} << {1} : 0",
    "shrui": "({u}){1} < 8 * sizeof({t}) ? ({u}){0} >> {1} : 0",
    "shrsi": "{0} >> (({u}){1} < 8 * sizeof({t}) ? {1} : 8 * sizeof({t}) - 1)",
    "saturate": "{0} != {0} ? 0 : {0} >= MAX({t}) ? MAX({t}) : {0} <= MIN({t}) ? MIN({t}) : ({t}){0}",
}
SYNTAX = Syntax(
    name="C",
    types={"f32": "float", "f64": "double", **{f"{k[0]}{b}": f"{k}{b}_t" for k in ("int", "uint") for b in (8, 16, 32, 64)}},
    vector="{t}_{n}",
    vector_definition="typedef {t} {T} __attribute__((vector_size({n} * sizeof({t}))));\n",
    header="""\
#include <stdbool.h>
#include <stdint.h>
#define MIN(t) ((t)((t)-1 < 0 ? (uintmax_t)1 << (8 * sizeof(t) - 1) : 0))
#define MAX(t) ((t)(MIN(t) - (t)1))
""",
    function="void {name}(int group, {parameters})",
    expressions={
        **OPERATORS,
        **{f"{name}.scalar": f"({{T}})({lane})" for name, lane in LANE_CODE.items()},
        **{f"{name}.vector": f"{name}_{{S}}_{{T}}({{0}}{', {1}' * ('{1}' in lane)})" for name, lane in LANE_CODE.items()},
        "select": "({T})(({0} & ({M}){1}) | (~{0} & ({M}){2}))",
        "infinity": "({T})__builtin_inf()",
        "nan": "({T})__builtin_nan(\"\")",
        "splat": "splat_{T}({0})",
        "lanes": "({T}){{{lanes}}}",
        "lane": "{0}[{i}]",
        "low": "low_{S}({0})",
        "high": "high_{S}({0})",
        "load.vector": "load_{T}({a})",
        "store.vector": "store_{T}({0}, {a})",
        "from_memory.i1.vector": "__builtin_convertvector({0} != 0, {T})",
        "to_memory.i1.vector": "__builtin_convertvector({0} & 1, {T})",
        "convert.vector": "__builtin_convertvector({0}, {T})",
        "bits.scalar": "((union {{ {s} from; {t} to; }}){{{0}}}).to",
        "bits.vector": "({T}){0}",
    },
    definitions={
        **{
            f"{name}.vector": by_lane(
                f"{name}_{{S}}_{{T}}({{S}} a{', {S} b' * ('{1}' in lane)})", lane.replace("{0}", "a[i]").replace("{1}", "b[i]")
            )
            for name, lane in LANE_CODE.items()
        },
        "splat": by_lane("splat_{T}({t} x)", "x"),
        "low": by_lane("low_{S}({S} x)", "x[i]"),
        "high": by_lane("high_{S}({S} x)", "x[i + {n}]"),
        "load.vector": by_lane("load_{T}(const {t} *p)", "p[i]"),
        "store.vector": "static void store_{T}({T} x, {t} *p)\n{\n    for (int i = 0; i < {n}; i++) p[i] = x[i];\n}\n",
    },
)  # fmt: skip


# A kernel object is self-contained: it calls no external function, such as the memset that a compiler recognizes in a loop.
FLAGS = "-c -O2 -march=x86-64-v2 -fPIC -ffreestanding -fwrapv -fno-math-errno -fno-trapping-math -ffp-contract=off -w"
FREESTANDING_FLAGS = "-fno-stack-protector -fno-tree-loop-distribute-patterns -fno-asynchronous-unwind-tables"


class CBackend(ObjectBackend[KernelSource]):
    """Backend that emits kernels as C. dlc runs, caches and saves their object code like that of its own targets."""

    # The version is part of the cache key: compiled models are reused until this file changes.
    target = replace(CPU_LEVELS["cpu:generic"], name="c", version=hashlib.md5(Path(__file__).read_bytes()).hexdigest())
    accepts_symbolic_sizes, listing_formats, suffix, compiler = True, ("c",), "c", "cc"

    def emit(self, kernel: func.FuncOp) -> KernelSource:
        source = emit(kernel, self.target, SYNTAX)
        buffers = [f"a[{k}]" for k in range(len(source.bytes))]
        sizes = [f"(int64_t)a[{k}]" for k in range(len(buffers), len(buffers) + source.sizes)]
        arguments = ", ".join([*buffers, *sizes])
        # The runtime calls grid `g` of a kernel as `<kernel>.<g>`, with an array of buffers and sizes and a task index.
        tasks = [
            f'void run_{name}(void **, int64_t) __asm__("{source.name}.{g}");\n'
            f"void run_{name}(void **a, int64_t task)\n{{\n    {name}(task, {arguments});\n}}\n"
            for g, name in enumerate(f"{source.name}_{g}" for g in range(len(source.grids)))
        ]
        return replace(source, functions="\n".join([source.functions, *tasks]))

    def compile_kernel(self, name: str, text: KernelSource) -> KernelObject:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(
                f"cc {FLAGS} {FREESTANDING_FLAGS} -xc - -o {folder}/o", shell=True, input=text.text.encode(), check=True
            )
            tasks, signature = tuple(grid.groups for grid in text.grids), KernelSignature(text.sizes, text.bytes)
            return KernelObject.of(name, Path(folder, "o").read_bytes(), tasks, signature)

    def show(self, format: str, texts: Mapping[str, KernelSource], headers: Mapping[str, str]) -> str:
        return program_text([replace(t, functions=headers[name] + t.functions) for name, t in texts.items()])


C = CBackend()

if __name__ == "__main__":
    path = Path(sys.argv[1] if len(sys.argv) == 2 else sys.exit(f"usage: {sys.argv[0]} MODEL.onnx"))
    if not path.is_file():
        sys.exit(f"{path}: no such file")
    model = dlc.compile_model(path, target=C)
    arrays = [np.random.default_rng(0).standard_normal(i.shape).astype(i.dtype) for i in model.inputs]
    print(emit_program(load_program(path), "c", C), model(*arrays), sep="\n")
