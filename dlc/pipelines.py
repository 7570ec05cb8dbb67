"""The pipelines, as values: read `stages_of` from top to bottom to know what the compiler does."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from dlc.errors import UnsupportedError
from dlc.ir import ModulePass, parse_pass_specs
from dlc.passes.base import Stage, TargetPass
from dlc.passes.dl.contractions.block_sums import BlockSumsPass
from dlc.passes.dl.contractions.crop_padding import CropPaddingPass
from dlc.passes.dl.contractions.fold_scales import FoldScalesPass
from dlc.passes.dl.contractions.split_reductions import SplitReductionsPass
from dlc.passes.dl.contractions.winograd import WinogradPass
from dlc.passes.dl.contractions.winograd_gradients import WinogradGradientsPass
from dlc.passes.dl.movement.channels_last import ChannelsLastPass
from dlc.passes.dl.movement.check_indices import CheckIndicesPass
from dlc.passes.dl.movement.fold_transposes_into_contractions import FoldTransposesIntoContractionsPass
from dlc.passes.dl.movement.sink_reshapes import SinkReshapesPass
from dlc.passes.dl.narrow_numbers.few_bit_weights import FewBitWeightsPass
from dlc.passes.dl.narrow_numbers.fold_quantization import FoldQuantizationPass
from dlc.passes.dl.narrow_numbers.pack_words import PackWordsPass
from dlc.passes.dl.narrow_numbers.quantize_weights import QuantizeWeightsPass
from dlc.passes.dl.narrow_numbers.quantized_contractions import QuantizedContractionsPass
from dlc.passes.dl.narrow_numbers.round_contractions import RoundContractionsPass
from dlc.passes.dl.narrow_numbers.wide_contractions import WideContractionsPass
from dlc.passes.dl.programs.bind_dims import BindDimsPass
from dlc.passes.dl.programs.hoist_invariants import HoistInvariantsPass
from dlc.passes.dl.programs.unroll_scans import UnrollScansPass
from dlc.passes.dl.simplification.compute_early import ComputeEarlyPass
from dlc.passes.dl.simplification.cse import CsePass
from dlc.passes.dl.simplification.dce import DcePass
from dlc.passes.dl.simplification.decompose_composites import DecomposeCompositesPass
from dlc.passes.dl.simplification.select_ranks import SelectRanksPass
from dlc.passes.dl.simplification.simplify import SimplifyPass
from dlc.passes.fusion.assign_layouts import AssignLayoutsPass
from dlc.passes.fusion.dedupe_kernels import DedupeKernelsPass
from dlc.passes.fusion.find_zeros import FindZerosPass
from dlc.passes.fusion.form_kernels import FormKernelsPass
from dlc.passes.fusion.masks_by_places import MasksByPlacesPass
from dlc.passes.fusion.prepare_weighted_sums import PrepareWeightedSumsPass
from dlc.passes.fusion.reuse_donated import ReuseDonatedPass
from dlc.passes.fusion.share_literals import ShareLiteralsPass
from dlc.passes.fusion.update_in_place import UpdateInPlacePass
from dlc.passes.host.bufferize_host import BufferizeHostPass
from dlc.passes.host.plan_arena import PlanArenaPass
from dlc.passes.linalg.fuse_generics import FuseGenericsPass
from dlc.passes.linalg.lower_kernels_to_linalg import LowerKernelsToLinalgPass
from dlc.passes.loops.cse_kernels import CseKernelsPass
from dlc.passes.loops.expand_math import ExpandMathPass
from dlc.passes.loops.forward_stores import ForwardStoresPass
from dlc.passes.loops.name_values import NameValuesPass
from dlc.passes.loops.prefetch_panels import PrefetchPanelsPass
from dlc.passes.loops.vectorize import VectorizePass
from dlc.passes.tiling.bufferize_kernels import BufferizeKernelsPass
from dlc.passes.tiling.collapse_iterators import CollapseIteratorsPass
from dlc.passes.tiling.tile_kernels import TileKernelsPass
from dlc.passes.transformations.expand_transformations import ExpandTransformationsPass
from dlc.target import REFERENCE, Target, resolve

# Names of dialects and ops that may exist after a stage, outside and inside the kernels.
_HOST = frozenset({"builtin", "func", "dl"})
_SCALARS = frozenset({"arith", "math", "func"})
# What kernels are made of that are loops from the start.
_LOOPS = frozenset({"memref", "scf", "vector"})


def stages_of(
    target: Target, numerics: str = "default", weights: str = "float", group: int = 32, precision: str = "f32"
) -> tuple[Stage, ...]:
    """From a `dl` module of static sizes to vectorised loops, for a CPU or a device with groups of items.

    With `strict` numerics nothing is folded across linear operations, and functions are computed in f64. `weights` of `int8`
    or `int4` are made of large weights of products, with a scale for each `group`. A `precision` of 16 bits is what
    contractions with weights round their operands to.
    """
    strict = numerics == "strict"
    meeting = frozenset({"gpu.barrier", "gpu.multiply_words"}) if target.groups is not None else frozenset[str]()
    prefetch = () if target.machine.prefetch is None else (PrefetchPanelsPass(target),)
    by_tiles = target.machine.winograd is not None and not strict
    winograd = (WinogradPass(target),) if by_tiles else ()
    winograd_gradients = (WinogradGradientsPass(target),) if by_tiles else ()
    # Transposes are gone by then, so that scales stand next to the contractions they belong to.
    scales = () if strict else (FoldScalesPass(),)
    crops = () if strict else (CropPaddingPass(target),)
    quantization = () if strict else (FewBitWeightsPass(target), FoldQuantizationPass())
    rounding = () if precision == "f32" else (RoundContractionsPass(precision),)
    few_bits = () if weights == "float" else (QuantizeWeightsPass(target, weights, group, exact_rows=strict),)
    return (
        Stage(
            "dl",
            (
                ExpandTransformationsPass(),
                UnrollScansPass(),
                SimplifyPass(),
                # While an order is one op, and places that are read are known.
                SelectRanksPass(),
                # What an argmax finds is seen to be inside as long as it is one.
                CheckIndicesPass(),
                # While what is quantised says so, as one op.
                QuantizedContractionsPass(target),
                *quantization,
                *few_bits,
                DecomposeCompositesPass(target),
                SimplifyPass(),
                HoistInvariantsPass(),
                ChannelsLastPass(),
                *winograd_gradients,
                # How a sum lies in memory is known by then.
                BlockSumsPass(),
                *scales,
                *rounding,
                # Winograd's algorithm is for f32.
                WideContractionsPass(target),
                *crops,
                *winograd,
                # Winograd's algorithm is for numbers, of i16 too.
                PackWordsPass(target),
                FoldTransposesIntoContractionsPass(),
                # Contractions are those that kernels compute by then, and what follows the sum of their parts joins it.
                SplitReductionsPass(target),
                SinkReshapesPass(),
                SimplifyPass(),
                CsePass(),
                DcePass(),
                ComputeEarlyPass(),
            ),
            _HOST,
            frozenset(),
        ),
        # Layouts before deduplication: two kernels that are equal so far may be given different panels. What was made of
        # weights inside of loops goes out of them last.
        Stage(
            "fusion",
            (
                FormKernelsPass(target, exact=strict),
                MasksByPlacesPass(),
                PrepareWeightedSumsPass(target, exact=strict),
                AssignLayoutsPass(target),
                HoistInvariantsPass(),
                ReuseDonatedPass(),
                UpdateInPlacePass(),
                FindZerosPass(),
                ShareLiteralsPass(),
                DedupeKernelsPass(),
            ),
            _HOST,
            frozenset({"dl"}),
        ),
        Stage("linalg", (LowerKernelsToLinalgPass(), FuseGenericsPass()), _HOST, _SCALARS | _LOOPS | {"linalg", "tensor"}),
        Stage(
            "tiling",
            (BufferizeKernelsPass(), CollapseIteratorsPass(target), TileKernelsPass(target, exact=strict)),
            _HOST,
            _SCALARS | _LOOPS | {"linalg"} | meeting,
        ),
        Stage(
            "loops",
            (
                VectorizePass(),
                ForwardStoresPass(),
                ExpandMathPass(precise=strict, fused=target.has_fma),
                *prefetch,
                CseKernelsPass(),
                NameValuesPass(),
            ),
            _HOST,
            _SCALARS | _LOOPS | meeting,
        ),
    )


# The stages that treat each kernel by itself.
KERNEL_STAGES = ("linalg", "tiling", "loops")


def host_stage(target: Target) -> Stage:
    """The host program, once its weight expressions are evaluated; what the kernels are by then does not matter to it."""
    passes = BufferizeHostPass(), PlanArenaPass(target.alignment)
    return Stage("host", passes, frozenset({"builtin", "func", "host", "memref"}))


HOST = host_stage(REFERENCE)


# Passes that no pipeline runs by itself.
_BY_NAME_ONLY = (Stage("dl", (BindDimsPass(),)),)

# Every pass by its name, with its stage.
PASSES: dict[str, tuple[str, type[ModulePass]]] = {
    p.name: (stage.name, type(p))
    for stage in (*_BY_NAME_ONLY, *stages_of(REFERENCE, weights="int8", precision="bf16"), HOST)
    for p in stage.passes
}


def parse(spec: str, own: Target | None = None) -> tuple[ModulePass, ...]:
    """The passes that `"a,b{k=1}"` names; targets in it are dlc's, or `own`.

    Raises UnsupportedError for an unknown pass or option, and DeviceError for an unknown target.
    """

    def named(name: str) -> Target:
        return own if own is not None and own.name == name else resolve(name)

    passes: list[ModulePass] = []
    try:
        specs = parse_pass_specs(spec)
    except ValueError as error:
        raise UnsupportedError(f"pipeline {spec!r}: {error}") from error
    for entry in specs:
        if entry.name not in PASSES:
            near = difflib.get_close_matches(entry.name, PASSES, n=1)
            hint = f"did you mean {near[0]}?" if near else "`dlc passes` lists them"
            raise UnsupportedError(f"no pass is called {entry.name!r}; {hint}")
        try:
            kind = PASSES[entry.name][1]
            passes.append(kind.of(entry, named) if issubclass(kind, TargetPass) else kind.from_spec(entry))
        except ValueError as error:
            raise UnsupportedError(f"pass {entry.name}: {error}") from error
    return tuple(passes)


def chosen(passes: Iterable[ModulePass]) -> tuple[Stage, ...]:
    """Passes that somebody chose, grouped by the stages they belong to; what may exist after them is not said."""
    stages: list[Stage] = []
    for p in passes:
        name = PASSES[p.name][0]
        if stages and stages[-1].name == name:
            stages[-1] = Stage(name, (*stages[-1].passes, p))
        else:
            stages.append(Stage(name, (p,)))
    return tuple(stages)


def rest(stages: Iterable[Stage], remaining: str, own: Target | None = None) -> tuple[Stage, ...]:
    """The end of a pipeline, from the passes that are `remaining`: where a dumped module goes on."""
    left = parse(remaining, own)
    tail: list[Stage] = []
    for stage in reversed(tuple(stages)):
        count = min(len(left), len(stage.passes))
        if count == 0 or [str(p) for p in left[-count:]] != [str(p) for p in stage.passes[-count:]]:
            break
        tail.insert(0, Stage(stage.name, stage.passes[-count:], stage.host, stage.kernels))
        left = left[:-count]
    return (*chosen(left), *tail)
