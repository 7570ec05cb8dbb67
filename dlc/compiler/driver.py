"""The compiler driver: from a program to a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import numpy as np

from dlc.backends.base import Backend, Executable, KernelBackend, ModuleBackend
from dlc.backends.reference import evaluate_data_dependent_sizes
from dlc.backends.registry import backend_of
from dlc.caching.keys import CacheKey, program_key
from dlc.caching.model_cache import CachedFile, fetch, reason_not_cached
from dlc.compiler.compilation import Compilation
from dlc.compiler.lowering import Lowering
from dlc.compiler.numerical_checks import check, check_first_call
from dlc.compiler.program import Program
from dlc.compiler.program_builder import build_program
from dlc.compiler.size_domains import data_dependent_sizes, infer_domain, restrict_to_domain
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.dl.movement.index_checks import checked_op_locations
from dlc.dialects.dl.programs.size_ranges import size_ranges
from dlc.dialects.entry import entry_of, outputs_of
from dlc.dims import is_static
from dlc.errors import ShapeError, UnsupportedError
from dlc.instrument.provenance import dispatches, header
from dlc.instrument.report import Progress, Report
from dlc.ir import ModuleOp, clear_large_memo_tables, contains, print_module
from dlc.machine.garbage_collection import infrequent_collection
from dlc.options import Options
from dlc.passes.base import kernels_of
from dlc.passes.transformations.expand_transformations import expand_for_evaluation
from dlc.pipelines import custom_stages, parse
from dlc.runtime.load import CompiledProgram
from dlc.runtime.models.lru_cache import LRUCache
from dlc.runtime.models.model import Model, Run
from dlc.runtime.models.recompilations import Recompilations
from dlc.runtime.models.saved_specializations import model_of
from dlc.runtime.models.specialization_cache import Sizes, Specialization, SpecializationCache

# The output forms of the built-in targets that are kernel code.
CODE_FORMS = ("llvm", "asm", "opencl")


def compile(
    program: Program,
    target: str | Backend = "cpu",
    options: Options | None = None,
    *,
    report: Report | None = None,
    progress: Progress | None = None,
    file: CachedFile | None = None,
    rebuild_module: Callable[[], ModuleOp] | None = None,
) -> Model:
    """Compile a program for a target.

    A program with symbolic dimensions compiles to one dynamic-shape program where possible; otherwise it is specialized per set
    of sizes at run time, and `report` says why.

    Programs are cached under a hash of the program, or of the model file if `file` is given. `rebuild_module` imports the
    program's module again; with it, the module itself is lowered and not a copy.

    A model for another processor can be saved but not called: calls raise DeviceError.

    Raises UnsupportedError for features that the target lacks, DeviceError for a missing device, and CompileError for a bug in
    dlc.
    """
    options = options or Options()
    backend = backend_of(target, options.device).for_compilation()
    c = Compilation(program, backend, options, report if report is not None else Report(), progress)
    with infrequent_collection():
        expanded = _expand_data_dependent(c)
        model = _compile(expanded, file, rebuild_module if expanded is c else None)
    clear_large_memo_tables()
    model.defaults = program.defaults
    model.num_threads = options.num_threads
    return model


def compile_recorded(c: Compilation) -> Specialization | None:
    """Compile with a recorder: return the dynamic-shape specialization, or None if there is none.

    Raises what `compile` raises.
    """
    began = perf_counter()
    with infrequent_collection():
        dynamic, c.report.specialization_reason = _compile_dynamic(_expand_data_dependent(c))
    c.report.seconds += perf_counter() - began
    return dynamic


def _expand_data_dependent(c: Compilation) -> Compilation:
    """Expand derivatives and batching in a program with data-dependent sizes, so that it can be split into segments."""
    if not contains(c.program.module, DataDependent):
        return c
    return replace(c, program=replace(c.program, module=expand_for_evaluation(c.program.module)))


def _compile(c: Compilation, file: CachedFile | None = None, rebuild_module: Callable[[], ModuleOp] | None = None) -> Model:
    began = perf_counter()
    dynamic, c.report.specialization_reason = _compile_dynamic(c, file, rebuild_module)
    c.report.seconds += perf_counter() - began
    if dynamic is not None and dynamic.covers_all_sizes:
        return dynamic.model
    if dynamic is not None:
        c.report.served_sizes = str(dynamic.domain)
    models = _specialization_cache(replace(c, program=c.program.copy_to_memory()), dynamic)
    return model_of(models, takes_device_arrays=c.backend.takes_device_arrays)


def _specialization_cache(c: Compilation, dynamic: Specialization | None) -> SpecializationCache:
    """Return a cache of specializations by the sizes of the input symbols, or by the data-dependent sizes of static inputs."""
    program, input_symbols = c.program, sorted(c.program.sizes)
    data_dependent = tuple(data_dependent_sizes(program)) if not input_symbols else ()
    symbols = data_dependent or tuple(input_symbols)

    # Only the first compilation is dumped: later ones differ in sizes only.
    first_options = iter([c.options] if dynamic is None else [])

    def compile_for(key: Sizes) -> Model:
        static_program = program.specialize(dict(zip(symbols, key, strict=True)))
        return _compile(c.for_program(static_program, next(first_options, replace(c.options, dump_ir=None))))

    def compute_sizes(arrays: Sequence[Any]) -> Sizes:
        sizes = evaluate_data_dependent_sizes(program.module, list(map(np.asarray, arrays)), program.weights)
        return tuple(sizes.get(symbol, 0) for symbol in symbols)

    def describe_key(key: Sizes) -> dict[str, str]:
        return {symbol: str(size) for symbol, size in zip(symbols, key, strict=True)}

    advice = "compile-model shows the sizes that are served without compiling, and why not all are"
    models = LRUCache(compile_for, recompilations=Recompilations(program.name, advice), describe=describe_key)
    ranges = size_ranges(program.module)
    return SpecializationCache(
        program.name,
        program.inputs,
        program.outputs,
        symbols,
        dynamic,
        models,
        compute_sizes if data_dependent else None,
        ranges,
    )


def _compile_dynamic(
    c: Compilation, file: CachedFile | None = None, rebuild_module: Callable[[], ModuleOp] | None = None
) -> tuple[Specialization | None, str | None]:
    """Compile a program for all sizes, or for a domain of sizes; also return the reason to specialize other sizes."""
    is_static_program = not c.program.sizes and not data_dependent_sizes(c.program)
    # The evaluator handles data-dependent sizes at run time.
    if is_static_program or (not c.program.sizes and isinstance(c.backend, ModuleBackend)):
        return Specialization(_model(c, file, rebuild_module)), None
    if not c.program.sizes and not c.backend.accepts_symbolic_sizes:
        data_dependent = ", ".join(data_dependent_sizes(c.program))
        raise UnsupportedError(
            f"{c.program.name}: data-dependent sizes {data_dependent} are not supported by {c.backend}, whose kernels have "
            "static sizes; a backend whose kernels take sizes sets `accepts_symbolic_sizes`"
        )
    reason = reason_to_specialize(c)
    domain, reason = infer_domain(c.program) if reason is None else (None, reason)
    if domain is None:
        return None, reason
    try:
        if domain.is_unrestricted:
            return Specialization(_model(c, file)), None
        model = _model(replace(c, program=restrict_to_domain(c.program, domain)))
        return Specialization(model, domain, domain.symbols.isdisjoint(data_dependent_sizes(c.program))), reason
    except (UnsupportedError, ShapeError) as error:
        # Errors that do not depend on sizes are raised again by the specialization; bugs of dlc are not caught here.
        return None, str(error).partition("\n")[0]


def _model(c: Compilation, file: CachedFile | None = None, rebuild_module: Callable[[], ModuleOp] | None = None) -> Model:
    infos, device = (c.program.inputs, c.program.outputs), c.backend.takes_device_arrays
    run, artifact = _compile_static(c, file, rebuild_module)
    return Model(*infos, run, c.program.name, artifact, takes_device_arrays=device)


def reason_to_specialize(c: Compilation) -> str | None:
    """Return the reason why a program with symbolic dimensions needs static sizes on this backend, or None."""
    if not c.program.sizes:
        return None
    # The evaluator runs modules with planned buffers for any sizes.
    if not c.backend.accepts_symbolic_sizes and not outputs_of(entry_of(c.program.module)):
        return f"kernels for {c.backend} have static sizes"
    if c.options.check_each_pass:
        return "check_each_pass needs static sizes"
    return None


def emit(program: Program, form: str, target: str | Backend = "cpu", options: Options | None = None) -> str:
    """Return the text of a program at the end of a stage, or of its kernels in a form of the target: `llvm`, `asm`, `opencl`.

    Raises ShapeError for symbolic input dimensions and UnsupportedError for data-dependent sizes.
    """
    if not program.is_static:
        infos = ", ".join(map(str, (*program.inputs, *program.outputs)))
        if all(is_static(info.shape) for info in program.inputs):
            raise UnsupportedError(f"{program.name}: data-dependent sizes: {infos}; run it with --dump-ir to see its segments")
        raise ShapeError(f"{program.name}: symbolic dimensions: {infos}; set the shapes of its inputs")
    options = options or Options()
    backend = backend_of(target, options.device)
    kernel_backend = None if isinstance(backend, ModuleBackend) else cast("KernelBackend[Any, Any]", backend)
    forms = kernel_backend.listing_formats if kernel_backend is not None else ()
    if form in CODE_FORMS and form not in forms:
        available = f"its kernels are available as {' and '.join(forms)}" if forms else "it evaluates modules"
        raise UnsupportedError(f"the target {backend.target.name} has no output form {form!r}; {available}")
    lowering = Lowering(Compilation(program, backend, options))
    if kernel_backend is None or form not in forms:
        lowering.until(form)
        return print_module(lowering.module)
    lowering.run((*lowering.stages(kernels=False), *lowering.stages(kernels=True)))
    texts = {kernel.sym_name.data: kernel_backend.emit(kernel) for kernel in kernels_of(lowering.module)}
    layers = dispatches(lowering.module)
    return kernel_backend.show(form, texts, {name: header(name, layers.get(name, [])) for name in texts})


def _compile_static(
    c: Compilation, file: CachedFile | None = None, rebuild_module: Callable[[], ModuleOp] | None = None
) -> tuple[Run, CompiledProgram | None]:
    """Compile a program that needs no specialization; return a function that runs it, and its artifact if it has one."""
    if c.options.check_each_pass:
        c, rebuild_module = replace(c, program=c.program.copy_to_memory()), None
    executable = _run_passes(c, c.backend) if isinstance(c.backend, ModuleBackend) else _load_or_build(c, file, rebuild_module)
    artifact = executable if isinstance(executable, CompiledProgram) else None
    with c.report.timed("load"):
        run: Run = executable.runner(c.options.num_threads) if isinstance(executable, CompiledProgram) else executable.run
    if not c.options.check_each_pass:
        return run, artifact
    # The first call checks every pass on its inputs before it returns a result.
    return check_first_call(run, lambda arrays: check(c, arrays, lambda segment: _compile_static(segment)[0])), artifact


def _run_passes(c: Compilation, backend: ModuleBackend) -> Executable:
    """Return the evaluator of the module, after the passes or the stage that the options select."""
    lowering = Lowering(c)
    if c.options.until is not None:
        lowering.until(c.options.until)
    elif c.options.pipeline is not None:
        lowering.run(custom_stages(parse(c.options.pipeline, backend.target)))
    return backend.execute(lowering.module, lowering.weights.copy_to_memory())


def _load_or_build(
    c: Compilation, file: CachedFile | None, rebuild_module: Callable[[], ModuleOp] | None
) -> CompiledProgram | Executable:
    """Return the program, from the cache or compiled now."""
    backend, program = cast("KernelBackend[Any, Any]", c.backend), c.program
    if c.recorder is not None or reason_not_cached(backend.target, c.options) is not None:
        return build_program(c, backend, rebuild_module)

    def build() -> CompiledProgram:
        artifact = build_program(c, backend, rebuild_module)
        assert isinstance(artifact, CompiledProgram), f"{backend}: a target with a version must produce artifacts"
        return artifact

    def read(path: Path) -> CompiledProgram:
        return backend.load_cached(path, c.options)

    with c.report.timed("key"):
        key = file.key if file is not None else _key(c)
    return fetch(key, program.name, program.inputs, read, build, c.report, file.path if file is not None else None)


def _key(c: Compilation) -> CacheKey:
    # Source locations are not part of the key, except those that run-time error messages contain.
    program, text = c.program, print_module(c.program.module, locations=False)
    text = "\n".join([text, *checked_op_locations(program.module)])
    return program_key(text, program.weights, program.remaining_passes, c.backend.target, c.options)
