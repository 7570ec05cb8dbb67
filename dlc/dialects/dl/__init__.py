"""The `dl` dialect: what a model computes, as pure functions on tensors.

One module per family of ops; every op class that a family defines belongs to the dialect and is exported here.
"""
# ruff: noqa: F403

from __future__ import annotations

from types import ModuleType

from dlc.dialects.dl import (
    activation,
    adjoints,
    composite,
    contraction,
    control,
    conv_transpose,
    conversion,
    creation,
    elementwise,
    factorization,
    few_bits,
    fourier,
    functions,
    identities,
    indexing,
    irregular,
    movement,
    normalization,
    program,
    quantization,
    random,
    reduction,
    rows,
    selection,
    sorted,
    sorting,
    suppression,
    text,
    transformations,
    trees,
    unique,
    walks,
    window,
    winograd,
    word_pairs,
    words,
)
from dlc.dialects.dl.activation import *
from dlc.dialects.dl.adjoints import *
from dlc.dialects.dl.base import DimsAttr
from dlc.dialects.dl.composite import *
from dlc.dialects.dl.contraction import *
from dlc.dialects.dl.control import *
from dlc.dialects.dl.conv_transpose import *
from dlc.dialects.dl.conversion import *
from dlc.dialects.dl.creation import *
from dlc.dialects.dl.elementwise import *
from dlc.dialects.dl.factorization import *
from dlc.dialects.dl.few_bits import *
from dlc.dialects.dl.fourier import *
from dlc.dialects.dl.functions import *
from dlc.dialects.dl.identities import *
from dlc.dialects.dl.indexed import *
from dlc.dialects.dl.indexing import *
from dlc.dialects.dl.irregular import *
from dlc.dialects.dl.movement import *
from dlc.dialects.dl.normalization import *
from dlc.dialects.dl.program import *
from dlc.dialects.dl.quantization import *
from dlc.dialects.dl.random import *
from dlc.dialects.dl.reduction import *
from dlc.dialects.dl.rows import *
from dlc.dialects.dl.selection import *
from dlc.dialects.dl.sorted import *
from dlc.dialects.dl.sorting import *
from dlc.dialects.dl.suppression import *
from dlc.dialects.dl.text import *
from dlc.dialects.dl.transformations import *
from dlc.dialects.dl.trees import *
from dlc.dialects.dl.unique import *
from dlc.dialects.dl.walks import *
from dlc.dialects.dl.window import *
from dlc.dialects.dl.winograd import *
from dlc.dialects.dl.word_pairs import *
from dlc.dialects.dl.words import *
from dlc.ir import Dialect, Operation

FAMILIES: tuple[ModuleType, ...] = (
    creation,
    elementwise,
    identities,
    conversion,
    functions,
    activation,
    reduction,
    contraction,
    conv_transpose,
    winograd,
    factorization,
    fourier,
    window,
    movement,
    adjoints,
    indexing,
    irregular,
    walks,
    sorting,
    rows,
    sorted,
    trees,
    selection,
    unique,
    suppression,
    text,
    composite,
    normalization,
    quantization,
    words,
    few_bits,
    word_pairs,
    random,
    control,
    transformations,
    program,
)


def ops_of(family: ModuleType) -> list[type[Operation]]:
    """The op classes that a family module defines, in the order of the file."""
    return [
        value
        for value in vars(family).values()
        if isinstance(value, type)
        and issubclass(value, Operation)
        and "name" in vars(value)
        and value.__module__ == family.__name__
    ]


Dl = Dialect("dl", [op for family in FAMILIES for op in ops_of(family)], [DimsAttr])
