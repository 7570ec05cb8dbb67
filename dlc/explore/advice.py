"""Advice for slow kernels: changes that the user can make, by the bound of the kernel and the options it was compiled with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import Contraction
from dlc.dialects.dl.programs.program import DispatchOp, KernelOp
from dlc.dialects.dl.programs.weight_expressions import WeightExpressions
from dlc.explore.data import KernelSummary, MemoryUsage, RunMeasurements
from dlc.ir import ModuleOp, SSAValue
from dlc.options import Options
from dlc.target import Target

# Kernels below this share of the total time get no advice.
_MIN_TIME_SHARE = 0.02
# A shorter launch is dominated by the launch overhead.
_LAUNCH_BOUND_SECONDS = 5e-6
# A kernel above this share of its limit becomes faster only with fewer operations.
_NEAR_LIMIT_SHARE = 0.7


@dataclass(frozen=True)
class CompileSettings:
    """The target, options and number of threads of a program."""

    target: Target
    options: Options
    threads: int


@dataclass(frozen=True)
class ContractionDtypes:
    """The dtypes of the contraction operands of a kernel: of all contractions, and of those with weights."""

    all: frozenset[str] = frozenset()
    with_weights: frozenset[str] = frozenset()


def contraction_dtypes(module: ModuleOp) -> dict[str, ContractionDtypes]:
    """Return the dtypes of the contractions of each kernel, for a module after kernel formation."""
    constants, weight_arguments = WeightExpressions(), dict[str, set[int]]()
    for dispatch in module.walk():
        if isinstance(dispatch, DispatchOp):
            indices = {k for k, argument in enumerate(dispatch.arguments) if argument in constants}
            weight_arguments.setdefault(dispatch.symbol, set()).update(indices)
    result: dict[str, ContractionDtypes] = {}
    for kernel in module.ops:
        if isinstance(kernel, KernelOp):
            arguments = kernel.body.block.args
            weights: set[SSAValue] = {arguments[k] for k in weight_arguments.get(kernel.symbol, ())}
            dtypes, weight_dtypes = set[str](), set[str]()
            for op in kernel.body.block.ops:
                if isinstance(op, Contraction):
                    dtype = numpy_dtype(element_type_of(op.operands[0])).name
                    dtypes.add(dtype)
                    if not weights.isdisjoint(op.operands[:2]):
                        weight_dtypes.add(dtype)
                elif op.operands and weights.issuperset(op.operands):
                    weights.update(op.results)
            result[kernel.symbol] = ContractionDtypes(frozenset(dtypes), frozenset(weight_dtypes))
    return result


def advice(
    kernel: KernelSummary,
    kernels: Sequence[KernelSummary],
    products: ContractionDtypes,
    memory: MemoryUsage,
    measurements: RunMeasurements,
    settings: CompileSettings,
) -> Iterator[str]:
    """Yield advice on a measured kernel as sentences; nothing for a kernel with a small share of the time.

    `products` are the operand dtypes of its contractions. Advice on low precision concerns those with weights.
    """
    if not kernel.seconds or kernel.seconds < _MIN_TIME_SHARE * sum(k.seconds or 0 for k in kernels):
        return
    flops, bytes, limit = kernel.flops or 0, kernel.bytes or 0, kernel.limit_seconds or 0
    seconds, options, limit_share = kernel.seconds / kernel.runs, settings.options, limit / kernel.seconds
    tasks, has_float32 = sum(kernel.tasks), "float32" in products.with_weights
    if seconds < _LAUNCH_BOUND_SECONDS:
        yield "a run takes hardly longer than its launch overhead: a larger batch gives it more work"
        return
    if 0 < tasks < settings.threads:
        yield (
            f"it has {tasks} task{'s' * (tasks > 1)} for {settings.threads} threads: use a larger batch, or run several models "
            "concurrently with fewer threads each (num_threads)"
        )
    if products.all and options.numerics == "strict":
        yield "numerics strict disables algebraic rewrites and some kernel fusion: the default is faster"
    if flops / measurements.flops >= 0.999 * limit:
        yield from _arithmetic_advice(has_float32, limit_share, settings)
        return
    weights = sum(w.bytes for w in memory.weights if kernel.name in w.kernels)
    if 2 * weights * kernel.runs > bytes and products.with_weights:
        yield "most of the bytes that it reads are weights: a larger batch reads them once for all rows"
        if has_float32 and options.weights == "float":
            yield "weight-only quantization (weights int8, int4) reads a quarter or an eighth of the bytes"
    elif limit_share >= _NEAR_LIMIT_SHARE:
        yield "it is memory bound: smaller dtypes (float16) read and write fewer bytes"


def _arithmetic_advice(has_float32: bool, limit_share: float, settings: CompileSettings) -> Iterator[str]:
    """Yield advice on a compute-bound kernel; `limit_share` is its share of the compute limit."""
    options, target = settings.options, settings.target
    if limit_share < _NEAR_LIMIT_SHARE and target.groups is None and not options.tune:
        yield "it is below its limit: for a model in a file, autotune with tune=10 (--tune 10), which measures other tile plans"
    if has_float32 and options.precision == "f32":
        if "bf16" in target.dot_products:
            yield "mixed precision (precision bf16) uses the bf16 instructions of this target"
        yield "int8 contractions are faster than float32: quantize the ONNX model with dlc quantize"
