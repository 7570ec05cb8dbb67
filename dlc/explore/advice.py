"""What whoever has a program can change about a kernel that takes long, by what bounds it and how it is compiled."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dlc.dialects.dl.base import element_type_of
from dlc.dialects.dl.dtypes import numpy_dtype
from dlc.dialects.dl.interfaces import Contraction
from dlc.dialects.dl.programs.program import KernelOp
from dlc.explore.data import Kernel, Measured, Memory
from dlc.ir import ModuleOp
from dlc.options import Options
from dlc.target import Target

# Of less than this part of the time nothing is worth saying.
_WORTH = 0.02
# A run that is shorter is hardly longer than what starts it, in seconds.
_SHORT = 5e-6
# A kernel that reaches more of its limit becomes faster by doing less alone.
_NEAR = 0.7


@dataclass(frozen=True)
class Settings:
    """What a program was compiled for and with, and how many threads run it."""

    target: Target
    options: Options
    threads: int


def products_of(module: ModuleOp) -> dict[str, set[str]]:
    """The dtypes of what the contractions of each kernel multiply, of a module whose kernels are formed."""
    return {
        kernel.symbol: {
            numpy_dtype(element_type_of(op.operands[0])).name for op in kernel.body.block.ops if isinstance(op, Contraction)
        }
        for kernel in module.ops
        if isinstance(kernel, KernelOp)
    }


def advice(
    kernel: Kernel, kernels: Sequence[Kernel], products: set[str], memory: Memory, measured: Measured, settings: Settings
) -> Iterator[str]:
    """What can be changed about one of the measured `kernels`, in sentences; nothing of one that takes little.

    `products` are the dtypes of what its contractions multiply.
    """
    if not kernel.seconds or kernel.seconds < _WORTH * sum(k.seconds or 0 for k in kernels):
        return
    flops, bytes, least = kernel.flops or 0, kernel.bytes or 0, kernel.least or 0
    seconds, options, reached = kernel.seconds / kernel.runs, settings.options, least / kernel.seconds
    tasks, floats = sum(kernel.tasks), "float32" in products
    if seconds < _SHORT:
        yield "a run of it is hardly longer than what starts one: a larger batch gives it more to do"
        return
    if 0 < tasks < settings.threads:
        yield (
            f"it is {tasks} task{'s' * (tasks > 1)}, of {settings.threads} threads: a larger batch makes more of them; or run "
            f"several models at once, each with fewer threads (num_threads)"
        )
    if products and options.numerics == "strict":
        yield "numerics strict keeps its operations in their order: by default some are computed another way, or in one kernel"
    if flops / measured.flops >= 0.999 * least:
        yield from _of_arithmetic(floats, reached, settings)
        return
    weights = sum(w.bytes for w in memory.weights if kernel.name in w.kernels)
    if 2 * weights * kernel.runs > bytes and products:
        yield "most of what it reads are weights: a larger batch reads them once for all of its rows"
        if floats and options.weights == "float":
            yield "weights of 8 or 4 bits (weights int8, int4) are a quarter or an eighth to read"
    elif reached >= _NEAR:
        yield "it takes the time that its reading and writing takes: smaller dtypes (float16) are less of it"


def _of_arithmetic(floats: bool, reached: float, settings: Settings) -> Iterator[str]:
    """Of a kernel that is bound by what it computes, of which it does so much in a second as `reached` says."""
    options, target = settings.options, settings.target
    if reached < _NEAR and target.groups is None and not options.tune:
        yield "it is not at its limit: of a model in a file, tune 10 measures for ten seconds whether other plans are faster"
    if floats and options.precision == "f32":
        if "bf16" in target.dots:
            yield "precision bf16 multiplies numbers of 16 bits, for which this target has instructions"
        yield "products of 8-bit integers take less time than those of float32: dlc quantize makes them of an ONNX file"
