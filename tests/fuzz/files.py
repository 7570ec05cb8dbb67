"""Mutate model files: reading one must raise a DlcError with a message, or give a model that computes as specified."""

from __future__ import annotations

import random
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto

import dlc
from dlc.backends.reference import evaluate
from dlc.backends.registry import backend_of
from dlc.caching.cache import Cache
from dlc.compiler import Program, compile, load_program
from dlc.compiler.compilation import Compilation
from dlc.compiler.lowering import Lowering
from dlc.errors import CompileError, DlcError
from dlc.frontend.onnx import import_model
from dlc.instrument.dump import WEIGHTS, module_text
from dlc.instrument.reproducer import environment_prefix
from dlc.ir import TensorType
from dlc.options import Options
from dlc.runtime.load import program_in
from dlc.runtime.models.model import Model
from dlc.runtime.opencl.artifact import DeviceArtifact
from dlc.runtime.opencl.build import Builder
from dlc.runtime.opencl.devices import all_devices
from dlc.shapes.dims import Dim
from dlc.testing.sample import values
from tests.deploy.mesh_model import on_mesh
from tests.frontend.tflite.recorded_models import recorded
from tests.fuzz import checkpoints, mutations
from tests.fuzz.bounded_value import difference
from tests.fuzz.program_bounds import expected_results
from tests.fuzz.supervise import run_supervised
from tests.fuzz.trials import TrialOutcome, trial_outcomes
from tests.models.skeletons import FOLDER, PRETRAINED
from tests.shapes.data_dependent_models import positive, some_sizes
from tests.suites.onnx_node import cases

# Limits for one file: seconds, and memory in addition to that of the process when it starts.
TIMEOUT_SECONDS, MEMORY_LIMIT_BYTES = 60, 4 << 30
# Only small programs are compiled and run: mostly by the reference, which shares all target-independent passes.
MAX_ELEMENTS, MAX_OPS, NATIVE_SHARE = 20_000, 60, 0.2
OPTIONS = Options(num_threads=1, workers=1, cache=False)
# Whether modules of a stage are run. Those of lower stages address memory directly, so that a mutated one may crash.
STAGES = {"dl": True, "fusion": True, "linalg": False, "tiling": False, "loops": False}
# Models whose dumped modules are mutated, or subgraphs of them between two tensors, since long modules are slow to parse.
_DUMPED_SUBGRAPHS = {
    "mnist_cnn": ("input", "max_pool2d"),
    "mnist_cnn_int8_qdq": ("input", "relu_QuantizeLinear_Output"),
    "scan_rnn": (),
    "loop_if_script": (),
}
_COMPILED_MODELS = ("mnist_cnn", "mnist_cnn_int8_qdq")


@dataclass(frozen=True)
class Trial:
    """A mutated file of a family."""

    seed: int
    family: str

    def __str__(self) -> str:
        command = f"{environment_prefix()}python -m tests.fuzz files --seed {self.seed} --count 1 --of {self.family}"
        return f"seed {self.seed}: reproduce: {command}"


def trials(seed: int, count: int, families: Sequence[str]) -> list[Trial]:
    """Return the trials of `count` seeds from `seed` on, of the families in turn."""
    return [Trial(s, families[s % len(families)]) for s in range(seed, seed + count)]


def fuzz(selected_trials: Sequence[Trial], jobs: int) -> Iterator[TrialOutcome[Trial]]:
    """Yield the outcome of each trial, with a description of a failure or None."""
    with tempfile.TemporaryDirectory() as folder:
        for t in {t.family for t in selected_trials}:
            prepare(t)
        tempfile.tempdir = folder
        try:
            yield from trial_outcomes(
                run, selected_trials, jobs, TIMEOUT_SECONDS, memory=MEMORY_LIMIT_BYTES, items_per_child=40
            )
        finally:
            tempfile.tempdir = None


def run(trial: Trial) -> tuple[str, str | None]:
    """Create and read the file of a trial; return its outcome, and a description of a failure or None."""
    with tempfile.TemporaryDirectory() as folder:
        rng = random.Random(f"{trial.family}{trial.seed}")
        path = FAMILIES[trial.family](Path(folder), rng)
        try:
            return read(path, "cpu" if rng.random() < NATIVE_SHARE else "reference"), None
        except CompileError as error:
            # In IR below `dl`, a mutation may break invariants between passes. A model must never cause a CompileError.
            excused = path.suffix == ".mlir" and not STAGES[path.stem]
            return "refused", None if excused else f"CompileError: {error}\n{traceback.format_exc()}"
        except DlcError as error:
            return "refused", None if str(error).strip() else f"{type(error).__name__} without a message"
        except Exception:
            return "failed", traceback.format_exc()


def read(path: Path, target: str) -> str:
    """Load a file as a user would, run it if it is small, and return the outcome."""
    if path.suffix == ".dlc":
        return _run_artifact(path)
    if path.suffix == ".gguf" or path.is_dir():
        return checkpoints.read(path)
    program = load_program(path)
    if path.suffix == ".mlir" and not STAGES[path.stem]:
        if _is_small(program):
            compile(program, "cpu", OPTIONS)
        return "compiled"
    return _run(program, target)


def _run_artifact(path: Path) -> str:
    data = path.read_bytes()
    if b'"name":"opencl' in data:
        # Read it without building its kernels, which takes the driver seconds.
        artifact = program_in(path, Builder(all_devices()[0], Cache(None), 1))
        assert isinstance(artifact, DeviceArtifact) and artifact.specializer.representative().launches
        return "loaded"
    if b'"placement":[' in data:
        # Read it without starting a job of its ranks.
        assert program_in(path).host.placement is not None
        return "loaded"
    model = dlc.load(path, num_threads=1)
    if mutations.header_of(data)["model"] not in [mutations.header_of(a)["model"] for a in artifacts()]:
        # Kernel code is not checked: with other buffers than those of the original header it may access any memory.
        return "loaded"
    model(*(values(info.dtype, *map(int, info.shape)) for info in model.inputs))
    return "run"


def _is_small(program: Program) -> bool:
    shapes = [v.type.get_shape() for op in program.module.walk() for v in op.results if isinstance(v.type, TensorType)]
    inputs = [info.shape for info in program.inputs]
    is_short = sum(1 for _ in program.module.walk()) <= MAX_OPS
    return is_short and all(
        prod(max(int(s), 1) for s in shape) <= MAX_ELEMENTS for shape in (*shapes, *inputs) if -1 not in shape
    )


def _bind_sizes(program: Program) -> Program:
    """Bind every symbolic size of a program to 2."""
    return program.with_sizes(
        {symbol: 2 for info in program.inputs for s in info.shape if isinstance(s, Dim) for symbol in s.symbols()}
    )


def _run(program: Program, target: str) -> str:
    program = _bind_sizes(program)
    # A loop with a data-dependent end might not terminate.
    if not _is_small(program) or any(isinstance(op, dlc.dialects.dl.WhileOp) for op in program.module.walk()):
        return "read"
    inputs = [np.asarray(values(info.dtype, *map(int, info.shape), seed=k)) for k, info in enumerate(program.inputs)]
    expected = expected_results(program, inputs)
    model = compile(program, target, OPTIONS)
    got = [np.asarray(r) for r in model.run_unchecked(inputs)]
    if expected is None:
        evaluate(program.module, inputs, program.weights)
        return "run"
    for want, array in zip(expected, got, strict=True):
        if mismatch := difference(array, want):
            raise AssertionError(mismatch)
    return "compared"


# Families: the original files, and how they are mutated


def prepare(family: str) -> None:
    """Create the original files of a family, once, before children are forked."""
    _ORIGINALS[family]()


@cache
def models() -> list[ModelProto]:
    """Load the models that are small enough to mutate and read quickly."""
    paths = sorted(p for folder in (FOLDER / "small", PRETRAINED) for p in folder.glob("*.onnx"))
    return [onnx.load(p) for p in paths if p.stat().st_size < 700_000]


@cache
def dumps() -> list[tuple[str, str, dict[str, bytes]]]:
    """Return modules as text after each stage, with the files of their weights."""
    modules: list[tuple[str, str, dict[str, bytes]]] = []
    for name, subgraph in _DUMPED_SUBGRAPHS.items():
        model = onnx.load(FOLDER / "small" / f"{name}.onnx")
        if subgraph:
            model = onnx.utils.Extractor(onnx.shape_inference.infer_shapes(model)).extract_model(*([n] for n in subgraph))
        imported = import_model(model)
        program = _bind_sizes(Program(imported.module, imported.weights, name))
        with tempfile.TemporaryDirectory() as folder:
            program.weights.save(Path(folder))
            weights = {p.name: p.read_bytes() for p in Path(folder).iterdir()}
        for stage in STAGES:
            lowering = Lowering(Compilation(program, backend_of("cpu"), OPTIONS))
            lowering.until(stage)
            last = max(k for k, s in enumerate(lowering.plan) if s.name == stage)
            remaining = ",".join(str(p) for s in lowering.plan[last + 1 :] for p in s.passes)
            modules.append((stage, module_text(lowering.module, remaining), weights))
    return modules


@cache
def artifacts() -> list[bytes]:
    """Return compiled models.

    Each is made in its own process, since OpenCL drivers must not be open in a process that forks later.
    """
    outcomes = list(run_supervised(lambda make: make(), _ARTIFACTS, seconds=TIMEOUT_SECONDS))
    if died := [outcome.death for outcome in outcomes if outcome.death is not None]:
        raise AssertionError("\n".join(died))
    return [outcome.result for outcome in outcomes if isinstance(outcome.result, bytes)]


def _save(model: Model) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.dlc")
        return (Path(folder) / "model.dlc").read_bytes()


def _opencl_artifact() -> bytes | None:
    """Return a model with symbolic and data-dependent sizes, or None without an OpenCL device."""
    if not all_devices():
        return None
    function = dlc.jit(target="opencl", dynamic={"x": {0: "N:1..9"}})(lambda x: (x + 1, x[x > 0]))
    return _save(function.lower(np.ones((2, 4), np.float32)).compile())


_ARTIFACTS: list[Callable[[], bytes | None]] = [
    *(
        lambda name=name: _save(dlc.compile_model(FOLDER / "small" / f"{name}.onnx", num_threads=1))
        for name in _COMPILED_MODELS
    ),
    _opencl_artifact,
    lambda: _save(compile(positive(4), "cpu", OPTIONS)),
    lambda: _save(some_sizes()),
    lambda: _save(on_mesh()),
]


def _mutate(model: ModelProto, rng: random.Random) -> bytes:
    if rng.random() < 0.15:
        return mutations.mutate_bytes(model.SerializeToString(), rng)
    return mutations.mutate_model(model, rng).SerializeToString()


def _model(rng: random.Random) -> ModelProto:
    """Choose a model; small ones are more likely, since they take less time."""
    return rng.choices(models(), [1 / (20 + len(m.graph.node)) for m in models()])[0]


def _onnx(folder: Path, rng: random.Random) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(_mutate(_model(rng), rng))
    return path


def _node(folder: Path, rng: random.Random) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(_mutate(cases()[rng.choice(sorted(cases()))].model, rng))
    return path


def _external(folder: Path, rng: random.Random) -> Path:
    path = folder / "model.onnx"
    model = ModelProto()
    model.CopyFrom(_model(rng))
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=16)
    changed = onnx.load(path, load_external_data=False)
    path.write_bytes(_mutate(changed, rng))
    data = folder / "weights.bin"
    if data.exists() and rng.random() < 0.3:
        data.write_bytes(mutations.mutate_bytes(data.read_bytes(), rng))
    return path


def _dump(folder: Path, rng: random.Random) -> Path:
    stage, text, weights = rng.choice(dumps())
    (folder / WEIGHTS).mkdir()
    corrupted = rng.choice(sorted(weights)) if weights and rng.random() < 0.2 else None
    for name, data in weights.items():
        (folder / WEIGHTS / name).write_bytes(mutations.mutate_bytes(data, rng) if name == corrupted else data)
    path = folder / f"{stage}.mlir"
    if corrupted is None:
        text = mutations.mutate_text(text, rng)
    path.write_text(text)
    return path


def _artifact(folder: Path, rng: random.Random) -> Path:
    data = rng.choice(artifacts())
    path = folder / "model.dlc"
    path.write_bytes(mutations.mutate_bytes(data, rng) if rng.random() < 0.3 else mutations.mutate_header(data, rng))
    return path


def _tflite(folder: Path, rng: random.Random) -> Path:
    path = folder / "model.tflite"
    path.write_bytes(mutations.mutate_bytes(recorded()[rng.choice(sorted(recorded()))].file, rng))
    return path


FAMILIES: dict[str, Callable[[Path, random.Random], Path]] = {
    "nodes": _node,
    "onnx": _onnx,
    "external": _external,
    "dump": _dump,
    "artifact": _artifact,
    "tflite": _tflite,
    "gguf": checkpoints.mutated_gguf,
    "folder": checkpoints.mutated_folder,
}
_ORIGINALS: dict[str, Callable[[], object]] = {
    "nodes": cases,
    "onnx": models,
    "external": models,
    "dump": dumps,
    "artifact": artifacts,
    "tflite": recorded,
    "gguf": checkpoints.gguf_file,
    "folder": checkpoints.recorded_models,
}
