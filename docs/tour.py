"""Generate docs/tour.md: one kernel at every stage, from the compiler's output."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np

import dlc
from dlc import nn
from dlc.compiler import emit
from dlc.dialects.registry import make_context
from dlc.ir import parse_module, print_module
from dlc.target import CPU_LEVELS

# Fixed targets, so that the page does not depend on the machine.
TARGET, GPU = "cpu:avx512_bf16", "opencl:gpu"

random = np.random.default_rng(0)
w = random.standard_normal((3, 3, 64, 64), np.float32)
b = random.standard_normal(64, np.float32)


def block(x, skip):
    y = nn.conv(x, w, strides=(2, 2), padding="same") + b
    return nn.relu(y + skip)


def tour_page() -> str:
    """Return the text of docs/tour.md."""
    image, skip = np.zeros((1, 112, 112, 64), np.float32), np.zeros((1, 56, 56, 64), np.float32)
    program = dlc.jit(block).lower(image, skip).program
    values = {
        "source": inspect.getsource(block).rstrip(),
        "target": TARGET,
        **{s: _readable(emit(program, s, TARGET)) for s in ("dl", "fusion", "linalg", "tiling", "loops", "host")},
    }
    # The host program is the same before and after the kernels.
    for stage in ("linalg", "tiling", "loops"):
        values[stage] = _kernel(values[stage])
    values["host"] = values["host"].partition("\n  builtin.module")[0].partition("\n  dl.kernel")[0] + "\n}"
    llvm = emit(program, "llvm", TARGET)
    kernel = llvm[llvm.index("@conv") :]
    values["llvm_lines"] = str(kernel.count("\n"))
    values["fmas"] = str(len(re.findall(r"call .*@llvm\.fma", kernel)))
    values["vector"] = f"`<{CPU_LEVELS[TARGET].lanes(4)} x float>`"
    opencl = emit(program, "opencl", GPU)
    values["opencl"] = opencl[opencl.rindex("//", 0, opencl.index("void conv")) :].rstrip()
    template = (Path(__file__).parent / "tour.template.md").read_text()
    return re.sub(r"\{\{(\w+)\}\}", lambda m: values[m[1]], template)


def _readable(text: str) -> str:
    return print_module(parse_module(make_context(), text), locations=False).rstrip()


def _kernel(text: str) -> str:
    """Return the function of the convolution only, without indentation."""
    match = re.search(r"^( *)func\.func @conv.*?^\1\}", text, re.S | re.M)
    assert match is not None
    return re.sub(f"^{match[1]}", "", match[0], flags=re.M)
