"""From a program to a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import numpy as np

from dlc.backends.base import Backend, Executable, KernelBackend, ModuleBackend
from dlc.backends.reference import sizes_decided
from dlc.backends.registry import backend_of
from dlc.caching.keys import Key, program_key
from dlc.caching.model_cache import CachedFile, fetch, reason_not_cached
from dlc.compiler.assembling import assembled
from dlc.compiler.checking import check, first_checked
from dlc.compiler.compilation import Compilation
from dlc.compiler.lowering import Lowering
from dlc.compiler.open_sizes import decided_sizes, domain_of, within
from dlc.compiler.program import Program
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.dl.movement.indexed import checked_places
from dlc.dialects.dl.programs.ranges import ranges_of
from dlc.dialects.entry import entry_of, outputs_of
from dlc.dims import is_static
from dlc.errors import ShapeError, UnsupportedError
from dlc.instrument.provenance import dispatches, header
from dlc.instrument.report import Progress, Report
from dlc.ir import ModuleOp, contains, forget_much, print_module
from dlc.machine.garbage import collected_rarely
from dlc.options import Options
from dlc.passes.base import kernels_of
from dlc.passes.transformations.expand_transformations import expanded
from dlc.pipelines import chosen, parse
from dlc.runtime.load import CompiledProgram
from dlc.runtime.models.by_sizes import BySizes, Served, Sizes
from dlc.runtime.models.kept import Kept
from dlc.runtime.models.model import Model, Run
from dlc.runtime.models.recompilations import Recompilations
from dlc.runtime.models.saved_by_sizes import model_of

# The forms of a program that are the code of its kernels, on dlc's own targets.
CODE = ("llvm", "asm", "opencl")


def compile(
    program: Program,
    target: str | Backend = "cpu",
    options: Options | None = None,
    *,
    report: Report | None = None,
    progress: Progress | None = None,
    file: CachedFile | None = None,
    again: Callable[[], ModuleOp] | None = None,
) -> Model:
    """The model that runs `program` on `target`.

    A program with symbolic sizes is compiled once for all of them that it holds for, as far as that can be, else for each set
    of them when it is called; `report` says why.

    What was compiled for a CPU is kept in the cache, and found there; `file` is where the program came from, if it is by the
    file that it is to be found. Where nobody needs the program's module any more, `again` makes it anew: it is lowered itself
    then, not a copy of it.

    A model for a processor that this machine's is not can be saved; a call of it raises DeviceError. Raises UnsupportedError
    for what the target cannot do, DeviceError for a device that is not there, and CompileError for a bug of dlc.
    """
    options = options or Options()
    backend = backend_of(target, options.device).compiling()
    c = Compilation(program, backend, options, report if report is not None else Report(), progress)
    with collected_rarely():
        cut = _to_be_cut(c)
        model = _compiled(cut, file, again if cut is c else None)
    forget_much()
    model.defaults = program.defaults
    model.num_threads = options.num_threads
    return model


def recorded(c: Compilation) -> Served | None:
    """The model of a compilation whose recorder watches it: for all sizes that one serves; None if that is for none.

    Raises what `compile` raises.
    """
    began = perf_counter()
    with collected_rarely():
        served, c.report.each_size = _served(_to_be_cut(c))
    c.report.seconds += perf_counter() - began
    return served


def _to_be_cut(c: Compilation) -> Compilation:
    """The compilation of a program that can be cut where data decides a size, which may be in what a derivative is taken of."""
    if not contains(c.program.module, DataDependent):
        return c
    return replace(c, program=replace(c.program, module=expanded(c.program.module)))


def _compiled(c: Compilation, file: CachedFile | None = None, again: Callable[[], ModuleOp] | None = None) -> Model:
    began = perf_counter()
    served, c.report.each_size = _served(c, file, again)
    c.report.seconds += perf_counter() - began
    if served is not None and served.is_all:
        return served.model
    if served is not None:
        c.report.served = str(served.domain)
    models = _by_sizes(replace(c, program=c.program.in_memory()), served)
    return model_of(models, takes_device_arrays=c.backend.takes_device_arrays)


def _by_sizes(c: Compilation, served: Served | None) -> BySizes:
    """What is compiled for sizes when a call has them: those of the inputs, or that data decides where the others are known."""
    program, given = c.program, sorted(c.program.sizes)
    decided = tuple(decided_sizes(program)) if not given else ()
    symbols = decided or tuple(given)

    # A dump is of what is compiled first: later ones differ in sizes only.
    first = iter([c.options] if served is None else [])

    def make(key: Sizes) -> Model:
        known = program.known(dict(zip(symbols, key, strict=True)))
        return _compiled(c.of(known, next(first, replace(c.options, dump_ir=None))))

    def decide(arrays: Sequence[Any]) -> Sizes:
        sizes = sizes_decided(program.module, list(map(np.asarray, arrays)), program.weights)
        return tuple(sizes.get(symbol, 0) for symbol in symbols)

    def told(key: Sizes) -> dict[str, str]:
        return {symbol: str(size) for symbol, size in zip(symbols, key, strict=True)}

    advice = "sizes that are served without compiling, and why not all are, compile-model says"
    models = Kept(make, recompilations=Recompilations(program.name, advice), tell=told)
    ranges = ranges_of(program.module)
    return BySizes(program.name, program.inputs, program.outputs, symbols, served, models, decide if decided else None, ranges)


def _served(
    c: Compilation, file: CachedFile | None = None, again: Callable[[], ModuleOp] | None = None
) -> tuple[Served | None, str | None]:
    """The model that a program is for all its sizes, or for many of them; and why it is compiled for each set of the others."""
    is_known = not c.program.sizes and not decided_sizes(c.program)
    # What evaluates a module takes what its data decides as it comes.
    if is_known or (not c.program.sizes and isinstance(c.backend, ModuleBackend)):
        return Served(_model(c, file, again)), None
    if not c.program.sizes and not c.backend.takes_sizes:
        decided = ", ".join(decided_sizes(c.program))
        raise UnsupportedError(
            f"{c.program.name}: data decides {decided}, and kernels for {c.backend} have their sizes in them; a backend whose "
            "kernels take sizes says so by `takes_sizes`"
        )
    reason = reason_for_each_size(c)
    domain, reason = domain_of(c.program) if reason is None else (None, reason)
    if domain is None:
        return None, reason
    try:
        if domain.is_whole:
            return Served(_model(c, file)), None
        model = _model(replace(c, program=within(c.program, domain)))
        return Served(model, domain, domain.symbols.isdisjoint(decided_sizes(c.program))), reason
    except (UnsupportedError, ShapeError) as error:
        # What is missing for every size is said again where one is known; a bug of dlc is none of these.
        return None, str(error).partition("\n")[0]


def _model(c: Compilation, file: CachedFile | None = None, again: Callable[[], ModuleOp] | None = None) -> Model:
    infos, device = (c.program.inputs, c.program.outputs), c.backend.takes_device_arrays
    run, artifact = _program(c, file, again)
    return Model(*infos, run, c.program.name, artifact, takes_device_arrays=device)


def reason_for_each_size(c: Compilation) -> str | None:
    """Why a program with symbolic sizes is compiled for each set of them, whatever it is; None if it has to be seen."""
    if not c.program.sizes:
        return None
    # Where buffers are planned, what evaluates a module takes it for any sizes, as it is.
    if not c.backend.takes_sizes and not outputs_of(entry_of(c.program.module)):
        return f"kernels for {c.backend} have their sizes in them"
    if c.options.check_each_pass:
        return "a check of each pass is of known sizes"
    return None


def emit(program: Program, form: str, target: str | Backend = "cpu", options: Options | None = None) -> str:
    """The text of a program at the end of a stage, or of its kernels in a form that the target has: `llvm`, `asm`, `opencl`.

    Raises ShapeError when sizes are unknown.
    """
    if not program.is_static:
        infos = ", ".join(map(str, (*program.inputs, *program.outputs)))
        if all(is_static(info.shape) for info in program.inputs):
            raise UnsupportedError(f"{program.name}: data decides sizes: {infos}; run it with --dump-ir to see its parts")
        raise ShapeError(f"{program.name}: sizes are open: {infos}; give the shapes of its inputs")
    options = options or Options()
    backend = backend_of(target, options.device)
    own = None if isinstance(backend, ModuleBackend) else cast("KernelBackend[Any, Any]", backend)
    forms = own.forms if own is not None else ()
    if form in CODE and form not in forms:
        has = f"its kernels are {' and '.join(forms)}" if forms else "it runs modules as they are"
        raise UnsupportedError(f"the target {backend.target.name} has no form {form!r}; {has}")
    lowering = Lowering(Compilation(program, backend, options))
    if own is None or form not in forms:
        lowering.until(form)
        return print_module(lowering.module)
    lowering.run((*lowering.stages(kernels=False), *lowering.stages(kernels=True)))
    texts = {kernel.sym_name.data: own.emit(kernel) for kernel in kernels_of(lowering.module)}
    layers = dispatches(lowering.module)
    return own.show(form, texts, {name: header(name, layers.get(name, [])) for name in texts})


def _program(
    c: Compilation, file: CachedFile | None = None, again: Callable[[], ModuleOp] | None = None
) -> tuple[Run, CompiledProgram | None]:
    """What runs a program of known sizes, and the artifact that it is if it can be saved."""
    if c.options.check_each_pass:
        c, again = replace(c, program=c.program.in_memory()), None
    made = _executed(c, c.backend) if isinstance(c.backend, ModuleBackend) else _kept(c, file, again)
    artifact = made if isinstance(made, CompiledProgram) else None
    with c.report.timed("load"):
        run: Run = made.runner(c.options.num_threads) if isinstance(made, CompiledProgram) else made.run
    if not c.options.check_each_pass:
        return run, artifact
    # Before its first result every pass is checked, on the same inputs.
    return first_checked(run, lambda arrays: check(c, arrays, lambda part: _program(part)[0])), artifact


def _executed(c: Compilation, backend: ModuleBackend) -> Executable:
    """The module as it is, or as it is after the passes or the stage that the options choose."""
    lowering = Lowering(c)
    if c.options.until is not None:
        lowering.until(c.options.until)
    elif c.options.pipeline is not None:
        lowering.run(chosen(parse(c.options.pipeline, backend.target)))
    return backend.execute(lowering.module, lowering.weights.in_memory())


def _kept(c: Compilation, file: CachedFile | None, again: Callable[[], ModuleOp] | None) -> CompiledProgram | Executable:
    """The program out of the cache, or compiled now."""
    backend, program = cast("KernelBackend[Any, Any]", c.backend), c.program
    if c.recorder is not None or reason_not_cached(backend.target, c.options) is not None:
        return assembled(c, backend, again)

    def make() -> CompiledProgram:
        made = assembled(c, backend, again)
        assert isinstance(made, CompiledProgram), f"{backend}: programs for a target with a version are artifacts"
        return made

    def read(path: Path) -> CompiledProgram:
        return backend.kept(path, c.options)

    with c.report.timed("key"):
        key = file.key if file is not None else _key(c)
    return fetch(key, program.name, program.inputs, read, make, c.report, file.path if file is not None else None)


def _key(c: Compilation) -> Key:
    # Without the places it comes from, but for those that messages name: a function is the same wherever it stands.
    program, text = c.program, print_module(c.program.module, locations=False)
    text = "\n".join([text, *checked_places(program.module)])
    return program_key(text, program.weights, program.remaining, c.backend.target, c.options)
