"""Build an executable program: compile its kernels and plan its host program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from dlc.backends.base import Executable, KernelBackend, ProgramParts
from dlc.backends.cpu.backend import ObjectBackend
from dlc.backends.read_host import read_host
from dlc.compiler.compilation import Compilation
from dlc.compiler.kernel_plans import check_plans, write_plans
from dlc.compiler.kernels import (
    CompiledKernel,
    all_kernels,
    compile_kernels,
    lower_kernel,
    require_supported_dtypes,
    symbol_of,
)
from dlc.compiler.lowering import Lowering, plan
from dlc.compiler.replaced_kernels import ReplacedKernel, read_replacements
from dlc.compiler.tuning import Tuner, with_variant
from dlc.dialects import host
from dlc.dialects.dl.programs.program import DispatchOp
from dlc.errors import DeviceError, TooLargeError
from dlc.instrument.operation_counts import count_kernel_flops, count_kernel_runs
from dlc.instrument.provenance import kernel_header, kernel_origins, kernel_result_dtypes
from dlc.ir import IntegerAttr, ModuleOp, Operation, i64, release_op, walk_ops
from dlc.options import thread_count
from dlc.passes.base import Stage
from dlc.pipelines import KERNEL_STAGES
from dlc.runtime.compiled_program import CompiledProgram
from dlc.runtime.program.host_program import HostProgram


def build_program(
    compilation: Compilation, backend: KernelBackend[Any, Any], rebuild_module: Callable[[], ModuleOp] | None = None
) -> CompiledProgram | Executable:
    """Compile the program; `rebuild_module` imports its module again if a failed pass has to be reproduced.

    Kernels that exceed the resources of the device are compiled again for a smaller variant of the target. Raises DeviceError,
    naming the kernels, if these are too large as well, and UnsupportedError for dtypes that the target does not support.
    """
    return _ProgramBuilder(compilation, backend, rebuild_module).run()


class _ProgramBuilder:
    def __init__(
        self, compilation: Compilation, backend: KernelBackend[Any, Any], rebuild_module: Callable[[], ModuleOp] | None = None
    ) -> None:
        self.compilation, self.backend = compilation, backend
        self.lowering = Lowering(compilation, rebuild_module=rebuild_module)
        self.lowering.to_kernels()
        module = self.lowering.module
        require_supported_dtypes(compilation, module)
        self.layers, self.results, self.flops = kernel_origins(module), kernel_result_dtypes(module), count_kernel_flops(module)
        self.annotate_flops()
        # The kernels before lowering. With dump_ir they are lowered in the module itself, so that dumps show all of it.
        self.kernels = all_kernels(module if self.lowering.dump is None else module.clone())
        self.replaced = self._read_edits()
        # `plan_host` sets it.
        self.program: HostProgram | None = None

    def _read_edits(self) -> dict[str, ReplacedKernel]:
        """Write or check the file of tile plans; return the replacement kernels."""
        options, context, stages = self.compilation.options, self.lowering.context, self.lowering.stages(kernels=True)
        kernels = {symbol_of(kernel): kernel for kernel in self.kernels}
        if options.plan is not None:
            check_plans(options.plan, kernels, stages, context)
        if options.write_plan is not None:
            write_plans(options.write_plan, kernels, stages, context)
        return read_replacements(options.replaced_kernels, kernels, stages, context) if options.replaced_kernels else {}

    def annotate_flops(self) -> None:
        """Record the FLOPs of each dispatch for the host stage; kernels may be lowered by then."""
        for op in walk_ops(self.lowering.module, DispatchOp):
            flops = self.flops.get(op.symbol, 0)
            if isinstance(flops, int) and flops:
                op.attributes[host.FLOPS] = IntegerAttr(flops, i64)

    def run(self) -> CompiledProgram | Executable:
        lowering, backend = self.lowering, self.backend
        compiled = self.compiled()
        if self.compilation.recorder is not None:
            self.compilation.recorder.modules["end"] = lowering.module
        assert self.program is not None
        program, compiled = self.assemble_program(self.program, compiled)
        if self.compilation.recorder is not None:
            self.compilation.recorder.result = program
        counts = self.program.runs
        for kernel in compiled:
            kernel.note(self.compilation.report, backend, counts[kernel.name])
            if self.compilation.recorder is not None and kernel.record is not None:
                self.compilation.recorder.kernels[kernel.name] = kernel.record
            if lowering.dump is not None:
                headers = {kernel.name: kernel_header(kernel.name, self.layers.get(kernel.name, []))}
                text = backend.show(backend.listing_formats[0], {kernel.name: kernel.text}, headers)
                lowering.dump.kernel(kernel.name, backend.suffix, text)
        if self.compilation.recorder is None:
            release_op(lowering.module)
        return program

    def compiled(self) -> list[CompiledKernel]:
        """Compile all kernels for the full target; plan the host program meanwhile, which does not depend on kernel code."""
        lowering, stages = self.lowering, self.lowering.stages(kernels=True)
        if lowering.dump is not None:
            lowering.run(stages)
            lowered = [
                kernel if (r := self.replaced.get(symbol_of(kernel))) is None
                else lower_kernel(r.kernel, r.remaining_stages, lowering.context, check=False)[0]
                for kernel in all_kernels(lowering.module)
            ]  # fmt: skip
            return self.code_of(lowered, self.backend, (), while_waiting=self.plan_host)
        return self.code_of(self.kernels, self.backend, stages, self.variants(stages), self.plan_host)

    def code_of(
        self,
        kernels: Sequence[Operation],
        backend: KernelBackend[Any, Any],
        stages: Sequence[Stage],
        variants: dict[str, int] | None = None,
        while_waiting: Callable[[], None] = lambda: None,
    ) -> list[CompiledKernel]:
        self.compilation.report_progress("kernels")
        stages_by_kernel = {name: with_variant(stages, variant) for name, variant in (variants or {}).items()}
        if stages:
            kernels = [r.kernel if (r := self.replaced.get(symbol_of(kernel))) is not None else kernel for kernel in kernels]
            stages_by_kernel |= {name: r.remaining_stages for name, r in self.replaced.items()}
        context = self.lowering.context
        return compile_kernels(
            self.compilation, backend, kernels, lambda name: stages_by_kernel.get(name, stages), context, while_waiting
        )

    def variants(self, stages: Sequence[Stage]) -> dict[str, int]:
        """Return the tile-plan variants that measurements choose, by kernel."""
        compilation, backend = self.compilation, self.backend
        # Only kernels that are compiled to objects can be measured one at a time.
        if not compilation.options.tune or not stages or not isinstance(backend, ObjectBackend):
            return {}
        threads, counts = thread_count(compilation.options.num_threads), count_kernel_runs(self.lowering.module)
        tuner = Tuner(stages, backend.for_local_device(), self.lowering.context, threads, counts)
        with compilation.report.timed("tuning"):
            compilation.report.tuned += tuner.tune(self.lowering.module, compilation.options.tune, compilation.progress)
        return {tuned.name: tuned.variant for tuned in compilation.report.tuned}

    def assemble_program(
        self, program: HostProgram, compiled: list[CompiledKernel]
    ) -> tuple[CompiledProgram | Executable, list[CompiledKernel]]:
        """Assemble the program; return it with its final kernels.

        Kernels that exceed the resources of the device are compiled again for a smaller target. The limit of a kernel can
        depend on the kernels that are built with it, so that others may exceed it afterwards.
        """
        compilation, backend = self.compilation, self.backend
        reduced_backend: KernelBackend[Any, Any] | None = None
        reduced_kernels = set[str]()
        while True:
            compilation.report_progress(backend.compiler, f"{len(compiled)} kernels")
            try:
                with compilation.report.timed(backend.compiler):
                    return backend.assemble(self.parts(program, compiled)), compiled
            except TooLargeError as error:
                reduced_backend = reduced_backend or self.backend.reduced_backend()
                if reduced_backend is None or reduced_kernels.issuperset(error.kernels):
                    raise self.cannot_hold(error) from error
                backend = reduced_backend
                too_large = [k for k in self.kernels if symbol_of(k) in error.kernels]
                reduced_kernels.update(map(symbol_of, too_large))
                stages = [s for s in plan(compilation.for_backend(backend)) if s.name in KERNEL_STAGES]
                compiled = [k for k in compiled if k.name not in error.kernels] + self.code_of(too_large, backend, stages)

    def parts(self, program: HostProgram, compiled: Sequence[CompiledKernel]) -> ProgramParts[Any]:
        origins = {k.name: tuple(dict.fromkeys(chain(*self.layers.get(k.name, ())))) for k in compiled}
        # The FLOPs of kernels in a partly lowered module are unknown.
        work = {k.name: self.flops.get(k.name, 0) for k in compiled}
        codes, shared = [k.code for k in compiled], self.compilation.shared_weights
        results = {k.name: self.results.get(k.name, ()) for k in compiled}
        return ProgramParts(
            self.compilation.program.name,
            program,
            codes,
            {name: shared[shared.add(array, name)] for name, array in self.lowering.weights.items()},
            origins,
            results,
            work,
            self.compilation.options,
        )

    def plan_host(self) -> None:
        self.lowering.host()
        self.program = read_host(self.lowering.module)

    def cannot_hold(self, error: TooLargeError) -> DeviceError:
        lines = [
            f"kernel {name} ({', '.join(self.layers.get(name, [()])[0])}): {reason}" for name, reason in error.kernels.items()
        ]
        return DeviceError(f"{self.compilation.program.name}: {self.backend} cannot hold\n  " + "\n  ".join(lines))
