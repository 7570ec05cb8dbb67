"""dlc compiles models: an ONNX file, or a function written with NumPy-like calls, becomes native code.

This page walks through the compiler in the order data flows. Every step is a folder or a file of that name; nothing below
hides another mechanism.

A model enters through `frontend`: `frontend.onnx` and `frontend.tflite` read files, `stablehlo` what JAX prints.
The result is a module of the `dl` dialect (`dialects.dl`), where each op says what is computed and nothing about how, and a
store of weights (`weights`). Weights never enter the IR: an op `dl.weight @w7` names an array of the store.

`compiler.compile` takes a module to a `Model`. It runs the stages of `pipelines`, which is a value to be read from top to
bottom:

    dl       simplify; fold BatchNorm into weights; channels last           passes.dl
    fusion   which ops share a kernel; layouts become types                 passes.fusion
    linalg   each kernel as structured ops on tensors                       passes.linalg
    tiling   buffers, then tiles: grid, register tiles, local buffers       passes.tiling
    loops    loops over n-D vectors: one value is one register tile         passes.loops

After `fusion` a module is two tracks. Kernels go on as pure functions and end as machine code: `emission.llvm` writes
LLVM IR text in one visit, LLVM makes an object of it, and `runtime.cpu.code.loader` maps that object. The host program, which
says what kernel runs when on which buffers, is planned by `passes.host` into one arena and a table of launches that one
native function executes. For an OpenCL device `emission.c` writes C instead, the driver compiles it, and the table becomes
commands in the device's queue (`runtime.opencl`).

A compiled program is an artifact (`runtime.cpu.artifact`), a model one or several of them in a file
(`runtime.saving.container`): `runtime` holds all that runs it, and imports no part of the compiler. `caching` keeps artifacts
on disk, and finds them again by what they depend on; a hit comes before all of the above.

Where there is no Python, `deploy` has the header that opens such a file in C, and writes shared libraries and objects.

Every stage is a program. `backends.reference` executes the module of any stage with NumPy, so that two stages can be
compared; it is the target `reference` as well.

What such a function is written with is `numpy`, for arrays, `special`, for functions of theirs that NumPy has not, and `lax`,
for loops and branches that data decides; `tree` is for the nested containers that both take. `random` has numbers that are
drawn from keys, `nn` layers of neural networks, `optim` what trains them.

`pytorch` reads modules of PyTorch, and graphs that its compiler hands over: what their operators are is written with `numpy`
and `nn` as well.

What `compile_model` is asked for in a model's place, a derivative or a step of its training (`derived`), `training` makes of
it, by `calculus`, `nn` and `optim`. `quantization` makes an ONNX model of integers of one of floats: it runs the model to see
what values there are.

`instrument` watches the passes: it verifies, times, dumps and records modules, and keeps what is needed to reproduce a crash.
`explore` makes one page of what a program became, and of where its time and memory go. `cli` is the command line; `api` and
`just_in_time` are what Python users call, `onnx_backend` what the onnx package calls; `jax_functions` compiles functions of
JAX. `ir` is the part of xDSL that dlc uses. `dims` (symbolic sizes), `errors`, `options`, `target`, `files` and `machine` (of
processors and processes) are leaves that everything may import.
"""

from __future__ import annotations

from importlib import import_module
from inspect import isfunction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlc import debug as debug
    from dlc import lax as lax
    from dlc import nn as nn
    from dlc import numpy as numpy
    from dlc import onnx_backend as onnx_backend
    from dlc import optim as optim
    from dlc import random as random
    from dlc import special as special
    from dlc import tree as tree
    from dlc.api import compile_model as compile_model
    from dlc.api import devices as devices
    from dlc.api import from_torch as from_torch
    from dlc.api import to_device as to_device
    from dlc.arrays import Array as Array
    from dlc.arrays import ShapeDtype as ShapeDtype
    from dlc.calculus.batching import vmap as vmap
    from dlc.calculus.custom import checkpoint as checkpoint
    from dlc.calculus.custom import custom_jvp as custom_jvp
    from dlc.calculus.custom import custom_vjp as custom_vjp
    from dlc.calculus.custom import stop_gradient as stop_gradient
    from dlc.calculus.gradients import grad as grad
    from dlc.calculus.gradients import value_and_grad as value_and_grad
    from dlc.calculus.jacobians import hessian as hessian
    from dlc.calculus.jacobians import hvp as hvp
    from dlc.calculus.jacobians import jacfwd as jacfwd
    from dlc.calculus.jacobians import jacrev as jacrev
    from dlc.calculus.linear_maps import jvp as jvp
    from dlc.calculus.linear_maps import linearize as linearize
    from dlc.calculus.linear_maps import vjp as vjp
    from dlc.derived import TrainStep as TrainStep
    from dlc.eager import disable_jit as disable_jit
    from dlc.errors import CompileError as CompileError
    from dlc.errors import DeviceError as DeviceError
    from dlc.errors import DlcError as DlcError
    from dlc.errors import DTypeError as DTypeError
    from dlc.errors import ModelError as ModelError
    from dlc.errors import ShapeError as ShapeError
    from dlc.errors import UnsupportedError as UnsupportedError
    from dlc.jax_functions import from_jax as from_jax
    from dlc.just_in_time import jit as jit
    from dlc.quantization.quantizing import quantize as quantize
    from dlc.runtime.load import load as load
    from dlc.runtime.opencl.array import DeviceArray as DeviceArray

__version__: str

# The public names and where they live; imported when asked for, so that `import dlc` costs nothing. A module must not have
# the name of what it defines: importing a submodule sets the package's attribute of that name.
_PUBLIC = {
    "Array": "dlc.arrays",
    "DeviceArray": "dlc.runtime.opencl.array",
    "compile_model": "dlc.api",
    "checkpoint": "dlc.calculus.custom",
    "custom_jvp": "dlc.calculus.custom",
    "custom_vjp": "dlc.calculus.custom",
    "stop_gradient": "dlc.calculus.custom",
    "disable_jit": "dlc.eager",
    "grad": "dlc.calculus.gradients",
    "hessian": "dlc.calculus.jacobians",
    "hvp": "dlc.calculus.jacobians",
    "jacfwd": "dlc.calculus.jacobians",
    "jacrev": "dlc.calculus.jacobians",
    "jvp": "dlc.calculus.linear_maps",
    "linearize": "dlc.calculus.linear_maps",
    "value_and_grad": "dlc.calculus.gradients",
    "vjp": "dlc.calculus.linear_maps",
    "devices": "dlc.api",
    "from_jax": "dlc.jax_functions",
    "from_torch": "dlc.api",
    "jit": "dlc.just_in_time",
    "load": "dlc.runtime.load",
    "quantize": "dlc.quantization.quantizing",
    "to_device": "dlc.api",
    "vmap": "dlc.calculus.batching",
    "ShapeDtype": "dlc.arrays",
    "TrainStep": "dlc.derived",
    "CompileError": "dlc.errors",
    "DTypeError": "dlc.errors",
    "DeviceError": "dlc.errors",
    "DlcError": "dlc.errors",
    "ModelError": "dlc.errors",
    "ShapeError": "dlc.errors",
    "UnsupportedError": "dlc.errors",
}
_PUBLIC_MODULES = ("debug", "lax", "nn", "numpy", "onnx_backend", "optim", "random", "special", "tree")


def __getattr__(name: str) -> Any:
    if name in _PUBLIC_MODULES:
        return import_module(f"dlc.{name}")
    if name == "__version__":
        return import_module("importlib.metadata").version("dlc")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'dlc' has no attribute {name!r}")
    found = getattr(import_module(_PUBLIC[name]), name)
    if isfunction(found):
        # From now on it is found without being asked for.
        globals()[name] = found = import_module("dlc.misuse").explaining(f"dlc.{name}", found, at_once=True)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), "__version__", *_PUBLIC, *_PUBLIC_MODULES})
