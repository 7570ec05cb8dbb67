"""Find the code blocks and commands of the documentation, and prepare the folder in which tests run them.

A command is a line of a block, or inline code that names a file. `NOT_RUN` lists the exceptions with their reasons. Blocks that
quote other files are compared with these files (`QUOTED`).
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
from tests.language_models.models import write_encoder, write_llama

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
HANDWRITTEN = [p for p in PAGES if p.name not in ("ops.md", "passes.md") and not p.name.endswith(".template.md")]

_ENVIRONMENT = "sets up an environment, as .ci/run does"
_SERVER = "runs until it is stopped; tests/serve runs it"
_SUITE = "takes minutes, and some suites need other packages; tests/suites/test_suites.py runs some cases"
_PLUGIN = "needs the example plug-in; tests/plugins/test_example.py runs it in an environment of its own"
# Pages whose Python blocks quote lines of files, and these files. Tests run the files instead.
QUOTED = {
    "tour.md": ["docs/tour.py"],
    "extending.md": [
        "dlc/dialects/dl/arithmetic/elementwise.py",
        "dlc/frontend/onnx/operators/arithmetic/activation.py",
        "examples/c_target.py",
    ],
}
# Commands that tests do not run, and pages whose Python blocks they do not run, with the reasons.
NOT_RUN = {
    "python3 -m venv .venv": _ENVIRONMENT,
    ".venv/bin/pip install -e .": _ENVIRONMENT,
    ". .venv/bin/activate": _ENVIRONMENT,
    "python3 -m venv .venv && .venv/bin/pip install -q -e . && .venv/bin/python examples/identify_file.py "
    "examples/identify_file.py LICENSE": f"{_ENVIRONMENT}, and tests/project/test_examples.py runs the example",
    "python3 -m venv .venv && .venv/bin/pip install -q -e '.[dev,dist]' && .venv/bin/python -m pytest -q -n 2": _ENVIRONMENT,
    "aarch64-linux-gnu-gcc -O2 -pthread run_model.c -o run_model": "needs a cross compiler; tests/deploy uses it if it is installed",
    "python -m tests.backends.opencl.gpu_simulator blazeface_front opencl:gpu --quick": "takes minutes; a test runs a smaller model in the simulator",
    "python -m tests.suites onnx-node [--target opencl] [--dynamic]": _SUITE,
    "dlc serve model.dlc": _SERVER,
    "dlc serve --models folder --streams 2": _SERVER,
    "dlc serve model.gguf --streams 4": _SERVER,
    "dlc serve all-MiniLM-L6-v2": _SERVER,
    "python -m tests.suites numpy [--traced]": _SUITE,
    "python -m tests.suites array-api PATH": _SUITE,
    "python -m tests.suites jax": _SUITE,
    "python -m tests.suites torch-opinfo [--export]": _SUITE,
    "python -m tests.suites torch-rules": _SUITE,
    "python -m tests.suites torch-mlir PATH": _SUITE,
    "python -m tests.suites stablehlo PATH": _SUITE,
    "python -m dlc.testing dlc_soft_clip": _PLUGIN,
    "onnx.md": "creates all tests of the onnx package, which takes ten seconds; tests/test_onnx_backend.py runs some of them",
}
# Optional packages that commands need; without them a command is skipped.
PACKAGES = {
    "dlc bench model.onnx --vs onnxruntime,openvino": ("onnxruntime", "openvino"),
    "dlc compile m.pt2": ("torch",),
    "python -m tests.fuzz onnx_attributes --count 100000 --seed 0 [--jobs 2] [--target reference|cpu]": ("onnxruntime",),
    "python -m tests.fuzz torch_functions --count 100000 --seed 0 [--jobs 2] [--target reference|cpu]": ("torch",),
}
# Commands that fail by design, and a part of their message.
EXPECTED_ERRORS = {
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
class Snippet:
    """A code block, or a command in one, whose `language` is `command`."""

    language: str
    text: str

    @property
    def missing(self) -> str | None:
        """The requirement that this machine does not meet, or None."""
        needs_device = self.language == "command" and "opencl" in self.text and "--target opencl:" not in self.text
        missing = [name for name in PACKAGES.get(self.text, ()) if find_spec(name) is None]
        if target := re.match(r"dlc (?:bench|run) .*--target (cpu:\w+)", self.text):
            missing += host_lacks(resolve(target[1]))
        return f"no {', '.join(missing)}" if missing else "no OpenCL device" if needs_device and not all_devices() else None


def snippets(page: Path) -> Iterator[Snippet]:
    """Return the code blocks and commands of a page, in order."""
    for match in re.finditer(f"{_FENCE}|{_INLINE}", page.read_text(), re.S | re.M):
        if (inline := match["inline"]) is not None:
            yield Snippet("command", inline)
        elif match["language"] in ("", "sh"):
            yield from (Snippet("command", c) for line in match["block"].splitlines() for c in _commands(line))
        else:
            yield Snippet(match["language"], match["block"])


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
    for subfolder in (".", "cases/a", "cases/b", "samples", "data"):
        (folder / subfolder).mkdir(parents=True, exist_ok=True)
        np.save(folder / subfolder / "x.npy", x)
    np.savez(folder / "examples.npz", x=np.tile(x, (16, 1)), targets=np.zeros((64, 3)), labels=np.zeros(64, np.int64))
    for name in ("model", "m", "old", "new", "resnet50"):
        onnx.save(network(_OUTPUTS.get(page.name, ["logits"]), _BATCH_SIZES.get(page.name, 4)), folder / f"{name}.onnx")
    if (prepare_page := _PREPARATIONS.get(page.name)) is not None:
        prepare_page(page, folder)


def dlc(*arguments: str) -> Result:
    """Run a command as if it were typed."""
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def arguments_of(command: str) -> list[str]:
    """Return the arguments of a command as tests run it: the first alternative, one repetition instead of many, and one second of tuning.

    Shell substitutions are replaced by fixed values.
    """
    command = re.sub(r"\[([^]|]*)[^]]*\]", r"\1", command)
    command = re.sub(r"--(count|tune) \d+", r"--\1 1", command)
    return shlex.split(found[1] if (found := re.fullmatch(r'eval "\$\((.*)\)"', command)) else command)


# Outputs of the small network for pages that need others than its logits.
_OUTPUTS = {"debugging.md": ["loss"], "explorer.md": ["logits", "loss"]}


# Batch dimensions of the small network for pages that need a symbolic one.
_BATCH_SIZES = {"autodiff.md": "batch", "concurrency.md": "batch", "deploy.md": "batch", "onnx.md": "batch"}


def network(outputs: Sequence[str], batch: int | str) -> onnx.ModelProto:
    """Build a network that scales rows and has two dense layers, with the selected outputs."""
    rng = np.random.default_rng(0)
    weights = {"w": (32,), "layer4.weight": (32, 8), "fc.weight": (8, 3)}
    shapes = {"y": [batch, 32], "logits": [batch, 3], "loss": []}
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
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 32])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in outputs],
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
    """Write the first Python block of the page, which defines its function, to net.py."""
    (folder / "net.py").write_text(next(snippet.text for snippet in snippets(page) if snippet.language == "python"))


def _dump(page: Path, folder: Path) -> None:
    """Write a dump of the network, an edited module of it, expected outputs, and a command that always fails."""
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
    """Write an exported PyTorch module if PyTorch is installed."""
    if find_spec("torch") is not None:
        import torch

        torch.export.save(torch.export.export(torch.nn.Linear(4, 2), (torch.zeros(3, 4),)), folder / "m.pt2")


def _tflite(page: Path, folder: Path) -> None:
    network = recorded()["dynamic_shapes_float"]
    (folder / "m.tflite").write_bytes(network.file)
    np.save(folder / "x.npy", network.inputs[0])


_PREPARATIONS = {
    "faq.md": _first_block,
    "debugging.md": _dump,
    "command_line.md": _functions,
    "explorer.md": _functions,
    "extending.md": lambda page, folder: shutil.copy(ROOT / "examples" / "c_target.py", folder),
    "deploy.md": lambda page, folder: write_llama(folder / "model.gguf"),
    "embeddings.md": lambda page, folder: write_encoder(folder / "all-MiniLM-L6-v2"),
    "language_models.md": lambda page, folder: write_llama(folder / "model.gguf"),
    "jax.md": lambda page, folder: (folder / "m.mlir").write_text(_STABLEHLO),
    "pytorch.md": _exported,
    "tflite.md": _tflite,
}
