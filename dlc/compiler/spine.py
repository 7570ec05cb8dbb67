"""From a program to a model."""

from __future__ import annotations

from functools import partial
from itertools import chain
from time import perf_counter

from dlc.artifact import Artifact, KernelObject
from dlc.backends.cpu.llvm import assembly
from dlc.backends.cpu.runtime_code import runtime_object
from dlc.backends.host_program import check_program
from dlc.backends.opencl.devices import Device, choose, target_of
from dlc.backends.opencl.emit import emit_kernel as emit_opencl
from dlc.backends.opencl.emit import program_text
from dlc.backends.read_host import read_host
from dlc.backends.reference import evaluate
from dlc.compiler.checking import check, first_checked
from dlc.compiler.kernels import compile_kernels
from dlc.compiler.lowering import Lowering
from dlc.compiler.opencl import compile_opencl, with_origins
from dlc.compiler.program import Program
from dlc.compiler.segments import NotSaveable, split
from dlc.compiler.tuning import Tuner, with_variant
from dlc.cpus import usable_cpus
from dlc.dims import is_static
from dlc.emission.llvm.kernel import emit_kernel
from dlc.errors import DeviceError, ShapeError, UnsupportedError
from dlc.instrument.manager import Progress
from dlc.instrument.provenance import dispatches
from dlc.instrument.report import KernelReport, Report
from dlc.instrument.work import flops
from dlc.ir import print_module
from dlc.keys import Key, program_key
from dlc.model import Model, Run
from dlc.model_cache import CachedFile, fetch, reason_not_cached
from dlc.options import Options
from dlc.passes.base import kernels_of
from dlc.pipelines import chosen, parse
from dlc.target import CPU_LEVELS, Target, host_supports, is_opencl, resolve

# The forms of a program that are the code of its kernels.
CODE = ("llvm", "asm", "opencl")


def compile(
    program: Program,
    target: str = "cpu",
    options: Options | None = None,
    *,
    report: Report | None = None,
    progress: Progress | None = None,
    file: CachedFile | None = None,
) -> Model:
    """The model that runs `program` on `target`; a program with symbolic sizes is compiled when it is called.

    What was compiled for a CPU is kept in the cache, and found there; `file` is where the program came from, if it is by the
    file that it is to be found.

    Raises UnsupportedError for what the target cannot do, DeviceError for one that this machine is not, and CompileError
    for a bug of dlc.
    """
    began = perf_counter()
    report = report if report is not None else Report()
    options = options or Options()
    place, device = choose(target, options.device) if is_opencl(target) else (None, resolve(target))
    if device.name in CPU_LEVELS and not host_supports(device):
        raise DeviceError(f"target {device.name}: this machine's processor lacks some of {', '.join(device.features)}")
    artifact = None
    if not program.is_static:
        build = partial(_on_device, place) if place is not None else _reference if device.name == "reference" else _native
        segments = split(program)
        run = segments.run(lambda part, own: _checked(build(part, device, own, report, None), part, device, own), options)
        artifact = NotSaveable(program.name) if segments.are_cut else None
    elif device.name == "reference":
        run = _checked(_reference(program, device, options, report, progress), program, device, options)
    elif place is not None:
        run = _checked(_on_device(place, program, device, options, report, progress), program, device, options)
    else:
        artifact = _artifact(program, device, options, report, progress, file)
        with report.timed("load"):
            run = _checked(artifact.program(options.num_threads).run, program, device, options)
    report.seconds += perf_counter() - began
    return Model(program.inputs, program.outputs, run, program.name, artifact, takes_device_arrays=place is not None)


def emit(program: Program, form: str, target: str = "cpu", options: Options | None = None) -> str:
    """The text of a program at the end of a stage, or of its kernels as `llvm`, `asm` or `opencl`.

    Raises ShapeError when sizes are unknown.
    """
    if not program.is_static:
        infos = ", ".join(map(str, (*program.inputs, *program.outputs)))
        if all(is_static(info.shape) for info in program.inputs):
            raise UnsupportedError(f"{program.name}: data decides sizes: {infos}; run it with --dump-ir to see its segments")
        raise ShapeError(f"{program.name}: sizes are open: {infos}; give the shapes of its inputs")
    options = options or Options()
    device = target_of(target, options.device)
    if form in CODE and is_opencl(target) != (form == "opencl"):
        raise UnsupportedError(
            f"the target {target} has no form {form!r}; kernels are opencl on OpenCL devices, llvm and asm on CPUs"
        )
    lowering = Lowering(program, device, options, Report())
    if form not in CODE:
        lowering.until(form)
        return print_module(lowering.module)
    lowering.run((*lowering.stages(kernels=False), *lowering.stages(kernels=True)))
    kernels = list(kernels_of(lowering.module))
    if form == "opencl":
        return program_text([with_origins(emit_opencl(kernel, device), lowering.module) for kernel in kernels])
    texts = [emit_kernel(kernel, device).text for kernel in kernels]
    return "\n".join(assembly(t, device) if form == "asm" else t for t in texts)


def _checked(run: Run, program: Program, device: Target, options: Options) -> Run:
    """`run`, and if asked for, before its first result a check of every pass on the same inputs."""
    if not options.check_each_pass:
        return run
    return first_checked(
        run, lambda arrays: check(program, arrays, device, options, lambda part, own: compile(part, device.name, own))
    )


def _reference(program: Program, device: Target, options: Options, report: Report, progress: Progress | None) -> Run:
    """Evaluates the module as it is, or as it is after the passes or the stage that the options choose."""
    lowering = Lowering(program, device, options, report, progress)
    if options.until is not None:
        lowering.until(options.until)
    elif options.pipeline is not None:
        lowering.run(chosen(parse(options.pipeline)))
    return lambda arrays: evaluate(lowering.module, arrays, lowering.weights)


def _on_device(
    place: Device, program: Program, device: Target, options: Options, report: Report, progress: Progress | None
) -> Run:
    return compile_opencl(program, place, device, options, report, progress).run


def _native(program: Program, device: Target, options: Options, report: Report, progress: Progress | None) -> Run:
    return _artifact(program, device, options, report, progress).program(options.num_threads).run


def _artifact(
    program: Program,
    device: Target,
    options: Options,
    report: Report,
    progress: Progress | None,
    file: CachedFile | None = None,
) -> Artifact:
    """The program as an artifact: out of the cache, or compiled now."""

    def make() -> Artifact:
        return _compiled(program, device, options, report, progress)

    if reason_not_cached(device, options) is not None:
        return make()
    with report.timed("key"):
        key = file.key if file is not None else _key(program, device, options)
    return fetch(key, program.name, program.inputs, make, report, file.path if file is not None else None)


def _key(program: Program, device: Target, options: Options) -> Key:
    # Without the places it comes from: a function is the same wherever it stands, as in each session of a notebook.
    text = print_module(program.module, locations=False)
    return program_key(text, program.weights, program.remaining, device, options)


def _compiled(program: Program, device: Target, options: Options, report: Report, progress: Progress | None) -> Artifact:
    lowering = Lowering(program, device, options, report, progress)
    lowering.run(lowering.stages(kernels=False))
    work = flops(lowering.module)
    kernel_stages = lowering.stages(kernels=True)
    if lowering.dump is not None:
        # On the whole module, so that the files show all of it.
        lowering.run(kernel_stages)
        kernel_stages = ()
    variants: dict[str, int] = {}
    if options.tune and kernel_stages:
        runs = {name: len(places) for name, places in dispatches(lowering.module).items()}
        tuner = Tuner(kernel_stages, device, lowering.context, options.num_threads or usable_cpus(), runs)
        with report.timed("tuning"):
            report.tuned += tuner.tune(lowering.module, options.tune, progress)
        variants = {tuned.name: tuned.variant for tuned in report.tuned}
    if progress is not None:
        progress("kernels", "")
    codes = compile_kernels(
        lowering.module,
        lambda name: with_variant(kernel_stages, variants.get(name, 0)) if name in variants else kernel_stages,
        device,
        lowering.context,
        check=options.verify,
        processes=options.workers or usable_cpus(),
    )
    lowering.host()
    host = read_host(lowering.module)
    check_program(host, {code.name for code in codes})
    runs = host.runs
    layers = dispatches(lowering.module)
    for code in codes:
        report.passes.extend(code.passes)
        for record in code.passes:
            report.add(record.stage, record.seconds)
        report.add("emission", code.emission)
        report.add("llvm", code.llvm)
        report.kernels.append(KernelReport(code.name, runs[code.name], len(code.object), code.emission + code.llvm))
        if lowering.dump is not None:
            lowering.dump.kernel(code.name, "ll", code.ir.text)
    kernels = tuple(
        KernelObject(
            code.name,
            code.object,
            code.ir.grids,
            tuple(dict.fromkeys(chain(*layers.get(code.name, ())))),
            work.get(code.name, 0),
        )
        for code in codes
    )
    return Artifact(program.name, device, host, kernels, lowering.weights, runtime_object(), options.numerics)
