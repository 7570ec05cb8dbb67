"""Tile plans by measurement: each kernel is compiled in the variants worth trying, and the fastest is kept. One that serves
several sizes is measured at the representative one.

Of one thread it is the processor's time that counts, in which others that use the machine have no part. Plans take turns, on
operands that come from behind the second-level cache, as they do where other kernels ran in between. Those that are not much
slower than the best are measured anew, and one is chosen in the place of what the rules say only where even the worse half of
its runs is faster than the better half of theirs.

What was found is kept in the cache by the kernel's text, the target and the number of threads, so that a kernel is measured
once, whichever models it is in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from pathlib import Path
from random import Random
from time import perf_counter, thread_time
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import ALIGNMENT, TensorInfo, aligned_empty
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
from dlc.runtime.cpu.kernel_object import KernelObject, images_of
from dlc.runtime.cpu.program import NativeProgram
from dlc.runtime.program.host_program import FIRST_INPUT, HostProgram, Launch

# The kind of the cache's entries.
KIND = "plan"
# A variant must be faster by so much besides what halves of its runs differ by; of those that are, the first of about the best.
_GAIN = 1.02
# What is slower than the best by so much is given up after this share of the time; there are so many rounds in any case.
_SLOWER, _FIRST, _LEAST_ROUNDS = 1.1, 0.3, 4
# The arguments of the runs that take turns are so many bytes, unless so many runs have fewer.
_APART, _MOST_RUNS = 4 << 20, 64
# Kernels that are measured take this share of the model's time together.
_COVERED = 0.95


@dataclass(frozen=True)
class Seconds:
    """What a run of a kernel takes: the least of every other one that was measured, and of those in between."""

    even: float
    odd: float

    @property
    def least(self) -> float:
        return min(self.even, self.odd)

    def surely_below(self, other: Seconds) -> bool:
        """Whether it is less by more than noise: the worse half of the one, and the better half of the other."""
        return max(self.even, self.odd) * _GAIN < other.least


@dataclass(frozen=True)
class Alone:
    """A program that runs one kernel `runs` times, on arguments of their own; what the kernel writes is among them.

    All of them lie in its one input, as in the arena of a model, each at its place.
    """

    program: NativeProgram
    arguments: Sequence[tuple[int, TensorInfo]]
    runs: int

    def memory(self) -> NDArray[np.uint8]:
        """The input: random floats, and zeros for the rest, which may be places."""
        (info,) = self.program.inputs
        memory = aligned_empty(cast("tuple[int, ...]", info.shape), np.uint8)
        memory[:] = 0
        generator = np.random.default_rng(0)
        for place, argument in self.arguments:
            if argument.dtype.kind not in "biu":
                shape = cast("tuple[int, ...]", argument.shape)
                array = np.ndarray(shape, argument.dtype, memory, place)
                array[...] = generator.random(shape, np.float32)
        return memory


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
        usual = {name: self.measured(kernel, [0], seconds / (4 * len(kernels)))[0].least for name, kernel in kernels.items()}
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
        best = chosen_of(times)
        result = _result(name, best, times[0].least, times[best].least)
        line = json.dumps([result.variant, result.before, result.after])
        cache.store(KIND, key, lambda path: path.write_text(line), {"kernel": name, "target": self.backend.target.name})
        return result

    def measured(self, kernel: Operation, variants: Sequence[int], seconds: float) -> dict[int, Seconds]:
        """What a run takes of each variant that makes a difference.

        Half of the time is for compiling: variants that would take longer are left out.
        """
        began = perf_counter()
        programs: dict[int, Alone] = {}
        texts: set[str] = set()
        for variant in variants:
            if programs and perf_counter() > began + seconds / 2:
                break
            lowered, _ = lower_kernel(kernel, with_variant(self.stages, variant), self.context, check=False)
            text = self.backend.emit(lowered)
            if text.text in texts:
                continue
            texts.add(text.text)
            programs[variant] = self.program(lowered, self.backend.compile_kernel(lowered.sym_name.data, text))
        return self.compared(programs, began + seconds)

    def compared(self, programs: Mapping[int, Alone], end: float) -> dict[int, Seconds]:
        """What a run takes of each program, but for those that are much slower than the best; the others are measured anew.

        Of many that were measured the best had luck besides, which it has not again.
        """
        now = perf_counter()
        first = self.in_turns(programs, now + _FIRST * (end - now))
        best = min(seconds.least for seconds in first.values())
        return self.in_turns({v: p for v, p in programs.items() if v == 0 or first[v].least < best * _SLOWER}, end)

    def in_turns(self, programs: Mapping[int, Alone], end: float) -> dict[int, Seconds]:
        """What a run takes of each program."""
        clock = thread_time if self.threads == 1 else perf_counter
        inputs, order, random = [programs[0].memory()], list(programs), Random(0)
        times: dict[int, list[float]] = {variant: [] for variant in programs}
        for alone in programs.values():
            alone.program.run(inputs)
        while len(times[0]) < _LEAST_ROUNDS or perf_counter() < end:
            # What comes before one of them is another one each time.
            random.shuffle(order)
            for variant in order:
                start = clock()
                programs[variant].program.run(inputs)
                times[variant].append((clock() - start) / programs[variant].runs)
        return {v: Seconds(min(t[::2]), min(t[1::2])) for v, t in times.items()}

    def program(self, kernel: func.FuncOp, code: KernelObject) -> Alone:
        """A kernel alone, with so many arguments that they leave the second-level cache, one behind the other in memory."""
        types = [cast("MemRefType[Attribute]", a.type) for a in kernel.body.block.args]
        infos = [TensorInfo(str(k), t.get_shape(), numpy_dtype(t.element_type)) for k, t in enumerate(types)]
        sizes = tuple(prod(t.get_shape()) * info.dtype.itemsize for t, info in zip(types, infos, strict=True))
        runs = max(1, min(_MOST_RUNS, -(-_APART // max(1, sum(sizes)))))
        *places, end = accumulate((-(-size // ALIGNMENT) * ALIGNMENT for size in sizes for _ in range(runs)), initial=0)
        arguments = [(FIRST_INPUT, place) for place in places]
        launches = (Launch(code.name, tuple(arguments[k::runs]), sizes) for k in range(runs))
        memory = TensorInfo("memory", (end,), np.dtype(np.uint8))
        host = HostProgram((memory,), (), (), 0, FIRST_INPUT + 1, tuple(launches))
        program = NativeProgram(host, images_of([code]), {}, runtime(runtime_object()), self.threads)
        return Alone(program, list(zip(places, (info for info in infos for _ in range(runs)), strict=True)), runs)


def chosen_of(times: Mapping[int, Seconds]) -> int:
    """The variant to take: the rules' (0) unless others are faster for sure; of these the first that is about the fastest."""
    faster = [v for v, seconds in times.items() if seconds.surely_below(times[0])]
    least = min((times[v].least for v in faster), default=0.0)
    return next((v for v in faster if times[v].least <= least * _GAIN), 0)


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
