"""From a program to one that runs on an OpenCL device: kernels to text, text to a program, launches to commands.

kernels ─ linalg, tiling, loops ─ OpenCL C ─┬─ the device's compiler, or the cache of binaries ─┬─ OpenCLProgram
host: weight expressions, buffers, arena ───┴─ launches ────────────────────────────────────────┘
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

from dlc.backends.host_program import check_program
from dlc.backends.opencl.build import build
from dlc.backends.opencl.devices import Device, fitted, open_device
from dlc.backends.opencl.emit import KernelSource, emit_kernel
from dlc.backends.opencl.parts import TooLargeError
from dlc.backends.opencl.program import OpenCLProgram
from dlc.backends.read_host import read_host
from dlc.cache import Cache
from dlc.compiler.kernels import all_kernels, lower_kernel, map_kernels, symbol_of
from dlc.compiler.lowering import Lowering, plan
from dlc.compiler.program import Program
from dlc.cpus import usable_cpus
from dlc.errors import DeviceError, UnsupportedError
from dlc.instrument.manager import Progress
from dlc.instrument.provenance import dispatches, header
from dlc.instrument.report import KernelReport, PassRecord, Report
from dlc.ir import Context, ModuleOp, Operation, f64
from dlc.options import Options
from dlc.passes.base import Stage
from dlc.pipelines import KERNEL_STAGES
from dlc.target import OPENCL_PROFILES, Target


@dataclass(frozen=True)
class _KernelText:
    source: KernelSource
    passes: tuple[PassRecord, ...]
    emission: float


def compile_opencl(
    program: Program, device: Device, target: Target, options: Options, report: Report, progress: Progress | None = None
) -> OpenCLProgram:
    """The program on a device, compiled for `target`.

    Kernels that the device turns out not to hold are compiled again as for the smallest of devices. Raises DeviceError,
    naming them, if that is still too large, and UnsupportedError for numbers that the device does not compute with.
    """
    lowering = Lowering(program, target, options, report, progress)
    lowering.run(lowering.stages(kernels=False))
    _require_doubles(lowering.module, target, device)
    if options.numerics == "strict" and not target.doubles:
        raise UnsupportedError(f"{device} as {target.name}: strict numerics need f64, which it lacks; use numerics='default'")
    whole = lowering.module.clone()
    stages = lowering.stages(kernels=True)
    if lowering.dump is not None:
        # On the whole module, so that the files show all of it.
        lowering.run(stages)
        stages = ()
    if progress is not None:
        progress("kernels", "")
    processes = options.workers or usable_cpus()
    texts = _texts(all_kernels(lowering.module), stages, target, lowering.context, options.verify, processes)
    lowering.host()
    host = read_host(lowering.module)
    check_program(host, {t.source.name for t in texts})
    session = open_device(device)
    sizes = {launch.kernel: launch.sizes for launch in host.launches if launch.kernel is not None}
    if progress is not None:
        progress("opencl", f"{len(texts)} kernels")
    cache = Cache.standard() if options.cache else Cache(None)
    with report.timed("opencl"):
        try:
            built = build(program.name, [t.source for t in texts], sizes, session, cache, processes)
        except TooLargeError as error:
            smaller = fitted(OPENCL_PROFILES["opencl:small"], device)
            if target.groups is None or smaller.groups == target.groups:
                raise _cannot_hold(program, device, error, whole) from error
            kernels = [k for k in all_kernels(whole) if symbol_of(k) in error.kernels]
            again = tuple(s for s in plan(program, smaller, options) if s.name in KERNEL_STAGES)
            small = _texts(kernels, again, smaller, lowering.context, options.verify, processes)
            texts = [*(t for t in texts if t.source.name not in error.kernels), *small]
            try:
                built = build(program.name, [t.source for t in texts], sizes, session, cache, processes)
            except TooLargeError as final:
                raise _cannot_hold(program, device, final, whole) from final
    with report.timed("load"):
        result = OpenCLProgram(host, built.kernels([t.source for t in texts]), lowering.weights, session)
    _account(report, texts, host.runs)
    if lowering.dump is not None:
        for text in texts:
            lowering.dump.kernel(text.source.name, "cl", with_origins(text.source, whole).text)
    return result


def with_origins(source: KernelSource, module: ModuleOp) -> KernelSource:
    """A kernel for a reader: above it stands which layers it is, and what its places mean."""
    runs = dispatches(module).get(source.name, [])
    return replace(source, functions=header(source.name, runs) + source.functions)


def _texts(
    kernels: Sequence[Operation], stages: Sequence[Stage], target: Target, context: Context, check: bool, processes: int
) -> list[_KernelText]:
    return map_kernels(partial(_text, stages=stages, target=target, context=context, check=check), kernels, processes)


def _text(kernel: Operation, stages: Sequence[Stage], target: Target, context: Context, check: bool) -> _KernelText:
    lowered, passes = lower_kernel(kernel, stages, context, check=check)
    began = perf_counter()
    return _KernelText(emit_kernel(lowered, target), passes, perf_counter() - began)


def _require_doubles(module: ModuleOp, target: Target, device: Device) -> None:
    """Raises UnsupportedError, listing the kernels, if they compute in f64 and the target does not."""
    if target.doubles:
        return
    runs = dispatches(module)
    problems = [
        f"kernel {symbol_of(k)}: f64 ({', '.join(runs.get(symbol_of(k), [()])[0]) or 'of no known origin'})"
        for k in all_kernels(module)
        if any(getattr(v.type, "element_type", v.type) == f64 for op in k.walk() for v in (*op.operands, *op.results))
    ]
    if problems:
        raise UnsupportedError(
            f"{device} as {target.name} does not compute in f64; run the model on the target cpu, or in f32:\n  "
            + "\n  ".join(problems),
            problems,
        )


def _cannot_hold(program: Program, device: Device, error: TooLargeError, module: ModuleOp) -> DeviceError:
    runs = dispatches(module)
    lines = [f"kernel {name} ({', '.join(runs.get(name, [()])[0])}): {reason}" for name, reason in error.kernels.items()]
    return DeviceError(f"{program.name}: {device} cannot hold\n  " + "\n  ".join(lines))


def _account(report: Report, texts: Iterable[_KernelText], runs: Counter[str | None]) -> None:
    for text in texts:
        report.passes.extend(text.passes)
        for record in text.passes:
            report.add(record.stage, record.seconds)
        report.add("emission", text.emission)
        name = text.source.name
        report.kernels.append(KernelReport(name, runs[name], len(text.source.text), text.emission))
