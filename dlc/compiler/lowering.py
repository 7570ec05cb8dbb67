"""One program through the stages of its pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from dlc.compiler.compilation import Compilation
from dlc.compiler.joining import joined
from dlc.compiler.segments import Part, split
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
from dlc.passes.dl.programs.count_selections import counted
from dlc.passes.dl.programs.hoist_invariants import HoistInvariantsPass
from dlc.passes.fusion.dedupe_kernels import DedupeKernelsPass
from dlc.passes.host.bufferize_host import BufferizeHostPass
from dlc.passes.host.evaluate_weight_expressions import evaluate_weight_expressions
from dlc.pipelines import HOST, KERNEL_STAGES, chosen, host_stage, parse, rest


def plan(c: Compilation) -> tuple[Stage, ...]:
    """The stages that a program goes through: what the options choose, what a dump still had to come, or the target's.

    Raises UnsupportedError for a module that is past their start and does not say what is still to come.
    """
    program, target, options = c.program, c.backend.target, c.options
    if options.pipeline is not None:
        stages = chosen(parse(options.pipeline, target))
        return stages if any(s.name == HOST.name for s in stages) else (*stages, HOST)
    full = (*c.backend.stages(options), host_stage(target))
    if program.remaining is not None:
        return rest(full, program.remaining, target)
    if strange := sorted(set(illegal_ops(program.module, full[0]))):
        raise UnsupportedError(
            f"{program.name}: {', '.join(strange)} do not exist before stage {full[0].name}: a module that is further down "
            "names the passes that are left, as --dump-ir writes it; or give them with --pipeline"
        )
    return full


class Lowering:
    """A copy of a program on its way down; `module` and `weights` are what it has become so far.

    It is the program's module itself where something else makes that `again`.
    """

    def __init__(self, c: Compilation, checker: Checker | None = None, again: Callable[[], ModuleOp] | None = None) -> None:
        self._c = c
        self.module = c.program.module.clone() if again is None else c.program.module
        # What it was copied from, or put together, and what was done to it since: so it is made again if a pass fails.
        self._start: Callable[[], ModuleOp] = c.program.module.clone if again is None else again
        self._done: list[Callable[[ModuleOp], object]] = []
        self.weights = c.program.weights
        self.context = make_context()
        self.plan = plan(c)
        self.dump = DumpFolder(c.options.dump_ir, self.weights) if c.options.dump_ir is not None else None
        self._report = c.report
        self._checker = checker
        self._manager = self._managed("", "import")

    def _managed(self, stage: str, made_by: str) -> PassManager:
        """What runs the passes of the plan on the module, which comes from the import, or from parts."""
        c = self._c
        manager = PassManager(self.context, self.plan, check=c.options.verify, dump=self.dump, progress=c.progress)
        if self._checker is not None:
            manager.observer = self._checker.after_pass
        elif c.recorder is not None:
            manager.observer = c.recorder.of_program(self.module, (stage, made_by), manager)
        return manager

    def stages(self, *, kernels: bool) -> tuple[Stage, ...]:
        """The stages that treat each kernel by itself, or those before them, which need the whole module."""
        return tuple(s for s in self.plan if s.name != HOST.name and (s.name in KERNEL_STAGES) == kernels)

    def run(self, stages: tuple[Stage, ...]) -> None:
        """Runs stages on the whole module."""
        before = len(self._manager.records)
        self._manager.run(self.module, stages, self._again)
        self._done += [partial(p.apply, self.context) for stage in stages for p in stage.passes]
        for record in self._manager.records[before:]:
            self._report.passes.append(record)
            self._report.add(record.stage, record.seconds)

    def _again(self) -> ModuleOp:
        """The module as it is, made again from the start."""
        module = self._start()
        for step in self._done:
            step(module)
        return module

    def to_kernels(self) -> None:
        """Runs the stages before those of kernels; where data decides sizes, on the parts between, each by itself."""
        stages = self.stages(kernels=False)
        if not contains(self.module, DataDependent):
            self.run(stages)
            return
        segments = split(replace(self._c.program, module=counted(self.module)))

        def lowered(part: Part, options: Options) -> ModuleOp:
            own = Lowering(self._c.of_part(part.program, options))
            own.run(own.stages(kernels=False))
            return own.module

        self.module = joined(segments, self._c.options, lowered)
        self._start, self._done = self.module.clone().clone, []
        # Weights that parts in loops read are evaluated ahead; parts may have equal kernels.
        last = replace(stages[-1], passes=(HoistInvariantsPass(), DedupeKernelsPass()))
        self.plan = (last, *(stage for stage in self.plan if stage not in stages))
        self._manager = self._managed(last.name, "parts")
        self.run((last,))

    def host(self) -> None:
        """Plans the host program: evaluates weight expressions, then runs the host's stage."""
        stages = tuple(s for s in self.plan if s.name == HOST.name)
        if not stages:
            return
        if any(isinstance(p, BufferizeHostPass) for s in stages for p in s.passes):
            # Expressions are of tensors; on buffers there are none left.
            before = self.weights
            with self._report.timed("weights"):
                self.weights = evaluate_weight_expressions(self.module, before)
            self._done.append(lambda module: evaluate_weight_expressions(module, before))
            if self._checker is not None:
                self._checker.after_weights(stages[0], self.module, self.weights)
        if self.dump is not None:
            self.dump.save_weights(self.weights)
        self.run(stages)

    def until(self, stage: str) -> None:
        """Runs everything up to the end of a stage.

        Raises UnsupportedError when the plan has no such stage.
        """
        names = [s.name for s in self.plan]
        if stage not in names:
            raise UnsupportedError(f"no stage {stage!r} lies ahead; the stages to come are {', '.join(names) or 'none'}")
        last = len(names) - names[::-1].index(stage)
        if stage == HOST.name:
            self.run(self.plan[: names.index(HOST.name)])
            self.host()
        else:
            self.run(self.plan[:last])
