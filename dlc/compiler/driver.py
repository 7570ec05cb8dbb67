"""The compiler driver: compile a program to a model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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
from dlc.compiler.size_domains import collect_guards, infer_domain, restrict_to_domain
from dlc.compiler.specializer import Specializer
from dlc.dialects.dl.data_dependent.foreign import ForeignCallOp
from dlc.dialects.dl.distributed.collectives import Collective
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.dl.movement.index_checks import checked_op_locations
from dlc.dialects.dl.programs.size_ranges import guards_of, set_guards, size_ranges
from dlc.dialects.entry import entry_of
from dlc.errors import DlcError, ShapeError, UnsupportedError
from dlc.instrument.provenance import kernel_header, kernel_origins
from dlc.instrument.report import Progress, Report
from dlc.ir import ModuleOp, clear_large_memo_tables, contains, print_module, walk_ops
from dlc.machine.garbage_collection import infrequent_collection
from dlc.options import Options
from dlc.passes.base import kernels_of
from dlc.passes.transformations.expand_transformations import expand_for_evaluation
from dlc.pipelines import custom_stages, parse
from dlc.plugins.registry import has_failures
from dlc.runtime.compiled_program import CompiledProgram
from dlc.runtime.models.io_conversion import ConvertedModel
from dlc.runtime.models.model import Model, Run
from dlc.runtime.models.specializations import Specialization
from dlc.runtime.models.specialized_model import ModelCall, SpecializedModel
from dlc.runtime.program.size_binding import OutOfDomainError
from dlc.shapes.dims import UndecidableError
from dlc.shapes.domain import SizeDomain
from dlc.weights import WeightStore

# Listing formats of the built-in targets that show kernel code, not IR.
CODE_FORMATS = ("llvm", "asm", "opencl")


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

    A program with symbolic dimensions compiles to one dynamic-shape program where possible; otherwise it is specialized at run
    time for each set of input shapes, and `report` gives the reason.

    Programs are cached under a hash of the program, or of the model file if `file` is given. `rebuild_module` imports the
    program's module again, so that the module can be lowered in place.

    A model for another processor can be saved but not called: calls raise DeviceError.

    Raises UnsupportedError for features that the target lacks, DeviceError for a missing device, and CompileError for a bug in
    dlc.
    """
    options = options or Options()
    backend = backend_of(target, options.device).for_compilation()
    compilation = Compilation(program, backend, options, report if report is not None else Report(), progress)
    with infrequent_collection():
        model = _compile(compilation, file, rebuild_module)
    clear_large_memo_tables()
    model.defaults = program.defaults
    model.set_execution(options)
    return model


def compile_specialization(
    program: Program, target: str | Backend, options: Options, sizes: Mapping[str, int], shared_weights: WeightStore
) -> Specialization[Model] | None:
    """Compile a program for these sizes of its symbols, and for all others that its guards admit.

    Its packed weights are added to `shared_weights`. Return None if its guards exclude these sizes. A program without a domain
    of sizes that is known before it runs is specialized when the model is called, and serves all sizes.

    Raises what `compile` raises.
    """
    backend = backend_of(target, options.device).for_compilation()
    compilation = Compilation(program, backend, options, shared_weights=shared_weights)
    with infrequent_collection():
        try:
            specialization, reason = _compile_domain(compilation, sizes=sizes)
        except OutOfDomainError:
            return None
        if specialization is None or not specialization.is_guaranteed:
            guards = tuple(g for g in guards_of(entry_of(program.module)) if g.size.symbols() <= sizes.keys())
            domain = SizeDomain(guards=guards, requirements=guards)
            if not domain.may_hold(sizes):
                return None
            if specialization is None:
                warnings.warn(f"{program.name} is specialized per shape: {reason}", stacklevel=10)
            specialized = _specialized_model(compilation, specialization, reason)
            model = specialized.model(takes_device_arrays=backend.takes_device_arrays)
            specialization = Specialization(model, domain)
    clear_large_memo_tables()
    specialization.program.set_execution(options)
    return specialization


def specializer_for(name: str, target: str | Backend, options: Options) -> Specializer:
    """Return the specializer of the function or model `name`, whose specializations share packed weights."""
    shared_weights = WeightStore()

    def compile_for_sizes(program: Program, options: Options, sizes: Mapping[str, int]) -> Specialization[Model] | None:
        compiled = compile_specialization(program, target, options, sizes, shared_weights)
        if compiled is None or program.io_signature is None:
            return compiled
        return replace(compiled, program=ConvertedModel(compiled.program, program.io_signature))

    return Specializer(name, options, compile_for_sizes)


def compile_recorded(compilation: Compilation) -> Specialization[Model] | None:
    """Compile while `compilation.recorder` stores the IR after each pass; return the dynamic-shape specialization, if any.

    Raises what `compile` raises.
    """
    start = perf_counter()
    with infrequent_collection():
        general, compilation.report.specialization_reason = _compile_domain(compilation)
    compilation.report.seconds += perf_counter() - start
    return general


def _expand_data_dependent(compilation: Compilation) -> Compilation:
    """Expand derivatives and batching in a program with data-dependent sizes, so that it can be split into segments."""
    module = compilation.program.module
    if not contains(module, DataDependent):
        return compilation
    expanded = expand_for_evaluation(module)
    if expanded is not module:
        # The expansion removes unused ops, whose guards remain.
        set_guards(entry_of(expanded), tuple(dict.fromkeys((*guards_of(entry_of(module)), *collect_guards(module)))))
    return replace(compilation, program=replace(compilation.program, module=expanded))


def _compile(
    compilation: Compilation, file: CachedFile | None = None, rebuild_module: Callable[[], ModuleOp] | None = None
) -> Model:
    start = perf_counter()
    general, reason = _compile_domain(compilation, file, rebuild_module)
    compilation.report.specialization_reason = reason
    compilation.report.seconds += perf_counter() - start
    if general is not None and general.covers_all_sizes:
        return general.program
    if general is not None:
        compilation.report.dynamic_domain = str(general.domain)
    specialized = _specialized_model(replace(compilation, program=compilation.program.copy_to_memory()), general, reason)
    return specialized.model(takes_device_arrays=compilation.backend.takes_device_arrays)


def _specialized_model(compilation: Compilation, dynamic: Specialization[Model] | None, reason: str | None) -> SpecializedModel:
    """Return the model that is specialized at run time for sizes that no earlier specialization serves; `reason` says why.

    These are the sizes of the input symbols, or the data-dependent sizes if all input shapes are static. A model is imported
    again if its symbolic types do not hold for the sizes of a call, such as for those that clamp a slice.
    """
    program = compilation.program
    data_dependent = tuple(program.data_dependent_sizes) if not program.sizes else ()
    # The dynamic specialization has dumped its IR.
    options = compilation.options if dynamic is None else replace(compilation.options, dump_ir=None)

    def compile_for_sizes(program: Program, options: Options, sizes: Mapping[str, int]) -> Specialization[Model] | None:
        with suppress(DlcError):
            compiled, _ = _compile_domain(compilation.for_program(program, options), sizes=sizes)
            return compiled if compiled is not None and compiled.is_guaranteed else None

    specializer = Specializer(program.name, options, compile_for_sizes)

    def build(call: ModelCall) -> Specialization[Model]:
        missing = sorted(program.sizes.difference(call.sizes))
        if missing:
            raise ShapeError(
                f"{program.name}: the size {missing[0]} is not determined by input shapes; inputs: {specialized.inputs_text}"
            )

        def read(static: Mapping[str, int]) -> Program | None:
            with suppress(DlcError):
                if not static:
                    return program.reimport_for(call.sizes)
                return program.specialize(static) if static.keys() <= program.sizes else None

        def compile_static() -> Model:
            return _compile(compilation.for_program(program.specialize(call.sizes), specializer.next_options()))

        compiled = specializer.specialize(call.sizes, read, compile_static)
        return compiled if compiled.domain.symbols <= program.sizes else replace(compiled, is_guaranteed=False)

    def compute_sizes(arrays: Sequence[Any]) -> dict[str, int]:
        sizes = evaluate_data_dependent_sizes(program.module, list(map(np.asarray, arrays)), program.weights)
        return {symbol: sizes[symbol] for symbol in data_dependent if symbol in sizes}

    specialized = SpecializedModel(
        program.name,
        program.inputs,
        program.outputs,
        build,
        entries=[] if dynamic is None else [dynamic],
        ranges=size_ranges(program.module),
        data_dependent_sizes=data_dependent,
        compute_sizes=compute_sizes if data_dependent else None,
        advice="`dlc compile` reports for which sizes one program is compiled ahead of time, and why not for all",
        reason=reason,
    )
    return specialized


def _compile_domain(
    compilation: Compilation,
    file: CachedFile | None = None,
    rebuild_module: Callable[[], ModuleOp] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> tuple[Specialization[Model] | None, str | None]:
    """Compile a program for all sizes or for a domain of sizes; also return why sizes outside of it are specialized.

    There is no specialization if only one size of each symbol satisfies the guards, unless it is that of the `sizes` of a call.
    Raises OutOfDomainError if guards exclude these sizes.
    """
    try:
        expanded = _expand_data_dependent(compilation)
    except UndecidableError as error:
        return None, str(error).partition("\n")[0]
    if expanded is not compilation:
        compilation, rebuild_module = expanded, None
    if not compilation.program.sizes and not compilation.program.data_dependent_sizes:
        return Specialization(_model(compilation, file, rebuild_module)), None
    if not compilation.program.sizes:
        _require_supported_sizes(compilation)
    reason = reason_to_specialize(compilation)
    if reason is not None:
        return None, reason
    domain, reason = infer_domain(compilation.program)
    if sizes and (domain is None or not domain.may_hold(sizes)):
        raise OutOfDomainError(f"{compilation.program.name}: {reason}")
    if domain is None:
        return None, reason
    try:
        restricted = replace(compilation, program=restrict_to_domain(compilation.program, domain))
        if compilation.program.sizes and not restricted.program.sizes and not sizes:
            return None, reason
        if domain.is_unrestricted:
            return Specialization(_model(restricted, file)), None
        model = _model(restricted)
        is_guaranteed = domain.symbols.isdisjoint(compilation.program.data_dependent_sizes)
        return Specialization(model, domain, is_guaranteed=is_guaranteed), reason
    except (UnsupportedError, ShapeError) as error:
        # Errors that do not depend on sizes are raised again by the specialization; bugs of dlc are not caught here.
        return None, str(error).partition("\n")[0]


def _require_supported_sizes(compilation: Compilation) -> None:
    """Raise UnsupportedError for data-dependent sizes if kernels of the backend have static shapes."""
    if not compilation.backend.accepts_symbolic_sizes and (sizes := compilation.program.data_dependent_sizes):
        raise UnsupportedError(
            f"{compilation.program.name}: data-dependent sizes {', '.join(sizes)} are not supported by {compilation.backend}, "
            "whose kernels have static shapes; a backend whose kernels take sizes as arguments sets `accepts_symbolic_sizes`"
        )


def _model(
    compilation: Compilation, file: CachedFile | None = None, rebuild_module: Callable[[], ModuleOp] | None = None
) -> Model:
    infos, device = (compilation.program.inputs, compilation.program.outputs), compilation.backend.takes_device_arrays
    run, artifact = _compile_executable(compilation, file, rebuild_module)
    return Model(*infos, run, compilation.program.name, artifact, takes_device_arrays=device)


def reason_to_specialize(compilation: Compilation) -> str | None:
    """Return the reason why a program with symbolic dimensions needs static sizes on this backend, or None."""
    if not compilation.program.sizes:
        return None
    if not compilation.backend.accepts_symbolic_sizes:
        return f"kernels for {compilation.backend} have static sizes"
    if compilation.options.check_each_pass:
        return "check_each_pass needs static sizes"
    return None


def emit(program: Program, format: str, target: str | Backend = "cpu", options: Options | None = None) -> str:
    """Return the IR at the end of a stage, or the kernels in a listing format of the target (`llvm`, `asm`, `opencl`).

    Raises ShapeError for symbolic dimensions, and UnsupportedError for data-dependent sizes, that the target does not support.
    """
    infos = ", ".join(map(str, (*program.inputs, *program.outputs)))
    options = options or Options()
    backend = backend_of(target, options.device)
    compilation = _expand_data_dependent(Compilation(program, backend, options))
    _require_supported_sizes(compilation)
    if reason := reason_to_specialize(compilation):
        raise ShapeError(f"{program.name}: symbolic dimensions: {infos}; {reason}: set the shapes of the inputs")
    kernel_backend = None if isinstance(backend, ModuleBackend) else cast("KernelBackend[Any, Any]", backend)
    formats = kernel_backend.listing_formats if kernel_backend is not None else ()
    if format in CODE_FORMATS and format not in formats:
        available = f"available: {', '.join(formats)}" if formats else "it interprets the IR and emits no code"
        raise UnsupportedError(f"the target {backend.target.name} has no listing format {format!r}; {available}")
    lowering = Lowering(compilation)
    if kernel_backend is None or format not in formats:
        lowering.until(format)
        return print_module(lowering.module)
    lowering.to_kernels()
    lowering.run(lowering.stages(kernels=True))
    texts = {kernel.sym_name.data: kernel_backend.emit(kernel) for kernel in kernels_of(lowering.module)}
    layers = kernel_origins(lowering.module)
    return kernel_backend.show(format, texts, {name: kernel_header(name, layers.get(name, [])) for name in texts})


def _compile_executable(
    compilation: Compilation, file: CachedFile | None = None, rebuild_module: Callable[[], ModuleOp] | None = None
) -> tuple[Run, CompiledProgram | None]:
    """Compile a program that needs no specialization; return its run function and, if there is one, its artifact."""
    if compilation.options.check_each_pass:
        compilation, rebuild_module = replace(compilation, program=compilation.program.copy_to_memory()), None
    executable = (
        _run_passes(compilation, compilation.backend)
        if isinstance(compilation.backend, ModuleBackend)
        else _load_or_build(compilation, file, rebuild_module)
    )
    artifact = executable if isinstance(executable, CompiledProgram) else None
    with compilation.report.timed("load"):
        run: Run = executable.runner(compilation.options) if isinstance(executable, CompiledProgram) else executable.run
    if not compilation.options.check_each_pass:
        return run, artifact
    # The first call checks every pass on its inputs before it returns a result.
    return check_first_call(
        run, lambda arrays: check(compilation, arrays, lambda segment: _compile_executable(segment)[0])
    ), artifact


def _run_passes(compilation: Compilation, backend: ModuleBackend) -> Executable:
    """Return the evaluator of the module, after the passes or the stage that the options select."""
    if (
        compilation.options.replaced_kernels
        or compilation.options.plan is not None
        or compilation.options.write_plan is not None
    ):
        raise UnsupportedError(f"{backend}: it has no kernels to replace and no tile plans; use the target cpu or opencl")
    lowering = Lowering(compilation)
    if compilation.options.until is not None:
        lowering.until(compilation.options.until)
    elif compilation.options.pipeline is not None:
        lowering.run(custom_stages(parse(compilation.options.pipeline, backend.target)))
    return backend.execute(lowering.module, lowering.weights.copy_to_memory())


def _load_or_build(
    compilation: Compilation, file: CachedFile | None, rebuild_module: Callable[[], ModuleOp] | None
) -> CompiledProgram | Executable:
    """Return the program, from the cache or compiled now."""
    backend, program = cast("KernelBackend[Any, Any]", compilation.backend), compilation.program
    # Not stored: a program that calls functions of this process, and one that lacks what a failed plug-in adds.
    is_storable = not contains(program.module, ForeignCallOp) and not has_failures()
    is_cached = is_storable and reason_not_cached(backend.target, compilation.options) is None
    if compilation.recorder is not None or not is_cached:
        return build_program(compilation, backend, rebuild_module)

    def build() -> CompiledProgram:
        artifact = build_program(compilation, backend, rebuild_module)
        assert isinstance(artifact, CompiledProgram), f"{backend}: a backend whose target has a version must produce artifacts"
        return artifact

    def read(path: Path) -> CompiledProgram:
        return backend.load_cached(path, compilation.options)

    with compilation.report.timed("key"):
        key = file.key if file is not None else _key(compilation)
    return fetch(key, program.name, program.inputs, read, build, compilation.report, file.path if file is not None else None)


def _key(compilation: Compilation) -> CacheKey:
    # Source locations are not part of the key, except those that messages at run time contain.
    program, text = compilation.program, print_module(compilation.program.module, locations=False)
    labels = (op.label for op in walk_ops(program.module, Collective))
    text = "\n".join([text, *checked_op_locations(program.module), *labels])
    return program_key(text, program.weights, program.remaining_passes, compilation.backend.target, compilation.options)
