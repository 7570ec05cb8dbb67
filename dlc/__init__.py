"""dlc: a deep-learning compiler from ONNX models and NumPy-style Python functions to native code.

This page is a tour of the compiler in the order in which data flows. Every step is the folder or file of that name.

**Frontends.** `frontend.onnx` and `frontend.tflite` import model files, `stablehlo` imports the StableHLO that JAX emits, and
`pytorch` converts exported modules and graphs of `torch.compile`. All of them produce a module of the `dl` dialect
(`dialects.dl`), whose ops describe a computation and not its implementation, and a weight store (`weights`). Weights
never enter the IR: an op `dl.weight @w7` refers to an array of the store by name.

**Pipeline.** `compiler.compile` lowers a module to a `Model`. It runs the stages of `pipelines`, which are plain data:

    dl       canonicalize; fold BatchNorm into weights; convert to channels last    passes.dl
    fusion   group ops into kernels; choose layouts                                 passes.fusion
    linalg   lower each kernel to structured ops on tensors                         passes.linalg
    tiling   bufferize; tile for cores, registers and local memory                  passes.tiling
    loops    lower to loops over n-D vectors; one vector value is a register tile   passes.loops

**Code generation.** After `fusion`, compilation splits in two. Each kernel is a pure function that is compiled on its own:
`emission.llvm` prints LLVM IR, LLVM compiles it to an object, and `runtime.cpu.code.loader` relocates and maps the object.
The host program, which decides the order of kernel launches and their buffers, is planned by `passes.host`: one arena and
bytecode for launches, which a native function interprets. For OpenCL devices, `emission.c` prints OpenCL C, the
driver compiles it, and the launches become commands in the device's queue (`runtime.opencl`).

**Runtime.** A compiled program is an artifact (`runtime.cpu.artifact`). A model is one artifact or several, stored in one
file (`runtime.saving.container`). `runtime` contains all that is needed to run models, and imports nothing of the compiler.
`caching` stores artifacts on disk under a hash of everything that they depend on; a cache hit skips all of the steps above.
`deploy` exports models for programs without Python: a C header, shared libraries and object files.

**Reference evaluator.** The module of every stage can be executed. `backends.reference` evaluates it with NumPy, so that any
two stages can be compared with each other; it is also available to users as the target `reference`.

**Array API.** Traced functions are written with `numpy`, `special` (special functions) and `lax` (structured control flow).
`kernels` is a language of explicit loops for functions that these do not express (`dlc.kernel`). `ffi` calls native code
and Python functions.
`random` draws from explicit keys, `nn` has neural-network layers, `optim` has optimizers, and `tree` handles nested containers
of arrays; `ragged` has batches of sequences without padding, `solve` numerical solvers. `just_in_time` compiles such functions
(`dlc.jit`).

**Distributed programs.** `distributed` has meshes, shardings and arrays whose shards belong to ranks. `compiler.sharding`
partitions a program: `passes.sharding` propagates shardings and inserts collectives, which `runtime.collectives` runs over MPI.

**Models.** `models` compiles files, PyTorch modules and JAX functions (`compile_model`, `from_torch`, `from_jax`). In place of
a model, it can compile a derivative or a training step: `training` builds these programs with `calculus` (automatic
differentiation and batching), `nn` and `optim`. `quantization` converts ONNX models to int8 with ranges calibrated by running
the model.

**Language models.** `language_models` reads GGUF files and Hugging Face folders, builds their decoders from functions of `nn`
and `numpy`, and generates text with a KV cache that is written in place.

**Tools.** `instrument` verifies, times, dumps and records modules between passes, and saves reproducers of crashes. `debug`
bisects wrong results, `explore` reports the kernels and IR of a compiled model, `measure` profiles it. `cli` is the command
line.

**Plug-ins.** `plugins` discovers packages that add ops, passes, converters and targets to the tables of the steps above;
`extend` is the API that they import, and `testing` derives tests from the samples of their ops and of dlc's own.

**Foundations**, which every module may import: `ir` (the part of xDSL that dlc uses), `dims` (symbolic dimensions), `target`
(descriptions of devices), `errors`, `options`, `files` and `machine`.
"""

from __future__ import annotations

from importlib import import_module
from inspect import isfunction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlc import debug as debug
    from dlc import ffi as ffi
    from dlc import kernels as kernels
    from dlc import lax as lax
    from dlc import nn as nn
    from dlc import numpy as numpy
    from dlc import onnx_backend as onnx_backend
    from dlc import optim as optim
    from dlc import ragged as ragged
    from dlc import random as random
    from dlc import solve as solve
    from dlc import special as special
    from dlc import tree as tree
    from dlc.arrays import Array as Array
    from dlc.arrays import ShapeDtype as ShapeDtype
    from dlc.calculus.batching import vmap as vmap
    from dlc.calculus.custom_rules import checkpoint as checkpoint
    from dlc.calculus.custom_rules import custom_jvp as custom_jvp
    from dlc.calculus.custom_rules import custom_vjp as custom_vjp
    from dlc.calculus.custom_rules import stop_gradient as stop_gradient
    from dlc.calculus.gradients import grad as grad
    from dlc.calculus.gradients import value_and_grad as value_and_grad
    from dlc.calculus.jacobians import hessian as hessian
    from dlc.calculus.jacobians import hvp as hvp
    from dlc.calculus.jacobians import jacfwd as jacfwd
    from dlc.calculus.jacobians import jacrev as jacrev
    from dlc.calculus.linear_maps import jvp as jvp
    from dlc.calculus.linear_maps import linearize as linearize
    from dlc.calculus.linear_maps import vjp as vjp
    from dlc.calculus.shard_maps import shard_map as shard_map
    from dlc.distributed.annotations import shard as shard
    from dlc.distributed.distributed_array import DistributedArray as DistributedArray
    from dlc.distributed.distributed_array import collect as collect
    from dlc.distributed.distributed_array import distribute as distribute
    from dlc.distributed.meshes import make_mesh as make_mesh
    from dlc.distributed.partition_spec import P as P
    from dlc.distributed.saved_arrays import load_arrays as load_arrays
    from dlc.distributed.saved_arrays import save_arrays as save_arrays
    from dlc.errors import CompileError as CompileError
    from dlc.errors import DeadlineError as DeadlineError
    from dlc.errors import DeviceError as DeviceError
    from dlc.errors import DlcError as DlcError
    from dlc.errors import DTypeError as DTypeError
    from dlc.errors import ModelError as ModelError
    from dlc.errors import QueueFullError as QueueFullError
    from dlc.errors import ShapeError as ShapeError
    from dlc.errors import UnsupportedError as UnsupportedError
    from dlc.ffi import pure_callback as pure_callback
    from dlc.just_in_time.decorator import jit as jit
    from dlc.just_in_time.eager import disable_jit as disable_jit
    from dlc.kernel_functions.kernel import kernel as kernel
    from dlc.language_models.embedding_model import EmbeddingModel as EmbeddingModel
    from dlc.language_models.embedding_model import embed as embed
    from dlc.language_models.generation import generate as generate
    from dlc.language_models.generation import generate_batch as generate_batch
    from dlc.language_models.language_model import LanguageModel as LanguageModel
    from dlc.models.api import compile_model as compile_model
    from dlc.models.api import devices as devices
    from dlc.models.api import from_torch as from_torch
    from dlc.models.api import to_device as to_device
    from dlc.models.jax_functions import from_jax as from_jax
    from dlc.options import CompileOptions as CompileOptions
    from dlc.pipeline_parallelism.pipelined_functions import pipeline as pipeline
    from dlc.pipeline_parallelism.stages import stage as stage
    from dlc.plugins.registry import register as register
    from dlc.quantization.post_training import quantize as quantize
    from dlc.runtime.load import load as load
    from dlc.runtime.opencl.array import DeviceArray as DeviceArray
    from dlc.runtime.requests.batched_model import batched as batched
    from dlc.runtime.requests.future import Future as Future
    from dlc.runtime.requests.request_queue import RequestQueue as RequestQueue
    from dlc.training.model_transforms import TrainStep as TrainStep

__version__: str

# Public names and the modules that define them. They are imported on first access, so that `import dlc` is cheap. A module
# must not have the name of an object that it defines: importing a submodule sets the package attribute of that name.
_PUBLIC = {
    "Array": "dlc.arrays",
    "DeviceArray": "dlc.runtime.opencl.array",
    "CompileOptions": "dlc.options",
    "compile_model": "dlc.models.api",
    "checkpoint": "dlc.calculus.custom_rules",
    "custom_jvp": "dlc.calculus.custom_rules",
    "custom_vjp": "dlc.calculus.custom_rules",
    "stop_gradient": "dlc.calculus.custom_rules",
    "P": "dlc.distributed.partition_spec",
    "DistributedArray": "dlc.distributed.distributed_array",
    "collect": "dlc.distributed.distributed_array",
    "distribute": "dlc.distributed.distributed_array",
    "make_mesh": "dlc.distributed.meshes",
    "shard": "dlc.distributed.annotations",
    "shard_map": "dlc.calculus.shard_maps",
    "pipeline": "dlc.pipeline_parallelism.pipelined_functions",
    "stage": "dlc.pipeline_parallelism.stages",
    "load_arrays": "dlc.distributed.saved_arrays",
    "save_arrays": "dlc.distributed.saved_arrays",
    "disable_jit": "dlc.just_in_time.eager",
    "grad": "dlc.calculus.gradients",
    "hessian": "dlc.calculus.jacobians",
    "hvp": "dlc.calculus.jacobians",
    "jacfwd": "dlc.calculus.jacobians",
    "jacrev": "dlc.calculus.jacobians",
    "jvp": "dlc.calculus.linear_maps",
    "linearize": "dlc.calculus.linear_maps",
    "value_and_grad": "dlc.calculus.gradients",
    "vjp": "dlc.calculus.linear_maps",
    "devices": "dlc.models.api",
    "from_jax": "dlc.models.jax_functions",
    "from_torch": "dlc.models.api",
    "embed": "dlc.language_models.embedding_model",
    "EmbeddingModel": "dlc.language_models.embedding_model",
    "generate": "dlc.language_models.generation",
    "generate_batch": "dlc.language_models.generation",
    "LanguageModel": "dlc.language_models.language_model",
    "jit": "dlc.just_in_time.decorator",
    "kernel": "dlc.kernel_functions.kernel",
    "load": "dlc.runtime.load",
    "pure_callback": "dlc.ffi",
    "register": "dlc.plugins.registry",
    "quantize": "dlc.quantization.post_training",
    "to_device": "dlc.models.api",
    "vmap": "dlc.calculus.batching",
    "batched": "dlc.runtime.requests.batched_model",
    "Future": "dlc.runtime.requests.future",
    "RequestQueue": "dlc.runtime.requests.request_queue",
    "ShapeDtype": "dlc.arrays",
    "TrainStep": "dlc.training.model_transforms",
    "CompileError": "dlc.errors",
    "DTypeError": "dlc.errors",
    "DeadlineError": "dlc.errors",
    "DeviceError": "dlc.errors",
    "DlcError": "dlc.errors",
    "ModelError": "dlc.errors",
    "QueueFullError": "dlc.errors",
    "ShapeError": "dlc.errors",
    "UnsupportedError": "dlc.errors",
}
_PUBLIC_MODULES = (
    "debug",
    "ffi",
    "kernels",
    "lax",
    "nn",
    "numpy",
    "onnx_backend",
    "optim",
    "ragged",
    "random",
    "solve",
    "special",
    "tree",
)


def __getattr__(name: str) -> Any:
    if name in _PUBLIC_MODULES:
        return import_module(f"dlc.{name}")
    if name == "__version__":
        return import_module("importlib.metadata").version("dlc")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'dlc' has no attribute {name!r}")
    value = getattr(import_module(_PUBLIC[name]), name)
    if isfunction(value):
        # Cache the wrapped function: later accesses do not call __getattr__.
        globals()[name] = value = import_module("dlc.argument_validation.validate").wrap_with_validation(
            f"dlc.{name}", value, validate_first=True
        )
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), "__version__", *_PUBLIC, *_PUBLIC_MODULES})
