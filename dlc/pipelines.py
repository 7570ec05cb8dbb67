"""The compiler's pipelines as values: `stages_of` lists all passes of a target in order."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from dlc.errors import UnsupportedError
from dlc.ir import ModulePass, parse_pass_specs
from dlc.library_kernels.registry import LIBRARY_KERNELS
from dlc.passes.base import Stage, TargetPass
from dlc.passes.dl.contractions.block_reductions import BlockReductionsPass
from dlc.passes.dl.contractions.fold_scales import FoldScalesPass
from dlc.passes.dl.contractions.split_reductions import SplitReductionsPass
from dlc.passes.dl.contractions.trim_padding import TrimPaddingPass
from dlc.passes.dl.contractions.winograd import WinogradPass
from dlc.passes.dl.contractions.winograd_gradients import WinogradGradientsPass
from dlc.passes.dl.low_precision.downcast_contractions import DowncastContractionsPass
from dlc.passes.dl.low_precision.fold_quantization import FoldQuantizationPass
from dlc.passes.dl.low_precision.pack_dot_operands import PackDotOperandsPass
from dlc.passes.dl.low_precision.quantize_weights import QuantizeWeightsPass
from dlc.passes.dl.low_precision.quantized_contractions import QuantizedContractionsPass
from dlc.passes.dl.low_precision.upcast_contractions import UpcastContractionsPass
from dlc.passes.dl.low_precision.weight_only_contractions import WeightOnlyContractionsPass
from dlc.passes.dl.movement.channels_last import ChannelsLastPass
from dlc.passes.dl.movement.check_indices import CheckIndicesPass
from dlc.passes.dl.movement.fold_transposes_into_contractions import FoldTransposesIntoContractionsPass
from dlc.passes.dl.movement.merge_pads import MergePadsPass
from dlc.passes.dl.movement.peel_borders import PeelBordersPass
from dlc.passes.dl.movement.sink_reshapes import SinkReshapesPass
from dlc.passes.dl.programs.bind_dims import BindDimsPass
from dlc.passes.dl.programs.loop_invariant_code_motion import LoopInvariantCodeMotionPass
from dlc.passes.dl.programs.stack_next_states import StackNextStatesPass
from dlc.passes.dl.programs.unroll_scans import UnrollScansPass
from dlc.passes.dl.simplification.cse import CsePass
from dlc.passes.dl.simplification.dce import DcePass
from dlc.passes.dl.simplification.decompose_composites import DecomposeCompositesPass
from dlc.passes.dl.simplification.expand_sigmoids import ExpandSigmoidsPass
from dlc.passes.dl.simplification.repeat_shared_values import RepeatSharedValuesPass
from dlc.passes.dl.simplification.select_order_statistics import SelectOrderStatisticsPass
from dlc.passes.dl.simplification.shorten_live_ranges import ShortenLiveRangesPass
from dlc.passes.dl.simplification.simplify import SimplifyPass
from dlc.passes.fusion.assign_layouts import AssignLayoutsPass
from dlc.passes.fusion.dedupe_kernels import DedupeKernelsPass
from dlc.passes.fusion.find_zeros import FindZerosPass
from dlc.passes.fusion.form_kernels import FormKernelsPass
from dlc.passes.fusion.masks_by_position import MasksByPositionPass
from dlc.passes.fusion.merge_kernels import MergeKernelsPass
from dlc.passes.fusion.prepare_attention import PrepareAttentionPass
from dlc.passes.fusion.reuse_donated import ReuseDonatedPass
from dlc.passes.fusion.share_literals import ShareLiteralsPass
from dlc.passes.fusion.update_in_place import UpdateInPlacePass
from dlc.passes.host.bufferize_host import BufferizeHostPass
from dlc.passes.host.form_sections import FormSectionsPass
from dlc.passes.host.overlap_collectives import OverlapCollectivesPass
from dlc.passes.host.plan_arena import PlanArenaPass
from dlc.passes.linalg.fuse_generics import FuseGenericsPass
from dlc.passes.linalg.library_kernels import tracer_tables
from dlc.passes.linalg.lower_kernels_to_linalg import LowerKernelsToLinalgPass
from dlc.passes.loop_kernels.loops_to_kernels import LoopsToKernelsPass
from dlc.passes.loops.cse_kernels import CseKernelsPass
from dlc.passes.loops.expand_compress import ExpandCompressPass
from dlc.passes.loops.expand_math import ExpandMathPass
from dlc.passes.loops.forward_stores import ForwardStoresPass
from dlc.passes.loops.forward_to_next_iteration import ForwardToNextIterationPass
from dlc.passes.loops.name_values import NameValuesPass
from dlc.passes.loops.prefetch_panels import PrefetchPanelsPass
from dlc.passes.loops.unpack_panels import UnpackPanelsPass
from dlc.passes.loops.unroll_reductions import UnrollReductionsPass
from dlc.passes.loops.vectorize import VectorizePass
from dlc.passes.placement import place_passes, stage_of_anchor
from dlc.passes.tiling.bufferize_kernels import BufferizeKernelsPass
from dlc.passes.tiling.tile_kernels import TileKernelsPass
from dlc.passes.transformations.expand_transformations import ExpandTransformationsPass
from dlc.plugins.plugin import PassPlacement
from dlc.plugins.registry import contributions
from dlc.plugins.tables import ExtensionTable
from dlc.target import REFERENCE, Target, is_opencl, resolve

# Lowering to linalg inserts the loops of library ops, which passes do not import.
tracer_tables.append(LIBRARY_KERNELS)

# Dialects and ops that may exist after a stage, outside and inside kernels.
_HOST = frozenset({"builtin", "func", "dl"})
_SCALARS = frozenset({"arith", "math", "func"})
# Library kernels consist of loops from the start.
_LOOPS = frozenset({"memref", "scf", "vector"})


def stages_of(
    target: Target, numerics: str = "default", weights: str = "float", group: int = 32, precision: str = "f32"
) -> tuple[Stage, ...]:
    """Return the stages from a `dl` module with static sizes to vectorized loops, for a CPU or a device with work-groups.

    The passes of plug-ins are at their anchors.

    With `strict` numerics, no constants are folded across linear ops, and math functions are computed in f64. `weights` of
    `int8` or `int4` quantize the large weights of matrix products, with one scale per `group` weights. A 16-bit `precision`
    rounds the operands of contractions with weights to that type.
    """
    stages = _builtin_stages(target, numerics, weights, group, precision)
    placements = [
        placement
        for _, passes in contributions("passes")
        for placement in passes
        if PASSES.get(placement.pass_class.name, (None, None))[1] is placement.pass_class
    ]
    return place_passes(stages, _ALL_STAGES, placements, target) if placements else stages


def _builtin_stages(target: Target, numerics: str, weights: str, group: int, precision: str) -> tuple[Stage, ...]:
    is_strict = numerics == "strict"
    synchronization = frozenset({"gpu.barrier", "gpu.subgroup_matmul"}) if target.groups is not None else frozenset[str]()
    prefetch = () if target.costs.prefetch is None else (PrefetchPanelsPass(target),)
    uses_winograd = target.costs.winograd is not None and not is_strict
    winograd = (WinogradPass(target),) if uses_winograd else ()
    winograd_gradients = (WinogradGradientsPass(target),) if uses_winograd else ()
    # Fold scales after transposes are eliminated, so that scales are adjacent to their contractions.
    scales = () if is_strict else (FoldScalesPass(),)
    padding = () if is_strict else (MergePadsPass(),)
    sigmoids = () if is_strict else (ExpandSigmoidsPass(),)
    trimming = () if is_strict else (TrimPaddingPass(target),)
    quantization = () if is_strict else (WeightOnlyContractionsPass(target), FoldQuantizationPass())
    rounding = () if precision == "f32" else (DowncastContractionsPass(precision),)
    weight_only = () if weights == "float" else (QuantizeWeightsPass(target, weights, group, exact_rows=is_strict),)
    return (
        Stage(
            "dl",
            (
                ExpandTransformationsPass(),
                UnrollScansPass(),
                SimplifyPass(),
                # While a sort is one op and the indices that are read from it are visible.
                SelectOrderStatisticsPass(),
                # Before argmax is decomposed: its result is known to be in bounds.
                CheckIndicesPass(),
                # While quantization is represented by single ops.
                QuantizedContractionsPass(target),
                *quantization,
                *weight_only,
                DecomposeCompositesPass(target),
                SimplifyPass(),
                LoopInvariantCodeMotionPass(),
                # Before layouts and packing, which assume one kernel per contraction.
                LoopsToKernelsPass(target),
                *padding,
                PeelBordersPass(target),
                ChannelsLastPass(),
                *winograd_gradients,
                # After the memory layout of reductions is decided.
                BlockReductionsPass(),
                *scales,
                *rounding,
                # Before Winograd, which is implemented for f32.
                UpcastContractionsPass(target),
                *trimming,
                *winograd,
                # After Winograd, which works on unpacked elements.
                PackDotOperandsPass(target),
                FoldTransposesIntoContractionsPass(),
                # No later pass changes contractions. Epilogues are fused with the sum of the chunks.
                SplitReductionsPass(target),
                SinkReshapesPass(),
                SimplifyPass(),
                *sigmoids,
                CsePass(),
                DcePass(),
                # Before kernels hide the ops that compute states.
                StackNextStatesPass(target),
                # After CSE, which would merge the repeated values.
                RepeatSharedValuesPass(),
                ShortenLiveRangesPass(),
            ),
            _HOST,
            frozenset(),
        ),
        # Assign layouts before deduplication: kernels that are equal so far may get different packed panels. Layout conversions
        # of weights inside loops are hoisted last.
        Stage(
            "fusion",
            (
                FormKernelsPass(target, exact=is_strict),
                MergeKernelsPass(target),
                MasksByPositionPass(),
                PrepareAttentionPass(target, exact=is_strict),
                AssignLayoutsPass(target),
                LoopInvariantCodeMotionPass(),
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
            (BufferizeKernelsPass(), TileKernelsPass(target, exact=is_strict)),
            _HOST,
            _SCALARS | _LOOPS | {"linalg"} | synchronization,
        ),
        Stage(
            "loops",
            (
                VectorizePass(),
                ForwardStoresPass(),
                ForwardToNextIterationPass(),
                UnpackPanelsPass(target),
                ExpandMathPass(precise=is_strict, fused=target.has_fma, has_ldexp=target.has_ldexp),
                ExpandCompressPass(target),
                UnrollReductionsPass(target),
                *prefetch,
                CseKernelsPass(),
                NameValuesPass(),
            ),
            _HOST,
            _SCALARS | _LOOPS | synchronization,
        ),
    )


# The stages that process each kernel separately.
KERNEL_STAGES = ("linalg", "tiling", "loops")


def host_stage(target: Target, inter_op: str = "auto") -> Stage:
    """Return the stage of the host program, which runs after weight expressions are evaluated; kernels may be at any stage.

    `inter_op` is the mode of `form-sections`. Its cost model is that of threads: on a device with command queues, `auto` forms
    no sections. Its collectives run in Python, without overlap.
    """
    on_device = is_opencl(target.name)
    mode = "off" if on_device and inter_op == "auto" else inter_op
    overlap = () if on_device else (OverlapCollectivesPass(),)
    passes = BufferizeHostPass(), FormSectionsPass(target, mode), *overlap, PlanArenaPass(target.alignment)
    return Stage("host", passes, frozenset({"builtin", "func", "host", "memref"}))


HOST = host_stage(REFERENCE)


# Passes that run only when they are named explicitly.
_BY_NAME_ONLY = (Stage("dl", (BindDimsPass(),)),)

# The stages with all passes, those of optional features included.
_ALL_STAGES = _builtin_stages(REFERENCE, "default", "int8", 32, "bf16")


def _plugin_passes(placements: Iterable[PassPlacement]) -> dict[str, tuple[str, type[ModulePass]]]:
    """Return the stage and class of each pass of a plug-in, by its name. Raises UnsupportedError for an unknown anchor."""
    return {p.pass_class.name: (stage_of_anchor(p, _ALL_STAGES), p.pass_class) for p in placements}


# Stage and class of every pass, by its name.
PASSES: ExtensionTable[str, tuple[str, type[ModulePass]]] = ExtensionTable(
    "passes",
    {p.name: (stage.name, type(p)) for stage in (*_BY_NAME_ONLY, *_ALL_STAGES, HOST) for p in stage.passes},
    _plugin_passes,
)


def parse(spec: str, custom_target: Target | None = None) -> tuple[ModulePass, ...]:
    """Parse a pipeline such as `"a,b{k=1}"`; its target names refer to built-in targets, or to `custom_target`.

    Raises UnsupportedError for an unknown pass or option, and DeviceError for an unknown target.
    """

    def target_by_name(name: str) -> Target:
        return custom_target if custom_target is not None and custom_target.name == name else resolve(name)

    passes: list[ModulePass] = []
    try:
        specs = parse_pass_specs(spec)
    except ValueError as error:
        raise UnsupportedError(f"pipeline {spec!r}: {error}") from error
    for entry in specs:
        if entry.name not in PASSES:
            matches = difflib.get_close_matches(entry.name, PASSES, n=1)
            hint = f"did you mean {matches[0]}?" if matches else "`dlc passes` lists them"
            raise UnsupportedError(f"unknown pass {entry.name!r}; {hint}")
        try:
            pass_class = PASSES[entry.name][1]
            passes.append(
                pass_class.of(entry, target_by_name) if issubclass(pass_class, TargetPass) else pass_class.from_spec(entry)
            )
        except ValueError as error:
            raise UnsupportedError(f"pass {entry.name}: {error}") from error
    return tuple(passes)


def custom_stages(passes: Iterable[ModulePass]) -> tuple[Stage, ...]:
    """Group explicitly named passes by their stages; these stages do not restrict the legal ops."""
    stages: list[Stage] = []
    for p in passes:
        name = PASSES[p.name][0]
        if stages and stages[-1].name == name:
            stages[-1] = Stage(name, (*stages[-1].passes, p))
        else:
            stages.append(Stage(name, (p,)))
    return tuple(stages)


def remaining_stages(stages: Iterable[Stage], remaining: str, custom_target: Target | None = None) -> tuple[Stage, ...]:
    """Return the end of a pipeline with the passes `remaining`, to resume compilation of a dumped module."""
    passes = parse(remaining, custom_target)
    tail: list[Stage] = []
    for stage in reversed(tuple(stages)):
        count = min(len(passes), len(stage.passes))
        if count == 0 or [str(p) for p in passes[-count:]] != [str(p) for p in stage.passes[-count:]]:
            break
        tail.insert(0, Stage(stage.name, stage.passes[-count:], stage.host, stage.kernels))
        passes = passes[:-count]
    return (*custom_stages(passes), *tail)
