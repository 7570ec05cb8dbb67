"""A target of one's own: plain C, compiled by the system's `cc` and loaded with ctypes.

    python examples/c_target.py tests/models/small/mnist_cnn.onnx        prints the kernels' C, and results for random inputs

`C` says how GNU C spells what kernels need; what its vectors lack is a loop over their lanes. Models of halves are refused.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dlc.backends.host_program import FIRST_INPUT, HostProgram, weight_array
from dlc.backends.read_host import read_host
from dlc.compiler.lowering import Lowering
from dlc.compiler.program import load_program
from dlc.emission.c.kernel import KernelSource, emit, program_text
from dlc.emission.c.syntax import OPERATORS, Syntax
from dlc.instrument.report import Report
from dlc.model import Model, Run
from dlc.options import Options
from dlc.passes.base import kernels_of
from dlc.target import resolve
from dlc.weights import WeightStore

TARGET = resolve("opencl:cpu128")  # tiles for a processor with registers of 128 bits


def by_lane(head: str, lane: str) -> str:
    """A function that computes a vector lane by lane."""
    return f"static {{T}} {head}\n{{\n    {{T}} r;\n    for (int i = 0; i < {{n}}; i++) r[i] = {lane};\n    return r;\n}}\n"


BETTER = {"max": ">", "min": "<"}
# One lane of what GNU C's vectors have no operator for, from lanes of the operands.
LANES = {
    **{f"{name}imumf": f"{{1}} {sign} {{0}} || {{1}} != {{1}} ? {{1}} : {{0}}" for name, sign in BETTER.items()},
    **{f"{name}si": f"{{0}} {sign} {{1}} ? {{0}} : {{1}}" for name, sign in BETTER.items()},
    **{f"{name}ui": f"({{u}}){{0}} {sign} ({{u}}){{1}} ? {{0}} : {{1}}" for name, sign in BETTER.items()},
    **{name: f"__builtin_{name}({{0}})" for name in ("sqrt", "floor", "ceil", "trunc")},
    "absf": "__builtin_fabs({0})",
    "roundeven": "__builtin_rint({0})",
    "copysign": "__builtin_copysign({0}, {1})",
    "shli": "({u}){1} < 8 * sizeof({t}) ? ({u}){0} << {1} : 0",
    "shrui": "({u}){1} < 8 * sizeof({t}) ? ({u}){0} >> {1} : 0",
    "shrsi": "{0} >> (({u}){1} < 8 * sizeof({t}) ? {1} : 8 * sizeof({t}) - 1)",
    "saturate": "{0} != {0} ? 0 : {0} >= MOST({t}) ? MOST({t}) : {0} <= LEAST({t}) ? LEAST({t}) : ({t}){0}",
}
C = Syntax(
    name="C",
    types={"f32": "float", "f64": "double", **{f"{k[0]}{b}": f"{k}{b}_t" for k in ("int", "uint") for b in (8, 16, 32, 64)}},
    vector="{t}_{n}",
    vector_definition="typedef {t} {T} __attribute__((vector_size({n} * sizeof({t}))));\n",
    header="""\
#include <stdbool.h>
#include <stdint.h>
#define LEAST(t) ((t)((t)-1 < 0 ? (uintmax_t)1 << (8 * sizeof(t) - 1) : 0))
#define MOST(t) ((t)(LEAST(t) - (t)1))
""",
    function="void {name}(int group, {parameters})",
    expressions={
        **OPERATORS,
        **{f"{name}.scalar": f"({{T}})({lane})" for name, lane in LANES.items()},
        **{f"{name}.vector": f"{name}_{{S}}_{{T}}({{0}}{', {1}' * ('{1}' in lane)})" for name, lane in LANES.items()},
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
            for name, lane in LANES.items()
        },
        "splat": by_lane("splat_{T}({t} x)", "x"),
        "low": by_lane("low_{S}({S} x)", "x[i]"),
        "high": by_lane("high_{S}({S} x)", "x[i + {n}]"),
        "load.vector": by_lane("load_{T}(const {t} *p)", "p[i]"),
        "store.vector": "static void store_{T}({T} x, {t} *p)\n{\n    for (int i = 0; i < {n}; i++) p[i] = x[i];\n}\n",
    },
)  # fmt: skip


def runner(host: HostProgram, kernels: dict[str, KernelSource], library: ctypes.CDLL, weights: WeightStore) -> Run:
    """Runs the launches of a host program, on kernels in a shared library."""
    constants = [weight_array(info, weights) for info in host.weights]

    def run(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        outputs = [np.empty([int(n) for n in info.shape], info.dtype) for info in host.outputs]
        buffers = [*[np.empty(host.arena_bytes, np.uint8)] * FIRST_INPUT, *inputs, *outputs, *constants]
        for launch in host.launches:
            places = [ctypes.c_void_p(buffers[b].ctypes.data + offset) for b, offset in launch.arguments]
            if launch.kernel is None:
                ctypes.memmove(places[0], places[1], launch.arguments[2][1])
                continue
            for g, grid in enumerate(kernels[launch.kernel].grids):
                for group in range(grid.groups):
                    library[f"{launch.kernel}_{g}"](group, *places)
        return outputs

    return run


def compile_c(path: Path, folder: Path) -> tuple[Model, str]:
    """The model in an ONNX file, compiled in a folder, and its C."""
    program = load_program(path)
    lowering = Lowering(program, TARGET, Options(), Report())
    lowering.run((*lowering.stages(kernels=False), *lowering.stages(kernels=True)))
    kernels = [emit(kernel, TARGET, C) for kernel in kernels_of(lowering.module)]
    source, library = folder / "kernels.c", folder / "kernels.so"
    source.write_text(program_text(kernels))
    subprocess.run(["cc", "-O2", "-fwrapv", "-w", "-shared", "-fPIC", "-o", library, source, "-lm"], check=True)
    lowering.host()
    run = runner(read_host(lowering.module), {k.name: k for k in kernels}, ctypes.CDLL(str(library)), lowering.weights)
    return Model(program.inputs, program.outputs, run, program.name), source.read_text()


if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) == 2 else sys.exit(f"usage: {sys.argv[0]} MODEL.onnx")
    with tempfile.TemporaryDirectory() as folder:
        model, code = compile_c(Path(path), Path(folder))
        arrays = [np.random.default_rng(0).standard_normal(i.shape).astype(i.dtype) for i in model.inputs]
        print(code, model(*arrays), sep="\n")
