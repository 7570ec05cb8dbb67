"""Tile plans by measurement: each kernel is compiled in the variants worth trying, and the fastest is kept. One that serves
several sizes is measured at the representative one.

What was found is kept in the cache by the kernel's text, the target and the number of threads, so that a kernel is measured
once, whichever models it is in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.backends.cpu.backend import ObjectBackend
from dlc.backends.cpu.runtime_code import runtime_object
from dlc.caching.cache import Cache
from dlc.caching.keys import DLC, target_text
from dlc.compiler.kernels import all_kernels, lower_kernel, symbol_of
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.programs.binding import bound_kernel
from dlc.dialects.dl.programs.program import REPRESENTATIVE, KernelOp
from dlc.dialects.sizes import symbol
from dlc.instrument.report import Doing, Progress, Tuned
from dlc.ir import Attribute, Context, MemRefType, ModuleOp, Operation, func, print_module
from dlc.passes.base import Stage
from dlc.passes.tiling.tile_kernels import TileKernelsPass
from dlc.passes.tiling.variants import VARIANTS
from dlc.runtime.cpu.code.native import runtime
from dlc.runtime.cpu.kernel_object import KernelObject
from dlc.runtime.cpu.program import NativeProgram
from dlc.runtime.program.host_program import FIRST_INPUT, HostProgram, Launch

# The kind of the cache's entries.
KIND = "plan"
# A variant must be faster by more than noise.
_GAIN = 1.02
# Kernels that are measured take this share of the model's time together.
_COVERED = 0.95


@dataclass(frozen=True)
class Tuner:
    """Measures kernels of a program that runs each one `runs` times."""

    stages: Sequence[Stage]
    backend: ObjectBackend[Any]
    context: Context
    threads: int
    runs: Mapping[str, int]

    def tune(self, module: ModuleOp, seconds: float, progress: Progress | None) -> list[Tuned]:
        """The fastest variants of the kernels that take most of the time, found in about `seconds`."""
        kernels = {symbol_of(kernel): _planned(kernel) for kernel in all_kernels(module)}
        usual = {name: self.measured(kernel, [0], seconds / (4 * len(kernels)))[0] for name, kernel in kernels.items()}
        total = sum(usual[name] * self.runs[name] for name in kernels)
        wanted: list[str] = []
        covered = 0.0
        for name in sorted(kernels, key=lambda name: -usual[name] * self.runs[name]):
            if covered >= _COVERED * total:
                break
            covered += usual[name] * self.runs[name]
            wanted.append(name)
        results: list[Tuned] = []
        for k, name in enumerate(wanted):
            if progress is not None:
                progress(Doing("tuning", name, k, len(wanted)))
            results.append(self.tuned(name, kernels[name], seconds / len(wanted)))
        return results

    def tuned(self, name: str, kernel: Operation, seconds: float) -> Tuned:
        """The fastest variant of a kernel: out of the cache, or measured now."""
        text = f"{print_module(kernel, locations=False)}\n{target_text(self.backend.target)} {self.threads} {DLC}"
        key, cache = hashlib.blake2b(text.encode(), digest_size=20).hexdigest(), Cache.standard()

        def read(path: Path) -> Tuned:
            variant, before, after = json.loads(path.read_text())
            return _result(name, int(variant), float(before), float(after))

        found = cache.read(KIND, key, read)
        if found is not None:
            return found
        times = self.measured(kernel, range(len(VARIANTS)), seconds)
        best = min(times, key=lambda v: times[v])
        best = best if times[best] * _GAIN < times[0] else 0
        result = _result(name, best, times[0], times[best])
        line = json.dumps([result.variant, result.before, result.after])
        cache.store(KIND, key, lambda path: path.write_text(line), {"kernel": name, "target": self.backend.target.name})
        return result

    def measured(self, kernel: Operation, variants: Sequence[int], seconds: float) -> dict[int, float]:
        """The least seconds of a run for each variant that makes a difference; they take turns.

        Half of the time is for compiling: variants that would take longer are left out.
        """
        began = perf_counter()
        programs: dict[int, NativeProgram] = {}
        texts: set[str] = set()
        inputs: list[NDArray[Any]] = []
        for variant in variants:
            if programs and perf_counter() > began + seconds / 2:
                break
            lowered, _ = lower_kernel(kernel, with_variant(self.stages, variant), self.context, check=False)
            text = self.backend.emit(lowered)
            if text.text in texts:
                continue
            texts.add(text.text)
            program = self.program(lowered, self.backend.compile_kernel(lowered.sym_name.data, text))
            inputs = inputs or list(_inputs(program.inputs))
            programs[variant] = program
        times = dict.fromkeys(programs, float("inf"))
        while True:
            for variant, program in programs.items():
                start = perf_counter()
                program.run(inputs)
                times[variant] = min(times[variant], perf_counter() - start)
            if perf_counter() >= began + seconds:
                return times

    def program(self, kernel: func.FuncOp, code: KernelObject) -> NativeProgram:
        """A program that runs one kernel on its arguments; what the kernel writes is among them."""
        types = [cast("MemRefType[Attribute]", a.type) for a in kernel.body.block.args]
        infos = tuple(TensorInfo(str(k), t.get_shape(), numpy_dtype(t.element_type)) for k, t in enumerate(types))
        places = tuple((FIRST_INPUT + k, 0) for k in range(len(infos)))
        sizes = tuple(prod(t.get_shape()) * info.dtype.itemsize for t, info in zip(types, infos, strict=True))
        host = HostProgram(infos, (), (), 0, FIRST_INPUT + len(infos), (Launch(code.name, places, sizes),))
        return NativeProgram(host, {code.name: code.image()}, {}, runtime(runtime_object()), self.threads)


def _planned(kernel: Operation) -> Operation:
    """A kernel for the sizes that its plans are made for."""
    if not isinstance(kernel, KernelOp) or not kernel.representative:
        return kernel
    known = bound_kernel(kernel, {symbol(k): size for k, size in enumerate(kernel.representative)})
    del known.attributes[REPRESENTATIVE]
    return known


def _result(name: str, variant: int, before: float, after: float) -> Tuned:
    return Tuned(name, variant, str(VARIANTS[variant]), before, after)


def with_variant(stages: Sequence[Stage], variant: int) -> tuple[Stage, ...]:
    """Stages whose tiles are cut by a variant of the plans."""

    def chosen(p: Any) -> Any:
        return replace(p, variant=variant) if isinstance(p, TileKernelsPass) else p

    return tuple(replace(stage, passes=tuple(map(chosen, stage.passes))) for stage in stages)


def _inputs(infos: Sequence[TensorInfo]) -> Iterator[NDArray[Any]]:
    """Random floats; zeros for the rest, which may be places."""
    generator = np.random.default_rng(0)
    for info in infos:
        shape = tuple(int(s) for s in info.shape)
        yield generator.random(shape).astype(info.dtype) if info.dtype.kind not in "biu" else np.zeros(shape, info.dtype)
