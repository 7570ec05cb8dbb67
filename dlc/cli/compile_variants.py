"""Models with one program for each of several input shapes or values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.cli.shape_options import Shapes
from dlc.errors import UnsupportedError
from dlc.runtime.models.model import Model
from dlc.runtime.models.specialized_model import SpecializedModel
from dlc.shapes.dims import Dim, is_static
from dlc.shapes.parsing import identifier
from dlc.value_types import OBJECT_DTYPE, TensorValueType, value_info, value_type_of

Values: TypeAlias = "Mapping[str, NDArray[Any]]"
# Compiles a model for shapes and values of inputs.
Compile: TypeAlias = "Callable[[Shapes, Values], Model]"


def compile_variants(compile: Compile, shapes: Sequence[Shapes], values: Sequence[Values]) -> Model:
    """Compile a model for each combination of shapes and values; return one model that selects among the programs.

    Raises UnsupportedError if the inputs of a call cannot select a program, and any error of `compile`.
    """
    # Duplicates are compiled once.
    shapes = [shape for k, shape in enumerate(shapes) if shape not in shapes[:k]]
    values = [
        constants for k, constants in enumerate(values) if not any(_are_identical(constants, other) for other in values[:k])
    ]
    models_by_value = [_shape_variants([compile(shape, constants) for shape in shapes]) for constants in values]
    varying_names = [
        name for name, array in values[0].items() if not all(_is_identical(constants[name], array) for constants in values)
    ]
    if not varying_names:
        return models_by_value[0]
    selector_infos = [
        [TensorInfo(name, constants[name].shape, constants[name].dtype) for name in varying_names] for constants in values
    ]
    for name, *infos in zip(varying_names, *selector_infos, strict=True):
        if len({*infos}) > 1:
            raise UnsupportedError(
                f"input '{name}': expected values of one dtype and shape, got {', '.join(map(str, infos))}; compile one model "
                "for each"
            )
    inputs = [*selector_infos[0], *_merge_infos([model.inputs for model in models_by_value])]
    outputs = _merge_infos([model.outputs for model in models_by_value])
    specialized = SpecializedModel(models_by_value[0].name, tuple(inputs), outputs, values=tuple(varying_names))
    for constants, model in zip(values, models_by_value, strict=True):
        specialized.add(model, constants)
    return specialized.model()


def _is_identical(left: NDArray[Any], right: NDArray[Any]) -> bool:
    """Return whether two arrays are bitwise equal and have the same dtype and shape."""
    return (left.shape, left.dtype, left.tobytes()) == (right.shape, right.dtype, right.tobytes())


def _are_identical(left: Values, right: Values) -> bool:
    return left.keys() == right.keys() and all(_is_identical(array, right[name]) for name, array in left.items())


def count_programs(model: Model) -> int:
    """Return the number of programs of a model from `compile_variants`; duplicates count once."""
    if not isinstance(model.artifact, SpecializedModel):
        return 1
    return sum(count_programs(choice.model) for choice in model.artifact.choices)


def _shape_variants(models: Sequence[Model]) -> Model:
    """Return one model that selects among models with different input shapes."""
    if len(models) == 1:
        return models[0]
    for info in (info for model in models for info in model.inputs):
        if info.dtype == OBJECT_DTYPE or not is_static(info.shape):
            raise UnsupportedError(
                f"input {info}: programs selected by shape need static shapes; give --shape for all inputs, or compile one "
                "model per shape"
            )
    model_by_shapes = {tuple(info.shape for info in model.inputs): model for model in models}
    if len(model_by_shapes) == 1:
        return models[0]
    signature = _merge_infos([model.inputs for model in models]), _merge_infos([model.outputs for model in models])
    specialized = SpecializedModel(models[0].name, *signature)
    for model in model_by_shapes.values():
        specialized.add(model)
    return specialized.model()


def _merge_infos(signatures: Sequence[Sequence[TensorInfo]]) -> tuple[TensorInfo, ...]:
    """Merge the inputs or outputs of all programs; a size that differs becomes a symbolic dimension."""
    return tuple(_merge_info(infos) for infos in zip(*signatures, strict=True))


def _merge_info(infos: Sequence[TensorInfo]) -> TensorInfo:
    first, ranks = infos[0], {len(info.shape) for info in infos}
    if len({*infos}) == 1:
        return first
    if len(ranks) > 1 or first.dtype == OBJECT_DTYPE:
        return value_info(
            first.name, TensorValueType(first.dtype, None) if first.dtype != OBJECT_DTYPE else value_type_of(first)
        )
    size_sets = [{*axis_sizes} for axis_sizes in zip(*(info.shape for info in infos), strict=True)]
    stem = identifier(first.name)
    shape = [sizes.pop() if len(sizes) == 1 else Dim.symbol(f"{stem}_{axis}") for axis, sizes in enumerate(size_sets)]
    return TensorInfo(first.name, tuple(shape), first.dtype)
