"""Models that are imported at run time: one variant for each set of values, or of shapes, of some inputs.

    y = ReduceSum(x, axes)      called with axes = [0]: the variant y = ReduceSum(x, [0]), a program of x alone

Inputs whose values determine shapes (axes, repeats, a condition) are constants of a variant; it takes the other inputs. Models
without such inputs have a variant per set of shapes: of lists and optionals, or of all inputs. A variant may have variants
itself: after an input has selected a branch, the branch may depend on further inputs. Saving writes all variants compiled so
far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.dims import is_static
from dlc.errors import UnsupportedError
from dlc.runtime.models.io_conversion import StructuredModel, shapes_of
from dlc.runtime.models.lru_cache import LRUCache
from dlc.runtime.models.model import Model
from dlc.runtime.models.recompilations import Recompilations
from dlc.runtime.saving.container import SectionWriter
from dlc.runtime.saving.header.value_types import shapes_from_json, value_info_from_json, value_info_to_json
from dlc.runtime.saving.header.values import text
from dlc.runtime.saving.variant_table import Conditions, InputCondition, ModelVariant, variant_image_field
from dlc.value_types import OBJECT_DTYPE, ValueShapes, is_call_dependent

Shapes: TypeAlias = "Mapping[str, Any]"  # ValueShapes by input name.
Values: TypeAlias = "Mapping[str, NDArray[Any]]"
# The values of the key inputs, as bytes, or their shapes.
Key: TypeAlias = "tuple[bytes, ...] | tuple[ValueShapes, ...]"
# Compiles the model for shapes, or for values, of the key inputs.
Compile: TypeAlias = "Callable[[Shapes, Values], Model]"

# The maximum number of variants in error messages.
_MAX_LISTED_VARIANTS = 8


class Variants:
    """The variants of the model `name`. `compile` compiles missing variants; without it, only `entries` exist."""

    def __init__(
        self,
        name: str,
        inputs: Sequence[TensorInfo],
        outputs: Sequence[TensorInfo],
        values: Sequence[str],
        compile: Compile | None,
        entries: Mapping[Key, Model] | None = None,
    ) -> None:
        self.name = name
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.values = tuple(values)
        call_dependent = [info for info in inputs if is_call_dependent(info)]
        self._key_inputs = [info for info in inputs if info.name in values] or call_dependent or list(inputs)
        self._compile = compile
        advice = f"it is specialized for {self.key_text}; set those that do not change when compiling"
        recompilations = Recompilations(name, advice) if compile is not None else None
        self._cache = LRUCache[Key](self._compile_variant, entries, recompilations=recompilations, describe=self._describe)

    def model(self, *, takes_device_arrays: bool = False) -> Model:
        """Return the model that users call."""
        options: dict[str, Any] = {"values": self.values, "takes_device_arrays": takes_device_arrays}
        model_class = StructuredModel if any(info.dtype == OBJECT_DTYPE for info in self.inputs) else Model
        return model_class(self.inputs, self.outputs, self.run, self.name, self, **options)

    def run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Return the outputs for checked inputs.

        Raises UnsupportedError if there is no variant for these values or shapes and none can be compiled.
        """
        by_name = {info.name: array for info, array in zip(self.inputs, arrays, strict=True)}
        if self.values:
            variant = self._cache[tuple(np.asarray(by_name[info.name]).tobytes() for info in self._key_inputs)]
        else:
            variant = self._cache[tuple(shapes_of(by_name[info.name]) for info in self._key_inputs)]
        return variant.check_and_run([by_name[info.name] for info in variant.inputs])

    def serialize(self, writer: SectionWriter, defaults: Mapping[str, NDArray[Any]], /) -> dict[str, Any]:
        """Write the sections and return the header fields. Raises UnsupportedError if no variant has been compiled yet."""
        entries = self._cache.entries
        if not entries:
            raise UnsupportedError(
                f"{self.name}: it is specialized for {self.key_text} at run time, and was not called yet: call it with all "
                f"that the file should support, or set them with {'input_values' if self.values else 'input_shapes'}"
            )
        keys = [[k.hex() if isinstance(k, bytes) else k for k in key] for key in entries]
        variants = [model.serialize(writer, _select_defaults(model, defaults)) for model in entries.values()]
        fields = {
            "name": self.name,
            "inputs": list(map(value_info_to_json, self.inputs)),
            "outputs": list(map(value_info_to_json, self.outputs)),
            "values": self.values,
            "variants": [list(pair) for pair in zip(keys, variants, strict=True)],
        }
        return fields | variant_image_field(writer, list(zip(map(self._conditions, entries), variants, strict=True)))

    @property
    def choices(self) -> list[ModelVariant]:
        """The variants with their conditions."""
        return [ModelVariant(model, self._conditions(key)) for key, model in self._cache.entries.items()]

    @staticmethod
    def read(fields: Mapping[str, Any], model: Callable[[Mapping[str, Any]], Model]) -> Variants:
        """Read variants from header fields; `model` reads one.

        Raises what Artifact.read raises.
        """
        inputs, outputs = (tuple(map(value_info_from_json, fields[key])) for key in ("inputs", "outputs"))
        names, values = {info.name for info in inputs}, tuple(map(text, fields["values"]))
        if not names.issuperset(values):
            raise ValueError(f"not all of {values} are inputs")
        entries: dict[Key, Model] = {}
        for key_fields, variant in fields["variants"]:
            key = tuple(map(bytes.fromhex, key_fields)) if values else tuple(map(shapes_from_json, key_fields))
            entries[key] = model(variant)
            if not names.issuperset(info.name for info in entries[key].inputs) or len(entries[key].outputs) != len(outputs):
                raise ValueError("a variant with other inputs or outputs")
        return Variants(text(fields["name"]), inputs, outputs, values, None, entries)

    @property
    def key_text(self) -> str:
        """Return the key of a variant as text."""
        names = ", ".join(f"'{info.name}'" for info in self._key_inputs)
        if len(self._key_inputs) == len(self.inputs) and not self.values:
            return "the shapes of its inputs"
        return f"the values of {names}" if self.values else f"the structure of {names}"

    def _compile_variant(self, key: Any) -> Model:
        if self._compile is None:
            available = [self._shown(key) for key in self._cache.entries]
            more = f" and {len(available) - _MAX_LISTED_VARIANTS} more" if len(available) > _MAX_LISTED_VARIANTS else ""
            raise UnsupportedError(
                f"{self.name}: no variant for {self._shown(key)}; it is specialized for {self.key_text}, and the file holds "
                f"{'; '.join(available[:_MAX_LISTED_VARIANTS])}{more}. "
                "Call the original model with these too, and save it again"
            )
        if self.values:
            return self._compile({}, {info.name: _value(info, data) for info, data in self._pairs(key)})
        return self._compile({info.name: shapes for info, shapes in self._pairs(key)}, {})

    def _pairs(self, key: Any) -> list[tuple[TensorInfo, Any]]:
        return list(zip(self._key_inputs, key, strict=True))

    def _conditions(self, key: Key) -> Conditions:
        """Return the conditions under which a call uses a variant: values or shapes of the key inputs."""
        texts = self._describe(key)
        # Static shapes select nothing.
        pairs = [p for p in self._pairs(key) if self.values or p[0].dtype == OBJECT_DTYPE or not is_static(p[0].shape)]
        return tuple(InputCondition(info.name, condition, texts[info.name]) for info, condition in pairs)

    def _describe(self, key: Any) -> dict[str, str]:
        if self.values:
            return {info.name: str(_value(info, data).tolist()) for info, data in self._pairs(key)}
        return {info.name: _format_shapes(shapes) for info, shapes in self._pairs(key)}

    def _shown(self, key: Any) -> str:
        return ", ".join(map(str, self._conditions(key)))


def _select_defaults(model: Model, defaults: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the defaults of a model's inputs."""
    names = {info.name for info in model.inputs}
    return {name: array for name, array in defaults.items() if name in names}


def _format_shapes(shapes: ValueShapes) -> str:
    """Format shapes as text: [2, 3], or a nested list for the shapes of a list."""
    if shapes is None:
        return "None"
    return f"[{', '.join(str(inner) if isinstance(inner, int) else _format_shapes(inner) for inner in shapes)}]"


def _value(info: TensorInfo, data: bytes) -> NDArray[Any]:
    # Only inputs with static shapes are used as key inputs by value.
    return np.frombuffer(data, info.dtype).reshape([int(size) for size in info.shape])
