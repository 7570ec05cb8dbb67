"""Models of several programs: for shapes and values of inputs of which a command line says more than one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.cli.given import Shapes
from dlc.dims import Dim, is_static
from dlc.errors import UnsupportedError
from dlc.forms import OBJECTS, Plain, form_of, told
from dlc.frontend.identifiers import identifier
from dlc.runtime.models.model import Model
from dlc.runtime.models.variants import Key, Variants

Values: TypeAlias = "Mapping[str, NDArray[Any]]"
# The model for shapes and values of inputs.
Compile: TypeAlias = "Callable[[Shapes, Values], Model]"


def compile_each(compile: Compile, shapes: Sequence[Shapes], values: Sequence[Values]) -> Model:
    """What `compile` makes of these shapes and values; where there are several, one model with a program for each.

    Raises UnsupportedError where they are not what picks one, and what `compile` raises.
    """
    # One that is given twice is compiled once.
    shapes = [shape for k, shape in enumerate(shapes) if shape not in shapes[:k]]
    values = [known for k, known in enumerate(values) if not any(_all_same(known, other) for other in values[:k])]
    by_value = [_by_shape([compile(shape, known) for shape in shapes]) for known in values]
    different = [name for name, array in values[0].items() if not all(_same(known[name], array) for known in values)]
    if not different:
        return by_value[0]
    picking = [[TensorInfo(name, known[name].shape, known[name].dtype) for name in different] for known in values]
    for name, *infos in zip(different, *picking, strict=True):
        if len({*infos}) > 1:
            raise UnsupportedError(
                f"values of '{name}' of different types: {', '.join(map(str, infos))}; compile a model for each type"
            )
    inputs = [*picking[0], *_joined([model.inputs for model in by_value])]
    made: dict[Key, Model] = {
        tuple(known[name].tobytes() for name in different): model for known, model in zip(values, by_value, strict=True)
    }
    return Variants(by_value[0].name, inputs, _joined([m.outputs for m in by_value]), different, None, made).model()


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Whether values are the same to the last bit, and of one type."""
    return (one.shape, one.dtype, one.tobytes()) == (other.shape, other.dtype, other.tobytes())


def _all_same(ones: Values, others: Values) -> bool:
    return ones.keys() == others.keys() and all(_same(array, others[name]) for name, array in ones.items())


def programs_in(model: Model) -> int:
    """How many programs one that was compiled so consists of: those with equal shapes and values are one."""
    if not isinstance(model.artifact, Variants):
        return 1
    return sum(programs_in(choice.model) for choice in model.artifact.choices)


def _by_shape(models: Sequence[Model]) -> Model:
    """One model of several with different shapes of inputs."""
    if len(models) == 1:
        return models[0]
    for info in (info for model in models for info in model.inputs):
        if info.dtype == OBJECTS or not is_static(info.shape):
            raise UnsupportedError(
                f"input {info}: where shapes pick one of several programs, each is for tensors of known sizes; "
                "give the shapes of all inputs, or compile a model for each"
            )
    made: dict[Key, Model] = {tuple(tuple(map(int, i.shape)) for i in model.inputs): model for model in models}
    if len(made) == 1:
        return models[0]
    sides = _joined([model.inputs for model in models]), _joined([model.outputs for model in models])
    return Variants(models[0].name, *sides, (), None, made).model()


def _joined(sides: Sequence[Sequence[TensorInfo]]) -> list[TensorInfo]:
    """Inputs or outputs of all programs: a size in which they differ is open."""
    return [_joined_info(infos) for infos in zip(*sides, strict=True)]


def _joined_info(infos: Sequence[TensorInfo]) -> TensorInfo:
    first, ranks = infos[0], {len(info.shape) for info in infos}
    if len({*infos}) == 1:
        return first
    if len(ranks) > 1 or first.dtype == OBJECTS:
        return told(first.name, Plain(first.dtype, None) if first.dtype != OBJECTS else form_of(first))
    sizes = [{*of_axis} for of_axis in zip(*(info.shape for info in infos), strict=True)]
    stem = identifier(first.name)
    shape = [size.pop() if len(size) == 1 else Dim.symbol(f"{stem}_{axis}") for axis, size in enumerate(sizes)]
    return TensorInfo(first.name, tuple(shape), first.dtype)
