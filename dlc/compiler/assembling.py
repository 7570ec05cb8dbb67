"""A program put together: its kernels compiled, each by itself, and the host program that runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from dlc.backends.base import Executable, KernelBackend, Parts
from dlc.backends.cpu.backend import ObjectBackend
from dlc.backends.read_host import is_open, read_host, read_open
from dlc.compiler.compilation import Compilation
from dlc.compiler.kernels import CompiledKernel, all_kernels, compile_kernels, require_numbers, symbol_of
from dlc.compiler.lowering import Lowering, plan
from dlc.compiler.tuning import Tuner, with_variant
from dlc.errors import DeviceError, TooLargeError
from dlc.instrument.provenance import dispatches, header, results_of
from dlc.instrument.work import flops, runs
from dlc.ir import ModuleOp, Operation, forget
from dlc.options import thread_count
from dlc.passes.base import Stage
from dlc.pipelines import KERNEL_STAGES
from dlc.runtime.load import CompiledProgram
from dlc.runtime.program.bounds import check_program
from dlc.runtime.program.host_program import HostProgram
from dlc.runtime.program.open_program import OpenProgram


def assembled(
    c: Compilation, backend: KernelBackend[Any, Any], again: Callable[[], ModuleOp] | None = None
) -> CompiledProgram | Executable:
    """The program, compiled now; `again` makes its module anew where nobody needs it any more.

    Kernels that the device turns out not to hold are compiled again for a smaller one. Raises DeviceError, naming them, if
    that is still too large, and UnsupportedError for numbers that the target does not compute with.
    """
    return _Assembly(c, backend, again).run()


class _Assembly:
    def __init__(self, c: Compilation, backend: KernelBackend[Any, Any], again: Callable[[], ModuleOp] | None = None) -> None:
        self.c, self.backend = c, backend
        self.lowering = Lowering(c, again=again)
        self.lowering.to_kernels()
        module = self.lowering.module
        require_numbers(c, module)
        self.layers, self.results, self.flops = dispatches(module), results_of(module), flops(module)
        # As they are before their stages; those of a dump go through them with the module, so that the files show all of it.
        self.kernels = all_kernels(module if self.lowering.dump is None else module.clone())
        # The host program, once it is planned.
        self.program: HostProgram | OpenProgram | None = None

    def run(self) -> CompiledProgram | Executable:
        lowering, backend = self.lowering, self.backend
        compiled = self.compiled()
        if self.c.recorder is not None:
            self.c.recorder.modules["end"] = lowering.module
        assert self.program is not None
        made, compiled = self.put_together(self.program, compiled)
        if self.c.recorder is not None:
            self.c.recorder.made = made
        counts = self.program.runs
        for kernel in compiled:
            kernel.note(self.c.report, backend, counts[kernel.name])
            if self.c.recorder is not None and kernel.record is not None:
                self.c.recorder.kernels[kernel.name] = kernel.record
            if lowering.dump is not None:
                headers = {kernel.name: header(kernel.name, self.layers.get(kernel.name, []))}
                text = backend.show(backend.forms[0], {kernel.name: kernel.text}, headers)
                lowering.dump.kernel(kernel.name, backend.suffix, text)
        if self.c.recorder is None:
            forget(lowering.module)
        return made

    def compiled(self) -> list[CompiledKernel]:
        """All kernels, for the target itself; the host program is planned meanwhile, as it runs them whatever they become."""
        lowering, stages = self.lowering, self.lowering.stages(kernels=True)
        if lowering.dump is not None:
            lowering.run(stages)
            return self.code_of(all_kernels(lowering.module), self.backend, (), meanwhile=self.plan_host)
        return self.code_of(self.kernels, self.backend, stages, self.variants(stages), self.plan_host)

    def code_of(
        self,
        kernels: Sequence[Operation],
        backend: KernelBackend[Any, Any],
        stages: Sequence[Stage],
        variants: dict[str, int] | None = None,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> list[CompiledKernel]:
        self.c.tell("kernels")
        chosen = {name: with_variant(stages, variant) for name, variant in (variants or {}).items()}
        context = self.lowering.context
        return compile_kernels(self.c, backend, kernels, lambda name: chosen.get(name, stages), context, meanwhile)

    def variants(self, stages: Sequence[Stage]) -> dict[str, int]:
        """The plans that measurement finds better, by kernel."""
        c, backend = self.c, self.backend
        # Kernels are measured each by itself, as objects.
        if not c.options.tune or not stages or not isinstance(backend, ObjectBackend):
            return {}
        threads, counts = thread_count(c.options.num_threads), runs(self.lowering.module)
        tuner = Tuner(stages, backend.here(), self.lowering.context, threads, counts)
        with c.report.timed("tuning"):
            c.report.tuned += tuner.tune(self.lowering.module, c.options.tune, c.progress)
        return {tuned.name: tuned.variant for tuned in c.report.tuned}

    def put_together(
        self, program: HostProgram | OpenProgram, compiled: list[CompiledKernel]
    ) -> tuple[CompiledProgram | Executable, list[CompiledKernel]]:
        """The program of kernels, and those that it is made of in the end.

        What a device does not hold is compiled again for less. How large a kernel may be can depend on those that are built
        beside it, so that others may be too large then.
        """
        c, backend = self.c, self.backend
        smaller: KernelBackend[Any, Any] | None = None
        reduced = set[str]()
        while True:
            c.tell(backend.compiler, f"{len(compiled)} kernels")
            try:
                with c.report.timed(backend.compiler):
                    return backend.assemble(self.parts(program, compiled)), compiled
            except TooLargeError as error:
                smaller = smaller or self.backend.smaller()
                if smaller is None or reduced.issuperset(error.kernels):
                    raise self.cannot_hold(error) from error
                backend = smaller
                again = [k for k in self.kernels if symbol_of(k) in error.kernels]
                reduced.update(map(symbol_of, again))
                stages = [s for s in plan(c.on(backend)) if s.name in KERNEL_STAGES]
                compiled = [k for k in compiled if k.name not in error.kernels] + self.code_of(again, backend, stages)

    def parts(self, program: HostProgram | OpenProgram, compiled: Sequence[CompiledKernel]) -> Parts[Any]:
        if isinstance(program, HostProgram):
            check_program(program, {k.name for k in compiled})
        origins = {k.name: tuple(dict.fromkeys(chain(*self.layers.get(k.name, ())))) for k in compiled}
        # A kernel that came lowered says no more how much it computes.
        work = {k.name: self.flops.get(k.name, 0) for k in compiled}
        codes = [k.code for k in compiled]
        results = {k.name: self.results.get(k.name, ()) for k in compiled}
        return Parts(self.c.program.name, program, codes, self.lowering.weights, origins, results, work, self.c.options)

    def plan_host(self) -> None:
        self.lowering.host()
        module = self.lowering.module
        self.program = read_open(module) if is_open(module) else read_host(module)

    def cannot_hold(self, error: TooLargeError) -> DeviceError:
        lines = [
            f"kernel {name} ({', '.join(self.layers.get(name, [()])[0])}): {reason}" for name, reason in error.kernels.items()
        ]
        return DeviceError(f"{self.c.program.name}: {self.backend} cannot hold\n  " + "\n  ".join(lines))
