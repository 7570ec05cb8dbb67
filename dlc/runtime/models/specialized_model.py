"""Models with several programs: each serves calls with certain values, structures or sizes of the inputs.

    y = ReduceSum(x, axes)      called with axes = [0]: the specialization y = ReduceSum(x, [0]), a program of x alone
    y = x[2:5]                  one program for N >= 5 rows, and one for each of fewer rows

Inputs whose values determine shapes (axes, repeats, a condition) are constants of a specialization; it takes the other inputs.
Lists and optional inputs select a specialization by their structure. Such a specialization may be specialized itself for more
values or for sizes. Saving writes all specializations compiled so far.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import TensorInfo
from dlc.errors import ShapeError, UnsupportedError
from dlc.runtime.models.io_conversion import StructuredModel, shapes_of
from dlc.runtime.models.model import Model
from dlc.runtime.models.specializations import Specialization, Specializations
from dlc.runtime.program.size_binding import OutOfDomainError
from dlc.runtime.saving.container import SectionWriter
from dlc.runtime.saving.header.program import guard_from_json, guard_to_json, ranges_from_json, ranges_to_json
from dlc.runtime.saving.header.value_types import shapes_from_json, value_info_from_json, value_info_to_json
from dlc.runtime.saving.header.values import text
from dlc.runtime.saving.variant_table import AxisRange, Conditions, InputCondition, ModelVariant, variant_image_field
from dlc.shapes.dims import Dim, is_static, is_symbol, substitute
from dlc.shapes.domain import SizeDomain
from dlc.shapes.input_sizes import InputSizes, bind_sizes
from dlc.shapes.ranges import SizeRange, require_in_range
from dlc.value_types import OBJECT_DTYPE, ValueShapes, is_call_dependent

# For each key input, its value as bytes, or its shapes.
Key: TypeAlias = "tuple[bytes | ValueShapes, ...]"

# The maximum number of specializations in error messages.
_MAX_LISTED_SPECIALIZATIONS = 8


@dataclass(frozen=True)
class ModelCall:
    """The facts about a call for which a specialization is compiled.

    Attributes:
        values: The values of the inputs that determine shapes.
        shapes: The shapes of the other inputs on which the specialization depends.
        sizes: The sizes of symbols.
    """

    values: Mapping[str, NDArray[Any]]
    shapes: Mapping[str, ValueShapes]
    sizes: Mapping[str, int]


# Compiles a specialization for a call.
Build: TypeAlias = "Callable[[ModelCall], Specialization[Model]]"
# Computes the data-dependent sizes of a call.
ComputeSizes: TypeAlias = "Callable[[Sequence[Any]], Mapping[str, int]]"


@dataclass
class SpecializedModel:
    """The specializations of the model `name`, as the artifact of the model that users call.

    Attributes:
        values: The inputs whose values select a specialization.
        build: Compiles missing specializations; without it, only the `entries` exist.
        data_dependent_sizes: Data-dependent sizes that select a specialization. Programs check them when they run.
        compute_sizes: Computes these sizes, to compile a specialization for them.
        advice: Tells users how to reduce the number of compilations.
        reason: Why no single program serves all calls, if known.
    """

    name: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    build: Build | None = None
    values: tuple[str, ...] = ()
    entries: Sequence[Specialization[Model]] = ()
    ranges: Mapping[str, SizeRange] = field(default_factory=dict[str, SizeRange])
    data_dependent_sizes: tuple[str, ...] = ()
    compute_sizes: ComputeSizes | None = None
    advice: str = "give the values or shapes of its inputs when it is compiled (input_values, input_shapes)"
    reason: str | None = None

    def __post_init__(self) -> None:
        self.specializations = Specializations(self.name, self.advice, self.entries)
        by_value = [info for info in self.inputs if info.name in self.values]
        by_structure = by_value or [info for info in self.inputs if is_call_dependent(info)]
        tensors = [info for info in self.inputs if info.dtype != OBJECT_DTYPE]
        self._input_sizes = InputSizes(() if by_structure else tensors)
        self._tensor_positions = [k for k, info in enumerate(self.inputs) if info.dtype != OBJECT_DTYPE]
        known = {*self._input_sizes.symbols}
        # Guards cannot express a size that is not determined by axes, nor a rank.
        self._key_inputs = by_structure or [
            info
            for info in self.inputs
            if info.dtype == OBJECT_DTYPE or not all(Dim.lift(s).symbols() <= known for s in info.shape)
        ]

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols whose sizes select a specialization."""
        return (*self._input_sizes.symbols, *self.data_dependent_sizes)

    def model(self, *, takes_device_arrays: bool = False) -> Model:
        """Return the model that users call."""
        options: dict[str, Any] = {"values": self.values, "takes_device_arrays": takes_device_arrays}
        model_class = StructuredModel if any(info.dtype == OBJECT_DTYPE for info in self.inputs) else Model
        return model_class(self.inputs, self.outputs, self.run, self.name, self, **options)

    def add(self, model: Model, values: Mapping[str, NDArray[Any]] | None = None) -> None:
        """Add a model that serves these values of inputs, or the static shapes of its inputs."""
        shapes = {info.name: info.shape for info in model.inputs}
        key = tuple(values[i.name].tobytes() if values else shapes[i.name] for i in self._key_inputs)
        sizes: dict[str, int] = {}
        for info in self.inputs if self.symbols else ():
            if info.dtype != OBJECT_DTYPE:
                bind_sizes(info.shape, list(map(int, shapes[info.name])), sizes)
        self.specializations.add(Specialization(model, SizeDomain.of_sizes(sizes), key))

    def run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Return the outputs for checked inputs; compile a specialization if there is none.

        Raises ShapeError for a size outside of its range, or one that the program does not support. If there is no
        specialization and none can be compiled, raises ShapeError if sizes violate a guard, and UnsupportedError otherwise.
        """
        key, sizes = self._key_of(arrays), self._sizes_of(arrays)
        for info in self.inputs if self.ranges else ():
            require_in_range(f"input {info}", info.shape, sizes, self.ranges)
        call, rejected = (key, *sizes.values()), list[Specialization[Model]]()
        while (found := self.specializations.find(call, key, sizes, rejected)) is not None:
            try:
                return self._run(found, arrays)
            except OutOfDomainError:
                rejected.append(found)
        if self.compute_sizes is not None:
            sizes = {**sizes, **self.compute_sizes(arrays)}
        compiled = self._compile(call, key, sizes, rejected)
        try:
            return self._run(compiled, arrays)
        except OutOfDomainError as error:
            raise ShapeError(
                f"{self.name}: a data-dependent size takes several values in one call, and no specialization holds for all "
                f"of them: {error}"
            ) from error

    def select(self, arrays: Sequence[Any]) -> tuple[Model, Sequence[Any]]:
        """Run on checked inputs; return the program that served them, and its inputs. Raises what `run` raises."""
        self.run(arrays)
        found = self.specializations.recent((self._key_of(arrays), *self._sizes_of(arrays).values()))
        assert found is not None, "the specialization that was used last is cached"
        return found.program, self._program_inputs(found.program, arrays)

    def serialize(self, writer: SectionWriter, defaults: Mapping[str, NDArray[Any]], /) -> dict[str, Any]:
        """Write the sections and return the header fields; raise UnsupportedError if nothing has been compiled yet.

        Without Python, the first specialization is used whose conditions on the inputs hold.
        """
        if self.is_empty:
            option = "input_values" if self.values else "input_shapes"
            reason = "" if self.reason is None else f" ({self.reason})"
            raise UnsupportedError(
                f"{self.name}: it is specialized for {self.key_text} at run time{reason}, and was not called yet: call it with "
                f"all that the file should support, or set them with {option}; inputs: {self.inputs_text}"
            )
        entries = self._nonempty_entries
        headers = [entry.program.serialize(writer, _select_defaults(entry.program, defaults)) for entry in entries]
        written = [
            [_key_to_json(entry.key), _domain_to_json(entry.domain), entry.is_guaranteed, header]
            for entry, header in zip(entries, headers, strict=True)
        ]
        fields = {
            "specializations": written,
            "name": self.name,
            "inputs": list(map(value_info_to_json, self.inputs)),
            "outputs": list(map(value_info_to_json, self.outputs)),
            "values": self.values,
            "ranges": ranges_to_json(self.ranges),
            "data_dependent_sizes": self.data_dependent_sizes,
        }
        header_of = dict(zip(map(id, entries), headers, strict=True))
        return fields | variant_image_field(writer, [(c, header_of[id(entry)]) for entry, c in self._native_entries])

    @staticmethod
    def read(fields: Mapping[str, Any], read_model: Callable[[Mapping[str, Any]], Model]) -> SpecializedModel:
        """Read from header fields; `read_model` reads one of the models. Raises what Artifact.read raises."""
        inputs, outputs = (tuple(map(value_info_from_json, fields[key])) for key in ("inputs", "outputs"))
        names, values = {info.name for info in inputs}, tuple(map(text, fields["values"]))
        if not names.issuperset(values):
            raise ValueError(f"not all of {values} are inputs")
        entries = [
            Specialization(read_model(header), _domain_from_json(domain), _key_from_json(key), bool(is_guaranteed))
            for key, domain, is_guaranteed, header in fields["specializations"]
        ]
        specialized = SpecializedModel(
            text(fields["name"]),
            inputs,
            outputs,
            values=values,
            entries=entries,
            ranges=ranges_from_json(fields["ranges"]),
            data_dependent_sizes=tuple(map(text, fields["data_dependent_sizes"])),
        )
        for entry in entries:
            specialized._validate(entry)
        return specialized

    def _validate(self, entry: Specialization[Model]) -> None:
        """Raise ValueError for a specialization of another model."""
        key: Any = entry.key
        infos, names = self._key_inputs, {info.name for info in self.inputs}
        if [isinstance(part, bytes) for part in key] != [info.name in self.values for info in infos]:
            raise ValueError("a specialization with another key")
        for content, info in zip(key, infos, strict=True):
            if isinstance(content, bytes):
                _value(info, content)
        if entry.is_guaranteed and not entry.domain.symbols.issubset(self.symbols):
            raise ValueError("a domain with other symbols")
        infos = entry.program.inputs
        if not names.issuperset(i.name for i in infos) or len(entry.program.outputs) != len(self.outputs):
            raise ValueError("a specialization with other inputs or outputs")

    @property
    def is_empty(self) -> bool:
        """Return whether nothing has been compiled yet."""
        return not self._nonempty_entries

    @property
    def choices(self) -> list[ModelVariant]:
        """The models that run without Python, with their conditions; the first one whose conditions hold is used.

        Conditions express values, structures, static sizes, and ranges of the sizes of axes.
        """
        return [ModelVariant(entry.program, conditions) for entry, conditions in self._native_entries]

    @property
    def _native_entries(self) -> list[tuple[Specialization[Model], Conditions]]:
        exact, general = list[Specialization[Model]](), list[Specialization[Model]]()
        for entry in self._nonempty_entries:
            if not entry.domain.static_sizes.keys() >= {*self.symbols}:
                general.append(entry)
            elif entry.is_guaranteed:
                exact.append(entry)
        return [(entry, self._conditions(entry)) for entry in (*exact, *general)]

    @property
    def inputs_text(self) -> str:
        """The inputs as text."""
        return ", ".join(map(str, self.inputs))

    @property
    def key_text(self) -> str:
        """Format the values, structures or sizes that select a specialization."""
        if self.data_dependent_sizes:
            return f"the data-dependent sizes {', '.join(self.data_dependent_sizes)}"
        names = ", ".join(f"'{info.name}'" for info in self._key_inputs)
        if self.values:
            return f"the values of {names}"
        return f"the structure of {names}" if any(map(is_call_dependent, self._key_inputs)) else "the shapes of its inputs"

    @property
    def _nonempty_entries(self) -> list[Specialization[Model]]:
        return [entry for entry in self.specializations.entries if not _is_empty(entry.program)]

    def _compile(
        self, call: Hashable, key: Key, sizes: Mapping[str, int], rejected: Sequence[Specialization[Model]]
    ) -> Specialization[Model]:
        by_name = dict(zip((info.name for info in self._key_inputs), key, strict=True))
        infos = {info.name: info for info in self.inputs}
        values = {name: _value(infos[name], data) for name, data in by_name.items() if isinstance(data, bytes)}
        shapes = {name: shape for name, shape in by_name.items() if not isinstance(shape, bytes)}
        if sizes:
            shapes |= {
                info.name: tuple(int(substitute(size, sizes)) for size in info.shape)
                for info in self.inputs
                if info.name not in by_name and not is_static(info.shape)
            }
        description = self._describe(key) | {symbol: str(size) for symbol, size in sizes.items()}

        def build() -> Specialization[Model]:
            if self.build is None:
                raise self._missing(key, sizes)
            return self.build(ModelCall(values, shapes, sizes))

        return self.specializations.compile(call, key, sizes, build, description, rejected)

    def _run(self, specialization: Specialization[Model], arrays: Sequence[Any]) -> Sequence[Any]:
        return specialization.program.check_and_run(self._program_inputs(specialization.program, arrays))

    def _program_inputs(self, program: Model, arrays: Sequence[Any]) -> Sequence[Any]:
        """Return the inputs of a specialization, which has none for values that are constants of it."""
        if len(program.inputs) == len(self.inputs):
            return arrays
        by_name = {info.name: array for info, array in zip(self.inputs, arrays, strict=True)}
        return [by_name[info.name] for info in program.inputs]

    def _missing(self, key: Key, sizes: Mapping[str, int]) -> ShapeError | UnsupportedError:
        """Return the error about a call that no specialization of a file serves: a ShapeError if its sizes violate a guard."""
        available = [self._format(entry) for entry in self._nonempty_entries]
        more = len(available) - _MAX_LISTED_SPECIALIZATIONS
        violation = self.specializations.violation(key, sizes)
        requested = ", ".join([*map(str, self._key_conditions(key)), *(f"{symbol} = {size}" for symbol, size in sizes.items())])
        return (UnsupportedError if violation is None else ShapeError)(
            f"{self.name}: not compiled for {requested or self.key_text + ' of this call'}; inputs: {self.inputs_text}; "
            f"the file holds {'; '.join(available[:_MAX_LISTED_SPECIALIZATIONS])}{f' and {more} more' if more > 0 else ''}"
            f"{'' if violation is None else f' ({violation})'}. Call the original model with these too, and save it again"
        )

    def _key_of(self, arrays: Sequence[Any]) -> Key:
        if not self._key_inputs:
            return ()
        by_name = {info.name: array for info, array in zip(self.inputs, arrays, strict=True)}
        return tuple(
            np.asarray(by_name[info.name]).tobytes() if info.name in self.values else shapes_of(by_name[info.name])
            for info in self._key_inputs
        )

    def _sizes_of(self, arrays: Sequence[Any]) -> dict[str, int]:
        symbols = self._input_sizes.symbols
        if not symbols:
            return {}
        shapes = [arrays[k].shape for k in self._tensor_positions]
        return dict(zip(symbols, self._input_sizes.of(shapes), strict=True))

    def _conditions(self, entry: Specialization[Model]) -> Conditions:
        """Return the conditions on the inputs that select a specialization."""
        static, keyed = entry.domain.static_sizes, {info.name for info in self._key_inputs}
        infos, determined = list[TensorInfo](), set[str]()
        for info in self.inputs:
            # The shapes of inputs without further symbols follow from those of earlier ones.
            if (
                info.name not in keyed
                and not (symbols := {str(s) for size in info.shape for s in Dim.lift(size).symbols()}) <= determined
            ):
                infos.append(info)
                determined |= symbols & {str(size) for size in info.shape}
        shapes = [(info.name, tuple(substitute(size, static) for size in info.shape)) for info in infos]
        key: Any = entry.key
        return (
            *self._key_conditions(key),
            *(InputCondition(name, tuple(map(int, shape)), str([*shape])) for name, shape in shapes if is_static(shape)),
            *(
                InputCondition(info.name, AxisRange(axis, r.low, r.high), f"{size} in {r}")
                for info, (_, shape) in zip(infos, shapes, strict=True)
                for axis, size in enumerate(info.shape)
                if not is_static(shape) and is_symbol(size) and (r := entry.domain.ranges.get(str(size))) is not None
            ),
        )

    def _key_conditions(self, key: Key) -> Conditions:
        # Static shapes select nothing.
        texts, pairs = self._describe(key), zip(self._key_inputs, key, strict=True)
        return tuple(
            InputCondition(info.name, condition, texts[info.name])  # pyright: ignore[reportArgumentType]
            for info, condition in pairs
            if isinstance(condition, bytes) or info.dtype == OBJECT_DTYPE or not is_static(info.shape)
        )

    def _describe(self, key: Key) -> dict[str, str]:
        return {
            info.name: str(_value(info, part).tolist()) if isinstance(part, bytes) else _format_shapes(part)
            for info, part in zip(self._key_inputs, key, strict=True)
        }

    def _format(self, entry: Specialization[Model]) -> str:
        key: Any = entry.key
        domain = [str(entry.domain)] if not entry.domain.is_unrestricted else []
        return ", ".join([*map(str, self._key_conditions(key)), *domain])


def _is_empty(model: Model) -> bool:
    return isinstance(model.artifact, SpecializedModel) and model.artifact.is_empty


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


def _key_to_json(key: Any) -> list[Any]:
    return [part.hex() if isinstance(part, bytes) else part for part in key]


def _key_from_json(written: Sequence[Any]) -> Key:
    return tuple(bytes.fromhex(part) if isinstance(part, str) else shapes_from_json(part) for part in written)


def _domain_to_json(domain: SizeDomain) -> list[Any]:
    return [ranges_to_json(domain.ranges), *(list(map(guard_to_json, group)) for group in (domain.guards, domain.requirements))]


def _domain_from_json(written: Any) -> SizeDomain:
    ranges, guards, requirements = written
    return SizeDomain(ranges_from_json(ranges), *(tuple(map(guard_from_json, group)) for group in (guards, requirements)))
