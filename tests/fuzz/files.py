"""Files with random changes: reading them ends in a DlcError that says what is wrong, or in a model that computes what it says."""

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
from dlc.dims import Dim
from dlc.errors import CompileError, DlcError
from dlc.frontend.onnx import import_model
from dlc.instrument.dump import WEIGHTS, module_text
from dlc.ir import TensorType
from dlc.options import Options
from dlc.runtime.load import program_in
from dlc.runtime.models.model import Model
from dlc.runtime.opencl.artifact import DeviceArtifact
from dlc.runtime.opencl.build import Builder
from dlc.runtime.opencl.devices import all_devices
from tests.frontend.onnx.node_suite import cases
from tests.frontend.tflite.recorded import recorded
from tests.fuzz import mutations
from tests.fuzz.expected import expected_of
from tests.fuzz.supervise import supervised
from tests.fuzz.tracked import difference
from tests.models.skeletons import FOLDER, PRETRAINED
from tests.ops.sample import values
from tests.sizes.deciding import positive, some_sizes

# What one file may take: seconds, and memory beyond what the process has when it starts.
SECONDS, MEMORY = 60, 4 << 30
# Only what is small is compiled and run: mostly by the reference, which takes the same steps as far as they know of no target.
LARGEST_VALUE, MOST_OPS, NATIVE = 20_000, 60, 0.2
OPTIONS = Options(num_threads=1, workers=1, cache=False)
# Whether a file of this stage is run: lower ones address memory as they say.
STAGES = {"dl": True, "fusion": True, "linalg": False, "tiling": False, "loops": False}
# Modules of parts of models, from and to these tensors, since it is their text that takes long to read.
_DUMPED = {
    "mnist_cnn": ("input", "max_pool2d"),
    "mnist_cnn_int8_qdq": ("input", "relu_QuantizeLinear_Output"),
    "scan_rnn": (),
    "loop_if_script": (),
}
_COMPILED = ("mnist_cnn", "mnist_cnn_int8_qdq")


@dataclass(frozen=True)
class Trial:
    """One changed file: of a family, by its seed."""

    seed: int
    family: str

    def __str__(self) -> str:
        return f"seed {self.seed}: reproduce: python -m tests.fuzz files --seed {self.seed} --count 1 --of {self.family}"


def trials(seed: int, count: int, families: Sequence[str]) -> list[Trial]:
    """The files of `count` seeds from `seed` on, of these families in turn."""
    return [Trial(s, families[s % len(families)]) for s in range(seed, seed + count)]


def fuzz(chosen: Sequence[Trial], jobs: int) -> Iterator[tuple[Trial, str, str | None]]:
    """What became of each trial, and what went wrong if something did."""
    with tempfile.TemporaryDirectory() as folder:
        for t in {t.family for t in chosen}:
            prepare(t)
        tempfile.tempdir = folder
        try:
            for outcome in supervised(run, chosen, jobs=jobs, seconds=SECONDS, memory=MEMORY, run=40):
                if outcome.death is not None:
                    yield outcome.item, "died", outcome.death
                else:
                    assert isinstance(outcome.result, tuple)
                    yield outcome.item, *outcome.result
        finally:
            tempfile.tempdir = None


def run(trial: Trial) -> tuple[str, str | None]:
    """Makes the file and reads it: what became of it, and what went wrong if something did."""
    with tempfile.TemporaryDirectory() as folder:
        rng = random.Random(f"{trial.family}{trial.seed}")
        path = FAMILIES[trial.family](Path(folder), rng)
        try:
            return read(path, "cpu" if rng.random() < NATIVE else "reference"), None
        except CompileError as error:
            # In IR below `dl` a change may break what its passes left to each other; a model never does.
            excused = path.suffix == ".mlir" and not STAGES[path.stem]
            return "refused", None if excused else f"a bug, it says: {error}\n{traceback.format_exc()}"
        except DlcError as error:
            return "refused", None if str(error).strip() else f"{type(error).__name__} without a message"
        except Exception:
            return "failed", traceback.format_exc()


def read(path: Path, target: str) -> str:
    """Loads a file as its users would, and runs what is small on the target; what was done with it."""
    if path.suffix == ".dlc":
        return _run_artifact(path)
    program = load_program(path)
    if path.suffix == ".mlir" and not STAGES[path.stem]:
        if _is_small(program):
            compile(program, "cpu", OPTIONS)
        return "compiled"
    return _run(program, target)


def _run_artifact(path: Path) -> str:
    data = path.read_bytes()
    if b'"name":"opencl' in data:
        # It is read, and what it runs is not built: that takes a driver seconds.
        artifact = program_in(path, Builder(all_devices()[0], Cache(None), 1))
        assert isinstance(artifact, DeviceArtifact) and artifact.planned.launches
        return "loaded"
    model = dlc.load(path, num_threads=1)
    if mutations.header_of(data)["model"] not in [mutations.header_of(a)["model"] for a in artifacts()]:
        # Its kernels are trusted with the buffers that they were compiled for, not with others.
        return "loaded"
    model(*(values(info.dtype, *map(int, info.shape)) for info in model.inputs))
    return "run"


def _is_small(program: Program) -> bool:
    shapes = [v.type.get_shape() for op in program.module.walk() for v in op.results if isinstance(v.type, TensorType)]
    inputs = [info.shape for info in program.inputs]
    few = sum(1 for _ in program.module.walk()) <= MOST_OPS
    return few and all(prod(max(int(s), 1) for s in shape) <= LARGEST_VALUE for shape in (*shapes, *inputs) if -1 not in shape)


def _bound(program: Program) -> Program:
    """The program with 2 for every size that is open."""
    return program.with_sizes(
        {symbol: 2 for info in program.inputs for s in info.shape if isinstance(s, Dim) for symbol in s.symbols()}
    )


def _run(program: Program, target: str) -> str:
    program = _bound(program)
    # A loop that ends when its data says so need not end.
    if not _is_small(program) or any(isinstance(op, dlc.dialects.dl.WhileOp) for op in program.module.walk()):
        return "read"
    inputs = [np.asarray(values(info.dtype, *map(int, info.shape), seed=k)) for k, info in enumerate(program.inputs)]
    expected = expected_of(program, inputs)
    model = compile(program, target, OPTIONS)
    got = [np.asarray(r) for r in model.run_unchecked(inputs)]
    if expected is None:
        evaluate(program.module, inputs, program.weights)
        return "run"
    for want, array in zip(expected, got, strict=True):
        if wrong := difference(array, want):
            raise AssertionError(wrong)
    return "compared"


# Families: where files come from, and how they are changed


def prepare(family: str) -> None:
    """Makes what all files of a family start from, once, before children are forked."""
    {"nodes": cases, "onnx": models, "external": models, "dump": dumps, "artifact": artifacts, "tflite": recorded}[family]()


@cache
def models() -> list[ModelProto]:
    """Whole models, small enough to be changed and read in no time."""
    paths = sorted(p for folder in (FOLDER / "small", PRETRAINED) for p in folder.glob("*.onnx"))
    return [onnx.load(p) for p in paths if p.stat().st_size < 700_000]


@cache
def dumps() -> list[tuple[str, str, dict[str, bytes]]]:
    """Modules as text after each stage, and the files of their weights."""
    made: list[tuple[str, str, dict[str, bytes]]] = []
    for name, part in _DUMPED.items():
        model = onnx.load(FOLDER / "small" / f"{name}.onnx")
        if part:
            model = onnx.utils.Extractor(onnx.shape_inference.infer_shapes(model)).extract_model(*([n] for n in part))
        imported = import_model(model)
        program = _bound(Program(imported.module, imported.weights, name))
        with tempfile.TemporaryDirectory() as folder:
            program.weights.save(Path(folder))
            weights = {p.name: p.read_bytes() for p in Path(folder).iterdir()}
        for stage in STAGES:
            lowering = Lowering(Compilation(program, backend_of("cpu"), OPTIONS))
            lowering.until(stage)
            last = max(k for k, s in enumerate(lowering.plan) if s.name == stage)
            left = ",".join(str(p) for s in lowering.plan[last + 1 :] for p in s.passes)
            made.append((stage, module_text(lowering.module, left), weights))
    return made


@cache
def artifacts() -> list[bytes]:
    """Compiled models, each made by a process of its own: what is forked later must find no driver open."""
    outcomes = list(supervised(lambda make: make(), _ARTIFACTS, seconds=SECONDS))
    if died := [outcome.death for outcome in outcomes if outcome.death is not None]:
        raise AssertionError("\n".join(died))
    return [outcome.result for outcome in outcomes if isinstance(outcome.result, bytes)]


def _saved(model: Model) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model.dlc")
        return (Path(folder) / "model.dlc").read_bytes()


def _for_a_device() -> bytes | None:
    """Of open sizes, one of which data decides; None where there is no device."""
    if not all_devices():
        return None
    function = dlc.jit(target="opencl", dynamic={"x": {0: "N:1..9"}})(lambda x: (x + 1, x[x > 0]))
    return _saved(function.lower(np.ones((2, 4), np.float32)).compile())


_ARTIFACTS: list[Callable[[], bytes | None]] = [
    *(lambda name=name: _saved(dlc.compile_model(FOLDER / "small" / f"{name}.onnx", num_threads=1)) for name in _COMPILED),
    _for_a_device,
    lambda: _saved(compile(positive(4), "cpu", OPTIONS)),
    lambda: _saved(some_sizes()),
]


def _changed(model: ModelProto, rng: random.Random) -> bytes:
    if rng.random() < 0.15:
        return mutations.mutated_bytes(model.SerializeToString(), rng)
    return mutations.mutated_model(model, rng).SerializeToString()


def _model(rng: random.Random) -> ModelProto:
    """One of the models, small ones more often: they take less time."""
    return rng.choices(models(), [1 / (20 + len(m.graph.node)) for m in models()])[0]


def _onnx(folder: Path, rng: random.Random) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(_changed(_model(rng), rng))
    return path


def _node(folder: Path, rng: random.Random) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(_changed(cases()[rng.choice(sorted(cases()))].model, rng))
    return path


def _external(folder: Path, rng: random.Random) -> Path:
    path = folder / "model.onnx"
    model = ModelProto()
    model.CopyFrom(_model(rng))
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=16)
    changed = onnx.load(path, load_external_data=False)
    path.write_bytes(_changed(changed, rng))
    data = folder / "weights.bin"
    if data.exists() and rng.random() < 0.3:
        data.write_bytes(mutations.mutated_bytes(data.read_bytes(), rng))
    return path


def _dump(folder: Path, rng: random.Random) -> Path:
    stage, text, weights = rng.choice(dumps())
    (folder / WEIGHTS).mkdir()
    spoiled = rng.choice(sorted(weights)) if weights and rng.random() < 0.2 else None
    for name, data in weights.items():
        (folder / WEIGHTS / name).write_bytes(mutations.mutated_bytes(data, rng) if name == spoiled else data)
    path = folder / f"{stage}.mlir"
    if spoiled is None:
        text = mutations.mutated_text(text, rng)
    path.write_text(text)
    return path


def _artifact(folder: Path, rng: random.Random) -> Path:
    data = rng.choice(artifacts())
    path = folder / "model.dlc"
    path.write_bytes(mutations.mutated_bytes(data, rng) if rng.random() < 0.3 else mutations.mutated_header(data, rng))
    return path


def _tflite(folder: Path, rng: random.Random) -> Path:
    path = folder / "model.tflite"
    path.write_bytes(mutations.mutated_bytes(recorded()[rng.choice(sorted(recorded()))].file, rng))
    return path


FAMILIES = {"nodes": _node, "onnx": _onnx, "external": _external, "dump": _dump, "artifact": _artifact, "tflite": _tflite}
