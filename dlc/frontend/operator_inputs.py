"""The inputs of one operator, as converters read them: values, and integers that must be constant."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from dlc.dialects import dl
from dlc.dialects.dl.base import Array, normalized_axes
from dlc.errors import ModelError
from dlc.frontend.emitter import Emitter, ImportedValue
from dlc.frontend.problems import NodeProblem
from dlc.frontend.shape_tensors import ComputedElement, may_be_shape_tensor, shape_tensor_elements
from dlc.shapes.dims import Dim, Size, is_nonnegative, product
from dlc.shapes.reshapes import inferred_size


class OperatorInputs:
    """The inputs of the operator `description`: `node[0]` is the first one; `names` are the names of the inputs."""

    def __init__(self, description: str, inputs: Sequence[ImportedValue | None], names: Sequence[str], emit: Emitter) -> None:
        self.description, self.inputs, self.emit = description, inputs, emit
        self._names = names

    def __getitem__(self, k: int) -> ImportedValue:
        """Return a required input."""
        value = self.get(k)
        if value is None:
            raise ModelError(f"{self.description}: input {k} is missing; it has {len(self.inputs)}")
        return value

    def get(self, k: int) -> ImportedValue | None:
        """Return an optional input."""
        return self.inputs[k] if k < len(self.inputs) else None

    def constant_input(self, k: int, value_name: str) -> Array:
        """Return the elements of an input that must be constant."""
        value = self[k]
        if value.constant_value is None:
            raise NodeProblem(
                "value",
                f"its {value_name} (input '{self._names[k]}') is computed from data or from symbolic sizes; "
                "give the model's input shapes, or make it a constant",
                (value,),
            )
        return value.constant_value

    def sizes(self, k: int, value_name: str) -> tuple[Size, ...]:
        """Return the sizes, axes or bounds that a constant integer input holds."""
        return tuple(s if isinstance(s, Dim) else int(s) for s in self.constant_input(k, value_name).reshape(-1))

    def elements(self, k: int, value_name: str) -> tuple[Size | ComputedElement, ...]:
        """Return the sizes, axes or bounds that an integer input holds; those computed at run time as ComputedElement."""
        value = self[k]
        if value.ssa is None or not may_be_shape_tensor(value.ssa):
            return self.sizes(k, value_name)
        return tuple(shape_tensor_elements(value.ssa).flat)

    def runtime_sizes(self, k: int, value_name: str) -> tuple[Size, ...]:
        """Return the sizes that an integer input holds; those computed from data become data-dependent sizes.

        A negative size is an error at run time.
        """
        emit, elements = self.emit, self.elements(k, value_name)
        for element in elements:
            if isinstance(element, ComputedElement) or (emit.is_data_dependent(element) and not is_nonnegative(element)):
                number = emit.size_scalar(element)
                is_valid = emit(dl.GreaterEqualOp, number, emit.scalar(0, number))
                emit.require(is_valid, f"{self.description}: negative size {{}} in its {value_name}", number)
        return tuple(map(emit.as_size, elements))

    def complete_shape(self, shape: Sequence[Size], target: Sequence[Size]) -> tuple[Size, ...]:
        """Return the target shape of a reshape with the size that -1 stands for.

        Raises ModelError for several -1, and if the elements do not fill the other sizes.
        """
        if target.count(-1) > 1:
            raise ModelError(f"{self.description}: the shape {[*target]} has more than one -1")
        if -1 not in target:
            return tuple(target)
        comparisons = (partial(compare, origin=self.description) for compare in (self.emit.is_less, self.emit.are_different))
        inferred = inferred_size(shape, target, *comparisons)
        if inferred is None:
            raise ModelError(f"{self.description}: {product(shape)} elements do not fill the shape {[*target]}")
        return tuple(inferred if size == -1 else size for size in target)

    def constant_integers(self, k: int, value_name: str) -> tuple[int, ...]:
        """Return the elements of a constant integer input without symbolic sizes."""
        entries = self.sizes(k, value_name)
        if any(isinstance(e, Dim) for e in entries):
            raise NodeProblem("value", f"its {value_name} {list(entries)} depends on symbolic sizes; give the input shapes")
        return tuple(e for e in entries if isinstance(e, int))

    def axis(self, axis: int, rank: int) -> int:
        """Return an axis counted from the front."""
        return normalized_axes(None, [axis], rank)[0]
