"""The `dl` dialect: what a model computes, as pure functions on tensors.

Files of this folder are what ops of every kind are made of, and the constants among them: `base.py` and `interfaces.py` (what
an op is, and what passes know of it), `dtypes.py`, `scalar.py` (what a kernel does with one element), `creation.py`, `build.py`
(programs as calls on values). They know none of its folders, which hold the families, one file each:

    arithmetic/       each element by itself
    movement/         elements in other places, and places from data
    reductions/       elements combined along axes or in windows
    contractions/     sums of products
    procedures/       loops written by hand, and what they make up: order, factors, trees
    narrow_numbers/   a few bits: quantised, several to a word
    data_dependent/   results as large as data says, and text
    programs/         kernels, loops, branches, functions; sizes and weights of whole programs

Every op class that a family defines belongs to the dialect and is exported here.
"""
# ruff: noqa: F403

from __future__ import annotations

from types import ModuleType

from dlc.dialects.dl import creation
from dlc.dialects.dl.arithmetic import activation, conversion, elementwise, functions, logic, random
from dlc.dialects.dl.arithmetic.activation import *
from dlc.dialects.dl.arithmetic.conversion import *
from dlc.dialects.dl.arithmetic.elementwise import *
from dlc.dialects.dl.arithmetic.functions import *
from dlc.dialects.dl.arithmetic.logic import *
from dlc.dialects.dl.arithmetic.random import *
from dlc.dialects.dl.base import DimsAttr
from dlc.dialects.dl.contractions import contraction, conv_transpose, convolution, fourier, winograd
from dlc.dialects.dl.contractions.contraction import *
from dlc.dialects.dl.contractions.conv_transpose import *
from dlc.dialects.dl.contractions.convolution import *
from dlc.dialects.dl.contractions.fourier import *
from dlc.dialects.dl.contractions.winograd import *
from dlc.dialects.dl.creation import *
from dlc.dialects.dl.data_dependent import selection, suppression, text, unique
from dlc.dialects.dl.data_dependent.selection import *
from dlc.dialects.dl.data_dependent.suppression import *
from dlc.dialects.dl.data_dependent.text import *
from dlc.dialects.dl.data_dependent.unique import *
from dlc.dialects.dl.movement import adjoints, indexing, packing, padding, scatter, shaping
from dlc.dialects.dl.movement.adjoints import *
from dlc.dialects.dl.movement.indexed import *
from dlc.dialects.dl.movement.indexing import *
from dlc.dialects.dl.movement.packing import *
from dlc.dialects.dl.movement.padding import *
from dlc.dialects.dl.movement.scatter import *
from dlc.dialects.dl.movement.shaping import *
from dlc.dialects.dl.narrow_numbers import few_bits, quantization, word_dots, words
from dlc.dialects.dl.narrow_numbers.few_bits import *
from dlc.dialects.dl.narrow_numbers.quantization import *
from dlc.dialects.dl.narrow_numbers.word_dots import *
from dlc.dialects.dl.narrow_numbers.words import *
from dlc.dialects.dl.procedures import factorization, rows, running, sorted, sorting, trees, walks
from dlc.dialects.dl.procedures.factorization import *
from dlc.dialects.dl.procedures.rows import *
from dlc.dialects.dl.procedures.running import *
from dlc.dialects.dl.procedures.sorted import *
from dlc.dialects.dl.procedures.sorting import *
from dlc.dialects.dl.procedures.trees import *
from dlc.dialects.dl.procedures.walks import *
from dlc.dialects.dl.programs import control, identities, program, transformations
from dlc.dialects.dl.programs.control import *
from dlc.dialects.dl.programs.identities import *
from dlc.dialects.dl.programs.program import *
from dlc.dialects.dl.programs.transformations import *
from dlc.dialects.dl.reductions import composite, extreme_places, normalization, reduction, window
from dlc.dialects.dl.reductions.composite import *
from dlc.dialects.dl.reductions.extreme_places import *
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
    extreme_places,
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
    running,
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
    word_dots,
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
