"""The `dl` dialect: pure functions on tensors, of which models consist.

The modules of this folder are shared by all ops: `base.py` and `interfaces.py` (op base classes and the interfaces that passes
query), `dtypes.py`, `scalar.py` (scalar code inside kernels), `creation.py` (constants), `build.py` (an op builder). They
import nothing from the subfolders, which hold the families of ops, one file each:

    arithmetic/       elementwise ops
    movement/         transposition, slicing, padding, gather and scatter
    reductions/       reductions along axes, pooling, normalization
    contractions/     matmul, convolution, FFT
    library_kernels/  sorting, scans, factorizations, decision trees: ops with hand-written loops
    low_precision/    quantization, weight-only products, packed dot-product operands
    data_dependent/   results with data-dependent sizes, strings, foreign functions
    distributed/      sharding annotations, collectives between ranks
    programs/         kernels, control flow, function transformations; symbolic sizes and weights of whole programs

Every op class that a family defines belongs to the dialect and is exported here.
"""
# ruff: noqa: F403

from __future__ import annotations

from types import ModuleType

from dlc.dialects.dims_attribute import DimsAttr
from dlc.dialects.dl import creation
from dlc.dialects.dl.arithmetic import activation, conversion, elementwise, functions, logic, random
from dlc.dialects.dl.arithmetic.activation import *
from dlc.dialects.dl.arithmetic.conversion import *
from dlc.dialects.dl.arithmetic.elementwise import *
from dlc.dialects.dl.arithmetic.functions import *
from dlc.dialects.dl.arithmetic.logic import *
from dlc.dialects.dl.arithmetic.random import *
from dlc.dialects.dl.contractions import contraction, conv_transpose, convolution, fourier, winograd
from dlc.dialects.dl.contractions.contraction import *
from dlc.dialects.dl.contractions.conv_transpose import *
from dlc.dialects.dl.contractions.convolution import *
from dlc.dialects.dl.contractions.fourier import *
from dlc.dialects.dl.contractions.winograd import *
from dlc.dialects.dl.creation import *
from dlc.dialects.dl.data_dependent import foreign, non_max_suppression, selection, strings, unique
from dlc.dialects.dl.data_dependent.foreign import *
from dlc.dialects.dl.data_dependent.non_max_suppression import *
from dlc.dialects.dl.data_dependent.selection import *
from dlc.dialects.dl.data_dependent.strings import *
from dlc.dialects.dl.data_dependent.unique import *
from dlc.dialects.dl.distributed import collectives, shard_map, sharding
from dlc.dialects.dl.distributed.collectives import *
from dlc.dialects.dl.distributed.shard_map import *
from dlc.dialects.dl.distributed.sharding import *
from dlc.dialects.dl.library_kernels import (
    axis_scans,
    common_divisor,
    cumulative,
    decision_trees,
    factorization,
    loops,
    partition,
    row_sorting,
    searchsorted,
    sorting,
)
from dlc.dialects.dl.library_kernels.axis_scans import *
from dlc.dialects.dl.library_kernels.common_divisor import *
from dlc.dialects.dl.library_kernels.cumulative import *
from dlc.dialects.dl.library_kernels.decision_trees import *
from dlc.dialects.dl.library_kernels.factorization import *
from dlc.dialects.dl.library_kernels.loops import *
from dlc.dialects.dl.library_kernels.loops import LoopBodyAttr
from dlc.dialects.dl.library_kernels.partition import *
from dlc.dialects.dl.library_kernels.row_sorting import *
from dlc.dialects.dl.library_kernels.searchsorted import *
from dlc.dialects.dl.library_kernels.sorting import *
from dlc.dialects.dl.low_precision import packed_dot, quantization, weight_only, weight_only_dot
from dlc.dialects.dl.low_precision.packed_dot import *
from dlc.dialects.dl.low_precision.quantization import *
from dlc.dialects.dl.low_precision.weight_only import *
from dlc.dialects.dl.low_precision.weight_only_dot import *
from dlc.dialects.dl.movement import adjoints, indexing, packing, padding, scatter, shaping
from dlc.dialects.dl.movement.adjoints import *
from dlc.dialects.dl.movement.index_checks import *
from dlc.dialects.dl.movement.indexing import *
from dlc.dialects.dl.movement.packing import *
from dlc.dialects.dl.movement.padding import *
from dlc.dialects.dl.movement.scatter import *
from dlc.dialects.dl.movement.shaping import *
from dlc.dialects.dl.programs import control, identities, program, transformations
from dlc.dialects.dl.programs.control import *
from dlc.dialects.dl.programs.identities import *
from dlc.dialects.dl.programs.program import *
from dlc.dialects.dl.programs.transformations import *
from dlc.dialects.dl.reductions import arg_extrema, composite, normalization, reduction, window
from dlc.dialects.dl.reductions.arg_extrema import *
from dlc.dialects.dl.reductions.composite import *
from dlc.dialects.dl.reductions.normalization import *
from dlc.dialects.dl.reductions.reduction import *
from dlc.dialects.dl.reductions.window import *
from dlc.ir import Dialect, Operation

FAMILIES: tuple[ModuleType, ...] = (
    creation,
    elementwise,
    logic,
    identities,
    conversion,
    functions,
    activation,
    reduction,
    arg_extrema,
    contraction,
    convolution,
    conv_transpose,
    winograd,
    factorization,
    fourier,
    window,
    shaping,
    padding,
    packing,
    adjoints,
    indexing,
    scatter,
    cumulative,
    common_divisor,
    axis_scans,
    sorting,
    partition,
    row_sorting,
    searchsorted,
    decision_trees,
    loops,
    selection,
    unique,
    non_max_suppression,
    strings,
    foreign,
    sharding,
    collectives,
    shard_map,
    composite,
    normalization,
    quantization,
    packed_dot,
    weight_only,
    weight_only_dot,
    random,
    control,
    transformations,
    program,
)


def op_classes_of(family: ModuleType) -> list[type[Operation]]:
    """Return the op classes that a family module defines, in the order of the file."""
    return [
        value
        for value in vars(family).values()
        if isinstance(value, type)
        and issubclass(value, Operation)
        and "name" in vars(value)
        and value.__module__ == family.__name__
    ]


Dl = Dialect("dl", [op for family in FAMILIES for op in op_classes_of(family)], [DimsAttr, LoopBodyAttr])
