"""Lower a program through the stages of its pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from dlc.compiler.compilation import Compilation
from dlc.compiler.kernel_plans import with_plans
from dlc.compiler.segment_linker import link_segments
from dlc.compiler.segments import Segment, split
from dlc.dialects.dl.interfaces import DataDependent
from dlc.dialects.registry import make_context
from dlc.errors import UnsupportedError
from dlc.instrument.check import Checker
from dlc.instrument.dump import DumpFolder
from dlc.instrument.manager import PassManager
from dlc.instrument.verify import illegal_ops
from dlc.ir import ModuleOp, contains
from dlc.options import Options
from dlc.passes.base import Stage
from dlc.passes.dl.programs.loop_invariant_code_motion import LoopInvariantCodeMotionPass
from dlc.passes.dl.programs.selection_counts import decompose_selections
from dlc.passes.fusion.dedupe_kernels import DedupeKernelsPass
from dlc.passes.fusion.reuse_donated import ReuseDonatedPass
from dlc.passes.fusion.update_in_place import UpdateInPlacePass
from dlc.passes.host.bufferize_host import BufferizeHostPass
from dlc.passes.host.evaluate_weight_expressions import evaluate_weight_expressions
from dlc.pipelines import HOST, KERNEL_STAGES, custom_stages, host_stage, parse, remaining_stages


def plan(compilation: Compilation) -> tuple[Stage, ...]:
    """Return the stages that the options select, the remaining ones of a dumped module, or all stages of the target.

    Raises UnsupportedError for a module with ops of a later stage that does not name its remaining passes.
    """
    program, target, options = compilation.program, compilation.backend.target, compilation.options
    if options.pipeline is not None:
        stages = custom_stages(parse(options.pipeline, target))
        return stages if any(s.name == HOST.name for s in stages) else (*stages, HOST)
    stages_of_target = (*compilation.backend.stages(options), host_stage(target, options.inter_op))
    if options.plan is not None:
        stages_of_target = with_plans(stages_of_target, options.plan)
    if program.remaining_passes is not None:
        return remaining_stages(stages_of_target, program.remaining_passes, target)
    if illegal := sorted(set(illegal_ops(program.module, stages_of_target[0]))):
        raise UnsupportedError(
            f"{program.name}: {', '.join(illegal)} are not legal before stage {stages_of_target[0].name}: a partly lowered "
            "module must name its remaining passes, as --dump-ir writes them; or pass them with --pipeline"
        )
    return stages_of_target


class Lowering:
    """The lowering of a program; `module` and `weights` are its current state.

    It works on a copy of the program's module, or on the module itself if `rebuild_module` can import it again.
    """

    def __init__(
        self, compilation: Compilation, checker: Checker | None = None, rebuild_module: Callable[[], ModuleOp] | None = None
    ) -> None:
        self._compilation = compilation
        self.module = compilation.program.module.clone() if rebuild_module is None else compilation.program.module
        # To reproduce a failing pass, the current module is recreated: create the initial module, then apply the steps so far.
        self._create_module: Callable[[], ModuleOp] = (
            compilation.program.module.clone if rebuild_module is None else rebuild_module
        )
        self._applied_steps: list[Callable[[ModuleOp], object]] = []
        self.weights = compilation.program.weights
        self.context = make_context()
        self.plan = plan(compilation)
        self.dump = DumpFolder(compilation.options.dump_ir, self.weights) if compilation.options.dump_ir is not None else None
        self._report = compilation.report
        self._checker = checker
        self._manager = self._make_manager("", "import")

    def _make_manager(self, stage: str, producer: str) -> PassManager:
        """Return a pass manager for the module; the recorder labels the module's current state with `stage` and `producer`."""
        compilation = self._compilation
        manager = PassManager(
            self.context, self.plan, check=compilation.options.verify, dump=self.dump, progress=compilation.progress
        )
        if self._checker is not None:
            manager.observer = self._checker.after_pass
        elif compilation.recorder is not None:
            manager.observer = compilation.recorder.program_observer(self.module, (stage, producer), manager)
        return manager

    def stages(self, *, kernels: bool) -> tuple[Stage, ...]:
        """Return the stages of kernels, which are independent of each other, or the module-wide stages before them."""
        return tuple(s for s in self.plan if s.name != HOST.name and (s.name in KERNEL_STAGES) == kernels)

    def run(self, stages: tuple[Stage, ...]) -> None:
        """Run stages on the whole module."""
        num_records = len(self._manager.records)
        self._manager.run(self.module, stages, self._rebuild)
        self._applied_steps += [partial(p.apply, self.context) for stage in stages for p in stage.passes]
        for record in self._manager.records[num_records:]:
            self._report.passes.append(record)
            self._report.add(record.stage, record.seconds)

    def _rebuild(self) -> ModuleOp:
        """Return a copy of the current module, recreated from the initial module."""
        module = self._create_module()
        for step in self._applied_steps:
            step(module)
        return module

    def to_kernels(self, until: str | None = None) -> None:
        """Run the module-wide stages, or those up to `until`; with data-dependent sizes, on each segment separately."""
        stages = self.stages(kernels=False)
        names = [s.name for s in stages]
        end = len(names) if until not in names else len(names) - names[::-1].index(until)
        if not contains(self.module, DataDependent):
            self.run(stages[:end])
            return
        segments = split(replace(self._compilation.program, module=decompose_selections(self.module)))

        def lower_segment(segment: Segment, options: Options) -> ModuleOp:
            segment_lowering = Lowering(self._compilation.for_segment(segment.program, options))
            segment_lowering.run(segment_lowering.stages(kernels=False)[:end])
            return segment_lowering.module

        self.module = link_segments(segments, self._compilation.options, lower_segment)
        self._create_module, self._applied_steps = self.module.clone().clone, []
        if end < len(stages):
            return
        # Hoist weight expressions out of loop bodies, order the writes to donated arguments after reads in other segments,
        # update the states of loops of several segments in place, and deduplicate the kernels of all segments.
        passes = LoopInvariantCodeMotionPass(), ReuseDonatedPass(), UpdateInPlacePass(), DedupeKernelsPass()
        final_stage = replace(stages[-1], passes=passes)
        self.plan = (final_stage, *(stage for stage in self.plan if stage not in stages))
        self._manager = self._make_manager(final_stage.name, "segments")
        self.run((final_stage,))

    def host(self) -> None:
        """Plan the host program: evaluate weight expressions, then run the host stage."""
        stages = tuple(s for s in self.plan if s.name == HOST.name)
        if not stages:
            return
        if any(isinstance(p, BufferizeHostPass) for s in stages for p in s.passes):
            # Weight expressions are ops on tensors: evaluate them before bufferization.
            original = self.weights
            with self._report.timed("weights"):
                self.weights = evaluate_weight_expressions(self.module, original)
            self._applied_steps.append(lambda module: evaluate_weight_expressions(module, original))
            if self._checker is not None:
                self._checker.after_weights(stages[0], self.module, self.weights)
        if self.dump is not None:
            self.dump.save_weights(self.weights)
        self.run(stages)

    def until(self, stage: str) -> None:
        """Run everything up to the end of a stage.

        Raises UnsupportedError if the plan has no such stage.
        """
        names = [s.name for s in self.plan]
        if stage not in names:
            raise UnsupportedError(f"no stage {stage!r} remains; the remaining stages are {', '.join(names) or 'none'}")
        self.to_kernels(stage)
        kernel_stages = self.stages(kernels=True)
        names = [s.name for s in kernel_stages]
        if stage == HOST.name:
            self.run(kernel_stages)
            self.host()
        elif stage in names:
            self.run(kernel_stages[: len(names) - names[::-1].index(stage)])
