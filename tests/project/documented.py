"""The code blocks and commands of the documentation, and the folder in which tests run them.

A command is a line of a block, or code in a paragraph that names a file. `UNDONE` lists what is not run as written, with the
reason; blocks that quote other files are compared with these (`QUOTED`).
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

from dlc.cli import main
from dlc.runtime.opencl.devices import all_devices
from dlc.target import host_lacks, resolve
from tests.frontend.tflite.recorded_models import recorded

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
WRITTEN = [p for p in PAGES if p.name not in ("ops.md", "passes.md") and not p.name.endswith(".template.md")]

_ENVIRONMENT = "sets up an environment: .ci/run does that, by the README"
# Pages whose blocks of Python are parts of files that tests run: lines of these.
QUOTED = {
    "tour.md": ["docs/tour.py"],
    "extending.md": [
        "dlc/dialects/dl/arithmetic/elementwise.py",
        "dlc/frontend/onnx/operators/arithmetic/activation.py",
        "examples/c_target.py",
    ],
}
# Commands, and pages by their blocks of Python, that are not run as they stand.
UNDONE = {
    "python3 -m venv .venv": _ENVIRONMENT,
    ".venv/bin/pip install -e .": _ENVIRONMENT,
    ". .venv/bin/activate": _ENVIRONMENT,
    "python3 -m venv .venv && .venv/bin/pip install -q -e . && .venv/bin/python examples/identify_file.py "
    "examples/identify_file.py LICENSE": f"{_ENVIRONMENT}, and tests/project/test_examples.py runs the example",
    "python3 -m venv .venv && .venv/bin/pip install -q -e '.[dev]' && .venv/bin/python -m pytest -q -n 2": _ENVIRONMENT,
    "aarch64-linux-gnu-gcc -O2 -pthread run_model.c -o run_model": "needs that compiler: tests/deploy uses it where it is",
    "python -m tests.backends.opencl.gpu_simulator blazeface_front opencl:gpu --quick": "takes minutes in a simulator; the tests have a small one of it",
    "onnx.md": "makes all of onnx's own tests, ten seconds long: tests/test_onnx_backend.py makes and runs some",
}
# Commands that need packages which are no dependencies: they are run where these are.
PACKAGES = {
    "dlc bench model.onnx --vs onnxruntime,openvino": ("onnxruntime", "openvino"),
    "compile-model m.pt2": ("torch",),
}
# A correct program cannot be reduced, and an edited one differs.
TOLD = {
    "dlc reduce model.onnx": "there is nothing to reduce",
    "dlc reduce wrong/before.mlir --input wrong": "there is nothing to reduce",
    "dlc bisect model.onnx --against ir/edited.mlir": "the programs differ before any pass",
    "dlc diff ir/stage-linalg.mlir ir/edited.mlir": "f32 in kernel @matmul_relu from first, rectified",
}

_FENCE = r"^(?P<indent> *)```(?P<language>\w*)\n(?P<block>.*?)^(?P=indent)```$"
# In a paragraph: code that names a file and is not a command pattern.
_INLINE = r"`(?P<inline>(?:dlc|compile-model) (?![^`]*(?:…|\b[A-Z]{3,}\b))[^`]*\.\w[^`]*)`"
_COMMAND = re.compile(r"(?:\w+=\S+ )?(?:dlc|compile-model|python3?|eval|\.|\.venv/\S+|\S+-gcc|examples/\S+\.py) .*")


@dataclass(frozen=True)
class Piece:
    """A block of a language, or a command in it."""

    language: str
    text: str

    @property
    def missing(self) -> str | None:
        """Return a requirement that this machine does not meet; empty if there is none."""
        needs_device = self.language == "command" and "opencl" in self.text and "--target opencl:" not in self.text
        absent = [name for name in PACKAGES.get(self.text, ()) if find_spec(name) is None]
        if target := re.match(r"dlc (?:bench|run) .*--target (cpu:\w+)", self.text):
            absent += host_lacks(resolve(target[1]))
        return f"no {', '.join(absent)}" if absent else "no OpenCL device" if needs_device and not all_devices() else None


def pieces(page: Path) -> Iterator[Piece]:
    """Return the code blocks and commands of a page, in order."""
    for found in re.finditer(f"{_FENCE}|{_INLINE}", page.read_text(), re.S | re.M):
        if (inline := found["inline"]) is not None:
            yield Piece("command", inline)
        elif found["language"] in ("", "sh"):
            yield from (Piece("command", c) for line in found["block"].splitlines() for c in _commands(line))
        else:
            yield Piece(found["language"], found["block"])


def _commands(line: str) -> Iterator[str]:
    """Return the command on a line, without trailing remarks."""
    command = re.split(r" {3,}(?=[^- ])| #", line.strip())[0].strip()
    if _COMMAND.fullmatch(command):
        yield command


def prepare(page: Path, folder: Path) -> None:
    """Create the files that a page's commands name."""
    for name in ("tests", "examples"):
        (folder / name).symlink_to(ROOT / name)
    x = np.random.default_rng(0).standard_normal((4, 32), np.float32)
    for place in (".", "cases/a", "cases/b", "samples", "data"):
        (folder / place).mkdir(parents=True, exist_ok=True)
        np.save(folder / place / "x.npy", x)
    np.savez(folder / "examples.npz", x=np.tile(x, (16, 1)), targets=np.zeros((64, 3)), labels=np.zeros(64, np.int64))
    for name in ("model", "m", "old", "new", "resnet50"):
        onnx.save(_network(_RESULTS.get(page.name, ["logits"]), _ROWS.get(page.name, 4)), folder / f"{name}.onnx")
    if (more := _MORE.get(page.name)) is not None:
        more(page, folder)


def dlc(*arguments: str) -> Result:
    """Run a command as if it were typed."""
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def typed(command: str) -> list[str]:
    """Return the arguments of a command as tests run it: the first alternative, and one repetition instead of many.

    Shell substitutions are replaced by fixed values.
    """
    command = re.sub(r"\[([^]|]*)[^]]*\]", r"\1", command)
    command = re.sub(r"(?<=--count )\d+", "1", command)
    return shlex.split(found[1] if (found := re.fullmatch(r'eval "\$\((.*)\)"', command)) else command)


# What the small network gives, where it is not its logits alone.
_RESULTS = {"debugging.md": ["loss"], "explorer.md": ["logits", "loss"]}


# Where a batch has other sizes than the rows that there are.
_ROWS = {"autodiff.md": "batch", "deploy.md": "batch", "onnx.md": "batch"}


def _network(results: Sequence[str], rows: int | str) -> onnx.ModelProto:
    """Scales rows, and has two dense layers; what is not asked for can be."""
    rng = np.random.default_rng(0)
    weights = {"w": (32,), "layer4.weight": (32, 8), "fc.weight": (8, 3)}
    shapes = {"y": [rows, 32], "logits": [rows, 3], "loss": []}
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["y"], "scaled"),
        helper.make_node("MatMul", ["y", "layer4.weight"], ["z"], "first"),
        helper.make_node("Relu", ["z"], ["h"], "rectified"),
        helper.make_node("MatMul", ["h", "fc.weight"], ["logits"], "last"),
        helper.make_node("ReduceMean", ["logits"], ["loss"], "mean", keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 32])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in results],
        [numpy_helper.from_array(rng.standard_normal(s, np.float32), n) for n, s in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


_FUNCTIONS = """
import numpy as np
import dlc
import dlc.numpy as dnp

W = np.ones((64, 4), np.float32)

def forward(x):
    return dnp.tanh(x @ W)

def loss(x):
    return forward(x).sum()

def gradient(x):
    return dlc.grad(loss)(x)
"""
_STABLEHLO = """module @m {
  func.func public @main(%arg0: tensor<4x32xf32>) -> (tensor<4x32xf32>) {
    %0 = stablehlo.tanh %arg0 : tensor<4x32xf32>
    return %0 : tensor<4x32xf32>
  }
}
"""


def _first_block(page: Path, folder: Path) -> None:
    """The function that the page is about is in a file."""
    (folder / "net.py").write_text(next(p.text for p in pieces(page) if p.language == "python"))


def _dump(page: Path, folder: Path) -> None:
    """A dump of the network, one of its modules with a mistake, what was computed by it, and a command that finds it bad."""
    dlc("compile", "model.onnx", "--dump-ir", "ir", "-o", "model.dlc")
    text = (folder / "ir" / "stage-linalg.mlir").read_text()
    (folder / "ir" / "edited.mlir").write_text(text.replace("arith.maximumf", "arith.minimumf"))
    dlc("run", "model.onnx", "--input", "x=x.npy", "-o", "expected.npz")
    shutil.copytree(folder / "ir", folder / "wrong")
    (folder / "wrong" / "stage-tiling.mlir").rename(folder / "wrong" / "before.mlir")
    shutil.copy(folder / "x.npy", folder / "wrong")
    (folder / "mytool").write_text("#!/bin/sh\nexit 1\n")
    (folder / "mytool").chmod(0o755)


def _functions(page: Path, folder: Path) -> None:
    (folder / "net.py").write_text(_FUNCTIONS)
    np.savez(folder / "inputs.npz", x=np.ones((8, 64), np.float32))


def _exported(page: Path, folder: Path) -> None:
    """A module of PyTorch, where there is one."""
    if find_spec("torch") is not None:
        import torch

        torch.export.save(torch.export.export(torch.nn.Linear(4, 2), (torch.zeros(3, 4),)), folder / "m.pt2")


def _tflite(page: Path, folder: Path) -> None:
    net = recorded()["dynamic_shapes_float"]
    (folder / "m.tflite").write_bytes(net.file)
    np.save(folder / "x.npy", net.inputs[0])


_MORE = {
    "faq.md": _first_block,
    "debugging.md": _dump,
    "explorer.md": _functions,
    "extending.md": lambda page, folder: shutil.copy(ROOT / "examples" / "c_target.py", folder),
    "jax.md": lambda page, folder: (folder / "m.mlir").write_text(_STABLEHLO),
    "pytorch.md": _exported,
    "tflite.md": _tflite,
}
