"""A compilation that was watched, and what a page shows of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, cast

from numpy.typing import NDArray

from dlc.backends.base import Backend, KernelBackend
from dlc.backends.read_host import is_open, read_host, read_open
from dlc.backends.registry import backend_of
from dlc.caching.keys import DLC
from dlc.compiler import Program, recorded
from dlc.compiler.compilation import Compilation
from dlc.dims import Range
from dlc.errors import UnsupportedError
from dlc.explore.advice import Settings, advice, products_of
from dlc.explore.data import Exploration, Kernel, Step, Unit
from dlc.explore.graph import Ends, graph_of, stem
from dlc.explore.memory import memory_of
from dlc.explore.running import Run, run_of
from dlc.explore.sources import python_listing
from dlc.instrument.provenance import dispatches, origins
from dlc.instrument.recording import Listing, Record, Recorder
from dlc.instrument.report import PassRecord, Progress, Report
from dlc.ir import ModuleOp, ModulePass
from dlc.options import Options, thread_count
from dlc.passes.base import kernels_of
from dlc.passes.fusion.endings import RETURNED
from dlc.passes.fusion.form_kernels import Formed, FormKernelsPass
from dlc.passes.tiling.explain_plan import explain_plan
from dlc.passes.tiling.form_nests import nests_of
from dlc.passes.tiling.tile_kernels import TileKernelsPass, planned_sizes
from dlc.runtime.cpu.artifact import Artifact
from dlc.runtime.models.by_sizes import Served
from dlc.runtime.program.open_program import OpenProgram

# A program is run for this part of the time that compiling it took, or once.
_MEASURING = 0.02


def backend_compiling(program: Program, target: str | Backend, options: Options) -> KernelBackend[Any, Any]:
    """The backend, which makes kernels. Raises UnsupportedError for one that does not."""
    backend = backend_of(target, options.device).compiling()
    if not isinstance(backend, KernelBackend):
        raise UnsupportedError(f"{program.name}: the target {backend} runs modules as they are; explore it for cpu or opencl")
    return cast("KernelBackend[Any, Any]", backend)


def _plans(coming: ModulePass, module: ModuleOp) -> list[str]:
    """Before kernels are cut into tiles: how, and why."""
    if not isinstance(coming, TileKernelsPass):
        return []
    kernel, lines = next(kernels_of(module)), list[str]()
    nests = nests_of(kernel)
    sizes = planned_sizes(kernel, nests)
    for k, nest in enumerate(nests):
        known = nest.at(sizes)
        plan = coming.plan(known)
        lines += [f"nest {k}: {plan}", *(f"  {line}" for line in explain_plan(known, plan, coming.target))]
    return lines


@dataclass(frozen=True)
class Seen:
    """A compilation that was watched; `served` is what came of it, None if one compilation serves no sizes."""

    program: Program
    backend: KernelBackend[Any, Any]
    options: Options
    recorder: Recorder
    report: Report
    served: Served | None

    @staticmethod
    def of(program: Program, backend: KernelBackend[Any, Any], options: Options, progress: Progress | None) -> Seen:
        """Compiles a program. Raises UnsupportedError for one whose kernels are formed, and what compiling raises."""
        recorder, report = Recorder(("fusion",), _plans), Report()
        served = recorded(Compilation(program, backend, options, report, progress, recorder))
        if served is not None and "fusion" not in recorder.modules:
            raise UnsupportedError(
                f"{program.name}: its kernels are formed already; explore a file of the dump before stage fusion ends"
            )
        return Seen(program, backend, options, recorder, report, served)

    def exploration(
        self, inputs: Sequence[NDArray[Any]] | None, sizes: Mapping[str, int], source: Listing | None
    ) -> Exploration:
        """What a page shows of it, for sizes that come with a call; measured on `inputs`, if there are any."""
        recorder, report, end = self.recorder, self.report, self.recorder.modules["end"]
        module, run = recorder.modules["fusion"], self.run(inputs) if inputs is not None else None
        host = read_open(end) if is_open(end) else read_host(end)
        if isinstance(host, OpenProgram):
            planned = {symbol: host.ranges.get(symbol, Range()).representative for symbol in host.decided}
            sizes = {**sizes, **(planned if run is None else run.decided)}
        source = source or python_listing(list(dict.fromkeys(chain(*recorder.program.shots[0].listing.origins))))
        infos, outputs = self.program.inputs, self.program.outputs
        graph = graph_of(module, [i.name for i in infos], [o.name for o in outputs], self.ends())
        flops = Counter[str]()
        for box in graph.boxes:
            flops[box.name] += sum(part.flops for part in box.parts)
        places = {box.name: box for box in graph.boxes if box.kind == "kernel"}
        runs = dispatches(module)
        units = [Unit("program", "program", (*_source_step(source), *_steps(recorder.program)))]
        units += [Unit("part", f"part {k}", tuple(_steps(part.program))) for k, part in enumerate(recorder.parts, 1)]
        kernels: list[Kernel] = []
        for name in sorted(recorder.kernels, key=lambda n: places[n].launch or 0 if n in places else 0):
            record = recorder.kernels[name]
            units.append(Unit("kernel", name, tuple(_steps(record, runs.get(name, [])))))
            origins = tuple(dict.fromkeys(chain(*runs.get(name, []))))
            kernels.append(self.kernel(name, record, origins, flops.get(name, 0), run))
        memory = memory_of(end, host, sizes)
        if run is not None:
            threads = thread_count(self.options.num_threads)
            settings, products = Settings(self.backend.target, self.options, threads), products_of(module)
            advise = partial(advice, memory=memory, measured=run.measured, settings=settings)
            kernels = [replace(k, advice=tuple(advise(k, kernels, products.get(k.name, set())))) for k in kernels]
        return Exploration(
            self.program.name,
            str(self.backend),
            tuple(map(str, infos)),
            tuple(map(str, outputs)),
            DLC,
            tuple(units),
            graph,
            tuple(kernels),
            report.phases,
            report.seconds,
            tuple((r.stage, r.spec, r.seconds) for r in report.passes),
            memory,
            dict(sizes),
            run.measured if run is not None else None,
        )

    def run(self, inputs: Sequence[NDArray[Any]]) -> Run | None:
        """What a few runs of it show."""
        threads, seconds = thread_count(self.options.num_threads), _MEASURING * self.report.seconds
        return run_of(self.recorder.made, inputs, threads, seconds)

    def ends(self) -> Ends:
        """Where each kernel ended and why."""
        recorders = self.recorder.parts or [self.recorder]
        found = defaultdict[tuple[str, tuple[str, ...]], list[tuple[str, str]]](list)
        formed: Formed
        for formed in chain.from_iterable(r.told.get(FormKernelsPass.name, ()) for r in recorders):
            key = stem(formed.kernel), origins(formed.location)
            found[key].append(_end(formed, is_cut=bool(self.recorder.parts)))
        return found

    def kernel(self, name: str, record: Record, origins: tuple[str, ...], flops: int, run: Run | None) -> Kernel:
        made = next(k for k in self.report.kernels if k.name == name)
        artifact = self.recorder.made
        code = next((k for k in artifact.kernels if k.name == name), None) if isinstance(artifact, Artifact) else None
        taken = run.kernels.get(name) if run is not None else None
        return Kernel(
            name,
            origins,
            taken.runs if taken else made.runs,
            tuple(int(t) for t in code.tasks if isinstance(t, int)) if code is not None else (),
            made.object_bytes,
            made.seconds + sum(p.seconds for p in record.passes),
            tuple(record.notes),
            taken.flops if taken else flops,
            taken.bytes if taken else None,
            taken.seconds if taken else None,
            taken.least if taken else None,
        )


def _source_step(source: Listing | None) -> list[Step]:
    return [Step("source", "", 0.0, "", source)] if source is not None else []


def _end(formed: Formed, *, is_cut: bool) -> tuple[str, str]:
    """Before what a kernel ended, and why, in a program that may be cut where it ended."""
    if formed.before is None:
        return "", formed.reason
    op, location = formed.before
    place = next(iter(origins(location)), "")
    reason = formed.reason.replace(RETURNED, f"{RETURNED}, or data decides a size there") if is_cut else formed.reason
    return f"{op} {place}".strip(), reason


def _steps(of: Record, runs: Sequence[tuple[str, ...]] | None = None) -> list[Step]:
    """The steps of a program or a kernel; places in a kernel's become the names that they stand for in each of its `runs`."""
    steps: list[Step] = []
    for shot in of.shots:
        record = of.passes[shot.number - 1] if 0 < shot.number <= len(of.passes) else None
        if record is None or record.stage != shot.stage:
            record = PassRecord(shot.stage, shot.made_by, 0.0, 0, 0)
        change = f"{record.ops_before} → {record.ops_after} ops" if record.ops_after else ""
        listing = shot.listing if runs is None else _named(shot.listing, runs)
        steps.append(Step(shot.stage, shot.made_by, record.seconds, change, listing))
    return steps


def _named(listing: Listing, runs: Sequence[tuple[str, ...]]) -> Listing:
    known: dict[tuple[str, ...], tuple[str, ...]] = {}

    def names(places: tuple[str, ...]) -> tuple[str, ...]:
        numbers = [int(p[1:]) for p in places if p[:1] == "#" and p[1:].isdecimal()]
        return tuple(dict.fromkeys(run[n] for n in numbers for run in runs if n < len(run)))

    for places in dict.fromkeys(listing.origins):
        known[places] = names(places)
    return Listing(listing.text, tuple(known[p] for p in listing.origins), listing.lines)
