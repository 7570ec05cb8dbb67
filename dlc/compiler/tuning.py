"""Autotuning: choose tile plans, prefetching and unrolling by measurement.

Each kernel is compiled in several variants, and the fastest one is used. Dynamic-shape kernels are measured
at the representative sizes. With one thread, CPU time is measured, which excludes other processes. Variants are timed in
interleaved rounds, on operands that are not in the L2 cache, which is the usual state inside a model. Slow variants are
dropped after a screening phase. A variant replaces the default plan only if its minimum over even rounds and its minimum over
odd rounds are both lower than both minima of the default.

Results are cached by kernel text, target and number of threads, so that a kernel is measured once for all models.
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

from dlc.arrays import ALIGNMENT_BYTES, TensorInfo, aligned_empty
from dlc.backends.cpu.backend import ObjectBackend
from dlc.backends.cpu.runtime_code import runtime_object
from dlc.caching.cache import Cache
from dlc.caching.keys import dlc_version, target_text
from dlc.compiler.kernels import all_kernels, lower_kernel, symbol_of
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.programs.binding import bound_kernel
from dlc.dialects.dl.programs.program import REPRESENTATIVE, KernelOp
from dlc.dialects.sizes import symbol
from dlc.instrument.report import Progress, ProgressEvent, TunedKernel
from dlc.ir import Attribute, Context, MemRefType, ModuleOp, Operation, func, print_module
from dlc.passes.base import Stage, TargetPass
from dlc.passes.tiling.tasks.variants import VARIANTS
from dlc.passes.tiling.tile_kernels import TileKernelsPass
from dlc.runtime.cpu.code.native import runtime
from dlc.runtime.cpu.kernel_object import KernelObject, load_kernels
from dlc.runtime.cpu.program import NativeProgram
from dlc.runtime.program.host_program import FIRST_INPUT_SLOT, HostProgram, Launch

# The kind of cache entries.
KIND = "plan"
# A variant must be faster by this factor, in addition to the noise; variants within this factor of the best count as equal.
_MIN_SPEEDUP = 1.02
# Variants slower than the best by this factor are dropped after this fraction of the time. The minimum number of rounds.
_MAX_SCREENED_SLOWDOWN, _SCREENING_TIME_SHARE, _MIN_ROUNDS = 1.1, 0.3, 4
# A program repeats its kernel on different arguments until they have this size (to evict the L2 cache), up to a limit.
_MIN_ARGUMENT_BYTES, _MAX_RUNS_PER_PROGRAM = 4 << 20, 64
# The slowest kernels are tuned, until they cover this fraction of the model's time.
_TUNED_TIME_SHARE = 0.95


@dataclass(frozen=True)
class KernelTiming:
    """Seconds per run of a kernel: the minimum over even-numbered and over odd-numbered rounds."""

    even: float
    odd: float

    @property
    def best(self) -> float:
        return min(self.even, self.odd)

    def is_significantly_below(self, other: KernelTiming) -> bool:
        """Return whether both minima are lower than both minima of `other`, by a factor of more than `_MIN_SPEEDUP`."""
        return max(self.even, self.odd) * _MIN_SPEEDUP < other.best


@dataclass(frozen=True)
class KernelBenchmark:
    """A program that runs one kernel `runs` times, each time on separate operands and results.

    All arguments are stored in its single input, at offsets as in the arena of a model.
    """

    program: NativeProgram
    arguments: Sequence[tuple[int, TensorInfo]]
    runs: int

    def memory(self) -> NDArray[np.uint8]:
        """Return the input: random floats, and zeros for integers, which may be indices."""
        (info,) = self.program.inputs
        memory = aligned_empty(cast("tuple[int, ...]", info.shape), np.uint8)
        memory[:] = 0
        generator = np.random.default_rng(0)
        for offset, argument in self.arguments:
            if argument.dtype.kind not in "biu":
                shape = cast("tuple[int, ...]", argument.shape)
                array = np.ndarray(shape, argument.dtype, memory, offset)
                array[...] = generator.random(shape, np.float32)
        return memory


@dataclass(frozen=True)
class Tuner:
    """Measures kernels of a program that runs each kernel `runs[name]` times."""

    stages: Sequence[Stage]
    backend: ObjectBackend[Any]
    context: Context
    threads: int
    runs: Mapping[str, int]

    def tune(self, module: ModuleOp, seconds: float, progress: Progress | None) -> list[TunedKernel]:
        """Return the fastest variants of the kernels that take most of the time; tune for about `seconds`."""
        kernels = {symbol_of(kernel): _bind_representative_sizes(kernel) for kernel in all_kernels(module)}
        default_seconds = {
            name: self.measure(kernel, [0], seconds / (4 * len(kernels)))[0].best for name, kernel in kernels.items()
        }
        total = sum(default_seconds[name] * self.runs[name] for name in kernels)
        selected: list[str] = []
        selected_seconds = 0.0
        for name in sorted(kernels, key=lambda name: -default_seconds[name] * self.runs[name]):
            if selected_seconds >= _TUNED_TIME_SHARE * total:
                break
            selected_seconds += default_seconds[name] * self.runs[name]
            selected.append(name)
        results: list[TunedKernel] = []
        for k, name in enumerate(selected):
            if progress is not None:
                progress(ProgressEvent("tuning", name, k, len(selected)))
            results.append(self.tune_kernel(name, kernels[name], seconds / len(selected)))
        return results

    def tune_kernel(self, name: str, kernel: Operation, seconds: float) -> TunedKernel:
        """Return the fastest variant of a kernel, from the cache or measured now."""
        text = f"{print_module(kernel, locations=False)}\n{target_text(self.backend.target)} {self.threads} {dlc_version()}"
        key, cache = hashlib.blake2b(text.encode(), digest_size=20).hexdigest(), Cache.standard()

        def read(path: Path) -> TunedKernel:
            variant, before, after = json.loads(path.read_text())
            return _result(name, int(variant), float(before), float(after))

        cached = cache.read(KIND, key, read)
        if cached is not None:
            return cached
        times = self.measure(kernel, range(len(VARIANTS)), seconds)
        best = choose_variant(times)
        result = _result(name, best, times[0].best, times[best].best)
        line = json.dumps([result.variant, result.before, result.after])
        cache.store(KIND, key, lambda path: path.write_text(line), {"kernel": name, "target": self.backend.target.name})
        return result

    def measure(self, kernel: Operation, variants: Sequence[int], seconds: float) -> dict[int, KernelTiming]:
        """Return the timing of each variant that changes the code.

        Half of the time is for compilation: variants that would exceed it are omitted.
        """
        start = perf_counter()
        benchmarks: dict[int, KernelBenchmark] = {}
        emitted: set[str] = set()
        for variant in variants:
            if benchmarks and perf_counter() > start + seconds / 2:
                break
            lowered, _ = lower_kernel(kernel, with_variant(self.stages, variant), self.context, check=False)
            code = self.backend.emit(lowered)
            if code.text in emitted:
                continue
            emitted.add(code.text)
            benchmarks[variant] = self.program(lowered, self.backend.compile_kernel(lowered.sym_name.data, code))
        return self.compare(benchmarks, start + seconds)

    def compare(self, benchmarks: Mapping[int, KernelBenchmark], end: float) -> dict[int, KernelTiming]:
        """Return the timing of each benchmark except the slow ones, which a first round of measurements drops.

        The remaining ones are measured again: the minimum of many noisy timings is biased.
        """
        now = perf_counter()
        screened = self.time_interleaved(benchmarks, now + _SCREENING_TIME_SHARE * (end - now))
        best = min(seconds.best for seconds in screened.values())
        return self.time_interleaved(
            {v: p for v, p in benchmarks.items() if v == 0 or screened[v].best < best * _MAX_SCREENED_SLOWDOWN}, end
        )

    def time_interleaved(self, benchmarks: Mapping[int, KernelBenchmark], end: float) -> dict[int, KernelTiming]:
        """Time each benchmark, in rounds that run all of them."""
        clock = thread_time if self.threads == 1 else perf_counter
        inputs, order, random = [benchmarks[0].memory()], list(benchmarks), Random(0)
        times: dict[int, list[float]] = {variant: [] for variant in benchmarks}
        for benchmark in benchmarks.values():
            benchmark.program.run(inputs)
        while len(times[0]) < _MIN_ROUNDS or perf_counter() < end:
            # A random order: the predecessor, which leaves its data in the caches, differs in each round.
            random.shuffle(order)
            for variant in order:
                start = clock()
                benchmarks[variant].program.run(inputs)
                times[variant].append((clock() - start) / benchmarks[variant].runs)
        return {v: KernelTiming(min(t[::2]), min(t[1::2])) for v, t in times.items()}

    def program(self, kernel: func.FuncOp, code: KernelObject) -> KernelBenchmark:
        """Return a benchmark that runs one kernel on enough consecutive arguments to exceed the L2 cache."""
        types = [cast("MemRefType[Attribute]", a.type) for a in kernel.body.block.args]
        infos = [TensorInfo(str(k), t.get_shape(), numpy_dtype(t.element_type)) for k, t in enumerate(types)]
        sizes = tuple(prod(t.get_shape()) * info.dtype.itemsize for t, info in zip(types, infos, strict=True))
        runs = max(1, min(_MAX_RUNS_PER_PROGRAM, -(-_MIN_ARGUMENT_BYTES // max(1, sum(sizes)))))
        *offsets, end = accumulate(
            (-(-size // ALIGNMENT_BYTES) * ALIGNMENT_BYTES for size in sizes for _ in range(runs)), initial=0
        )
        arguments = [(FIRST_INPUT_SLOT, offset) for offset in offsets]
        launches = (Launch(code.name, tuple(arguments[k::runs]), sizes) for k in range(runs))
        memory = TensorInfo("memory", (end,), np.dtype(np.uint8))
        host = HostProgram((memory,), (), (), tuple(launches))
        program = NativeProgram(host, load_kernels([code]), {}, runtime(runtime_object()), self.threads)
        return KernelBenchmark(program, list(zip(offsets, (info for info in infos for _ in range(runs)), strict=True)), runs)


def choose_variant(times: Mapping[int, KernelTiming]) -> int:
    """Return the first variant within noise of the fastest one, or 0 (the default) if none is significantly faster."""
    faster = [v for v, seconds in times.items() if seconds.is_significantly_below(times[0])]
    best = min((times[v].best for v in faster), default=0.0)
    return next((v for v in faster if times[v].best <= best * _MIN_SPEEDUP), 0)


def _bind_representative_sizes(kernel: Operation) -> Operation:
    """Return a kernel with static representative sizes."""
    if not isinstance(kernel, KernelOp) or not kernel.representative:
        return kernel
    static_kernel = bound_kernel(kernel, {symbol(k): size for k, size in enumerate(kernel.representative)})
    del static_kernel.attributes[REPRESENTATIVE]
    return static_kernel


def _result(name: str, variant: int, before: float, after: float) -> TunedKernel:
    return TunedKernel(name, variant, str(VARIANTS[variant]), before, after)


def with_variant(stages: Sequence[Stage], variant: int) -> tuple[Stage, ...]:
    """Return stages in which tiling, prefetching and unrolling use a variant of the rules."""

    def set_variant(p: Any) -> Any:
        if not isinstance(p, TargetPass):
            return p
        adapted = replace(p, target=VARIANTS[variant].adapted(p.target))
        return replace(adapted, variant=variant) if isinstance(adapted, TileKernelsPass) else adapted

    return tuple(replace(stage, passes=tuple(map(set_variant, stage.passes))) for stage in stages)
