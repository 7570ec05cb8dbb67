"""A compilation with recorded IR, and the exploration built from it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, cast

from numpy.typing import NDArray

from dlc.backends.base import Backend, KernelBackend
from dlc.backends.read_host import read_host
from dlc.backends.registry import backend_of
from dlc.caching.keys import dlc_version
from dlc.compiler import Program, compile_recorded
from dlc.compiler.compilation import Compilation
from dlc.errors import UnsupportedError
from dlc.explore.advice import CompileSettings, ContractionDtypes, advice, contraction_dtypes
from dlc.explore.data import Exploration, KernelSummary, PipelineStep, Unit
from dlc.explore.graph import FusionStops, build_graph, unnumbered_name
from dlc.explore.measurements import ProgramRun, measure_program
from dlc.explore.memory import memory_usage
from dlc.explore.source_listings import python_listing
from dlc.instrument.compilation_record import CompilationRecorder, Listing, PassHistory
from dlc.instrument.provenance import kernel_origins, origins
from dlc.instrument.report import PassRecord, Progress, Report
from dlc.ir import ModuleOp, ModulePass
from dlc.options import Options, thread_count
from dlc.passes.base import kernels_of
from dlc.passes.fusion.form_kernels import FormedKernel, FormKernelsPass
from dlc.passes.fusion.fusion_refusals import RETURNED
from dlc.passes.tiling.form_nests import form_loop_nests
from dlc.passes.tiling.tile_kernels import TileKernelsPass, representative_sizes
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.models.model import Model
from dlc.runtime.models.specializations import Specialization
from dlc.shapes.ranges import SizeRange

# Run a program for this share of its compilation time, at least once.
_MEASURING_TIME_SHARE = 0.02


def backend_compiling(program: Program, target: str | Backend, options: Options) -> KernelBackend[Any, Any]:
    """Return the backend, which must generate kernels. Raises UnsupportedError for one that does not."""
    backend = backend_of(target, options.device).for_compilation()
    if not isinstance(backend, KernelBackend):
        raise UnsupportedError(f"{program.name}: the target {backend} does not generate kernels; use the target cpu or opencl")
    return cast("KernelBackend[Any, Any]", backend)


def _plan_notes(next_pass: ModulePass, module: ModuleOp) -> list[str]:
    """Describe the tile plan of each loop nest, recorded just before the kernels are tiled."""
    if not isinstance(next_pass, TileKernelsPass):
        return []
    kernel, lines = next(kernels_of(module)), list[str]()
    nests = form_loop_nests(kernel, next_pass.target)
    sizes = representative_sizes(kernel, nests)
    for k, nest in enumerate(nests):
        static_nest = nest.specialize(sizes)
        plan = next_pass.plan(static_nest)
        lines += [f"nest {k}: {plan}", *(f"  {line}" for line in plan.explain(static_nest, next_pass.target))]
    return lines


@dataclass(frozen=True)
class RecordedCompilation:
    """A recorded compilation; `specialization` is its result, None if no compilation can cover several sizes."""

    program: Program
    backend: KernelBackend[Any, Any]
    options: Options
    recorder: CompilationRecorder
    report: Report
    specialization: Specialization[Model] | None

    @staticmethod
    def of(
        program: Program, backend: KernelBackend[Any, Any], options: Options, progress: Progress | None
    ) -> RecordedCompilation:
        """Compile and record a program. Raises UnsupportedError if its kernels are already formed, and compilation errors."""
        recorder, report = CompilationRecorder(("fusion",), _plan_notes), Report()
        specialization = compile_recorded(Compilation(program, backend, options, report, progress, recorder))
        if specialization is not None and "fusion" not in recorder.modules:
            raise UnsupportedError(
                f"{program.name}: its kernels are already formed; explore a dump from before the end of stage fusion"
            )
        return RecordedCompilation(program, backend, options, recorder, report, specialization)

    def exploration(
        self, inputs: Sequence[NDArray[Any]] | None, sizes: Mapping[str, int], source: Listing | None
    ) -> Exploration:
        """Return the exploration for the given input sizes, measured on `inputs` if there are any."""
        recorder, report, final_module = self.recorder, self.report, self.recorder.modules["end"]
        module, run = recorder.modules["fusion"], self.run(inputs) if inputs is not None else None
        host = read_host(final_module)
        planned_sizes = {symbol: host.ranges.get(symbol, SizeRange()).representative for symbol in host.data_dependent_sizes}
        sizes = {**sizes, **(planned_sizes if run is None else run.data_dependent_sizes)}
        source = source or python_listing(list(dict.fromkeys(chain(*recorder.program.snapshots[0].listing.origins))))
        infos, outputs = self.program.inputs, self.program.outputs
        graph = build_graph(module, [i.name for i in infos], [o.name for o in outputs], self.fusion_stops())
        flops = Counter[str]()
        for box in graph.boxes:
            flops[box.name] += sum(segment.flops for segment in box.groups)
        boxes = {box.name: box for box in graph.boxes if box.kind == "kernel"}
        runs = kernel_origins(module)
        units = [Unit("program", "program", (*_source_step(source), *_steps(recorder.program)))]
        units += [
            Unit("segment", f"segment {k}", tuple(_steps(segment.program))) for k, segment in enumerate(recorder.segments, 1)
        ]
        kernels: list[KernelSummary] = []
        for name in sorted(recorder.kernels, key=lambda n: boxes[n].launch or 0 if n in boxes else 0):
            record = recorder.kernels[name]
            # The lines of a kernel that the user wrote are its own; other kernels have origins in the program only.
            lines = (origin for snapshot in record.snapshots for names in snapshot.listing.origins for origin in names)
            own_source = python_listing([line for line in dict.fromkeys(lines) if line[:1] != "#"])
            units.append(Unit("kernel", name, (*_source_step(own_source), *_steps(record, runs.get(name, [])))))
            origins = tuple(dict.fromkeys(chain(*runs.get(name, []))))
            kernels.append(self.kernel(name, record, origins, flops.get(name, 0), run))
        memory = memory_usage(final_module, host, sizes)
        if run is not None:
            threads = thread_count(self.options.num_threads)
            settings, products = CompileSettings(self.backend.target, self.options, threads), contraction_dtypes(module)
            advise = partial(advice, memory=memory, measurements=run.measurements, settings=settings)
            kernels = [replace(k, advice=tuple(advise(k, kernels, products.get(k.name, ContractionDtypes())))) for k in kernels]
        return Exploration(
            self.program.name,
            str(self.backend),
            tuple(map(str, infos)),
            tuple(map(str, outputs)),
            dlc_version(),
            tuple(units),
            graph,
            tuple(kernels),
            report.phases,
            report.seconds,
            tuple((r.stage, r.spec, r.seconds) for r in report.passes),
            memory,
            dict(sizes),
            run.measurements if run is not None else None,
        )

    def run(self, inputs: Sequence[NDArray[Any]]) -> ProgramRun | None:
        """Run the program a few times and return its measurements."""
        threads, seconds = thread_count(self.options.num_threads), _MEASURING_TIME_SHARE * self.report.seconds
        return measure_program(self.recorder.result, inputs, threads, seconds)

    def fusion_stops(self) -> FusionStops:
        """Return the op at which each kernel ended and the reason."""
        recorders = self.recorder.segments or [self.recorder]
        stops = defaultdict[tuple[str, tuple[str, ...]], list[tuple[str, str]]](list)
        kernel: FormedKernel
        for kernel in chain.from_iterable(r.reports.get(FormKernelsPass.name, ()) for r in recorders):
            key = unnumbered_name(kernel.kernel), origins(kernel.location)
            stops[key].append(_fusion_stop(kernel, is_cut=bool(self.recorder.segments)))
        return stops

    def kernel(
        self, name: str, record: PassHistory, origins: tuple[str, ...], flops: int, run: ProgramRun | None
    ) -> KernelSummary:
        kernel_report = next(k for k in self.report.kernels if k.name == name)
        artifact = self.recorder.result
        code = next((k for k in artifact.kernels if k.name == name), None) if isinstance(artifact, Artifact) else None
        kernel_time = run.kernels.get(name) if run is not None else None
        return KernelSummary(
            name,
            origins,
            kernel_time.runs if kernel_time else kernel_report.runs,
            tuple(int(t) for t in code.tasks if isinstance(t, int)) if code is not None else (),
            kernel_report.object_bytes,
            kernel_report.seconds + sum(p.seconds for p in record.passes),
            tuple(record.notes),
            kernel_time.flops if kernel_time else flops,
            kernel_time.bytes if kernel_time else None,
            kernel_time.seconds if kernel_time else None,
            kernel_time.limit_seconds if kernel_time else None,
        )


def _source_step(source: Listing | None) -> list[PipelineStep]:
    return [PipelineStep("source", "", 0.0, "", source)] if source is not None else []


def _fusion_stop(formed: FormedKernel, *, is_cut: bool) -> tuple[str, str]:
    """Return the op before which a kernel ended and the reason; `is_cut` if the program is cut at data-dependent sizes."""
    if formed.next_op is None:
        return "", formed.reason
    op, location = formed.next_op
    origin = next(iter(origins(location)), "")
    reason = formed.reason.replace(RETURNED, f"{RETURNED}, or a size is data-dependent") if is_cut else formed.reason
    return f"{op} {origin}".strip(), reason


def _steps(history: PassHistory, runs: Sequence[tuple[str, ...]] | None = None) -> list[PipelineStep]:
    """Return the steps of a program or kernel; origin indices in a kernel are resolved to names in each of its `runs`."""
    steps: list[PipelineStep] = []
    for snapshot in history.snapshots:
        record = history.passes[snapshot.pass_number - 1] if 0 < snapshot.pass_number <= len(history.passes) else None
        if record is None or record.stage != snapshot.stage:
            record = PassRecord(snapshot.stage, snapshot.producer, 0.0, 0, 0)
        change = f"{record.ops_before} → {record.ops_after} ops" if record.ops_after else ""
        listing = snapshot.listing if runs is None else _resolve_origins(snapshot.listing, runs)
        steps.append(PipelineStep(snapshot.stage, snapshot.producer, record.seconds, change, listing))
    return steps


def _resolve_origins(listing: Listing, runs: Sequence[tuple[str, ...]]) -> Listing:
    resolved: dict[tuple[str, ...], tuple[str, ...]] = {}

    def names_of(indices: tuple[str, ...]) -> tuple[str, ...]:
        name_indices = [int(p[1:]) for p in indices if p[:1] == "#" and p[1:].isdecimal()]
        own_lines = [p for p in indices if p[:1] != "#"]
        return tuple(dict.fromkeys([*own_lines, *(run[n] for n in name_indices for run in runs if n < len(run))]))

    for indices in dict.fromkeys(listing.origins):
        resolved[indices] = names_of(indices)
    return Listing(listing.text, tuple(resolved[p] for p in listing.origins), listing.lines)
