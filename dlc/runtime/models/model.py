"""The model class: arrays in by name or position, arrays out by name, on any target."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from os import PathLike
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import Array, TensorInfo, require_unmasked, to_numpy
from dlc.errors import DeviceError, DlcError, DTypeError, ShapeError, UnsupportedError
from dlc.files.atomic_writes import to_path
from dlc.options import Options, thread_count
from dlc.runtime.cpu.code.native import reserve_pools
from dlc.runtime.cpu.direct_calls import DirectCalls
from dlc.runtime.opencl.array import DeviceArray
from dlc.runtime.requests.request_queue import RequestQueue
from dlc.runtime.requests.submittable import Submittable
from dlc.runtime.saving.container import Saveable, SectionWriter, require_no_other_file, save
from dlc.runtime.saving.header.arrays import array_to_json
from dlc.shapes.dims import is_static
from dlc.shapes.input_sizes import InputSizes, require_matching_inputs

# Runs the program on validated inputs, in order: NumPy arrays, or DeviceArrays on an OpenCL device.
Run = Callable[[Sequence[Any]], Sequence[Any]]
# Types that need no conversion.
_ARRAY_TYPES = frozenset[type]((np.ndarray, Array))


class ModelInspector(Protocol):
    """Inspects a model that was compiled in this process; this needs the compiler."""

    def page(self, inputs: Mapping[str, Any] | None) -> Any:
        """Return a report, measured on these inputs if there are any."""
        ...

    def profile(self, model: Model, inputs: Sequence[Any]) -> Any:
        """Profile a call with these inputs."""
        ...


class Model(Submittable):
    """A program with named inputs and outputs: `model(x=x)`, `model({"x": x})`, or `model(x)` in the order of the inputs.

    A call returns a dict from output names to arrays. Inputs may be anything that NumPy converts to an array; C-contiguous
    arrays are not copied. The dtype must match, except for Python scalars and lists, which are converted. `defaults` are the
    values of inputs that a call omits.
    """

    def __init__(
        self,
        inputs: Sequence[TensorInfo],
        outputs: Sequence[TensorInfo],
        run: Run,
        name: str = "model",
        artifact: Saveable | None = None,
        *,
        values: Sequence[str] = (),
        takes_device_arrays: bool = False,
    ) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.name = name
        # Runs the program on arrays, in order, without checking their shapes and dtypes.
        self.run_unchecked = run
        self.artifact = artifact
        # The model is specialized at run time for the values of these inputs.
        self.values = tuple(values)
        self._defaults: Mapping[str, NDArray[Any]] = {}
        # The requested number; None: one thread per usable processor.
        self.num_threads: int | None = None
        # The number of submitted calls that run at once.
        self.streams = 1
        # The processors on which the threads run; None: those of the process.
        self.cpus: frozenset[int] | None = None
        # Set for models that were compiled in this process.
        self.inspector: ModelInspector | None = None
        self._takes_device_arrays = takes_device_arrays
        self._names = dict.fromkeys(info.name for info in self.inputs)
        self._ordered = list(self._names)
        self._results = [info.name for info in self.outputs]
        self._symbolic_sizes = None if all(is_static(info.shape) for info in self.inputs) else InputSizes(self.inputs)
        self._shapes = [info.shape for info in self.inputs]
        self._dtypes = [info.dtype for info in self.inputs]
        # The direct call, which bypasses Python.
        self.direct_calls = DirectCalls(run)

    @property
    def defaults(self) -> Mapping[str, NDArray[Any]]:
        """The values of inputs that a call omits; read-only, since a program may overwrite its inputs."""
        return self._defaults

    @defaults.setter
    def defaults(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._set_defaults(arrays)

    def _set_defaults(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._defaults = {name: array.view() for name, array in arrays.items()}
        for array in self._defaults.values():
            array.flags.writeable = False

    def set_execution(self, options: Options) -> None:
        """Set the numbers of threads and streams, and the processors on which they run."""
        self.num_threads, self.streams, self.cpus = options.num_threads, options.streams, options.cpus

    def __call__(self, /, *arguments: Any, **named: Any) -> dict[str, Array | DeviceArray]:
        """Run the model and return its outputs; those of an OpenCL model stay on the device until they are read.

        Raises ShapeError or DTypeError, listing all inputs that do not fit, and DlcError for missing and unknown inputs.
        """
        in_order, values = True, arguments
        if named:
            in_order, values = [*named] == self._ordered, (*arguments, *named.values())
        elif arguments and type(arguments[0]) is dict:
            by_name = cast("dict[str, Any]", arguments[0])
            in_order, values = [*by_name] == self._ordered, (*by_name.values(), *arguments[1:])
        if in_order and (direct := self.direct_calls.call) is not None:
            results = direct(*values)
            if results is not None:
                return dict(zip(self._results, results, strict=True))
        arrays = self.checked(*arguments, **named)
        results = self.run_unchecked(arrays)
        if in_order:
            self.direct_calls.record(arrays)
        return dict(zip(self._results, map(as_result, results), strict=True))

    def _new_queue(self) -> RequestQueue:
        # Commands of a device are queued without waiting.
        num_threads = 1 if self._takes_device_arrays else thread_count(self.num_threads)
        reserve_pools(num_threads, self.streams, self.cpus)
        return RequestQueue(self, name=self.name, num_threads=num_threads, streams=self.streams, cpus=self.cpus)

    def checked(self, /, *arguments: Any, **named: Any) -> list[Any]:
        """Return the inputs of a call as checked arrays, in order."""
        inputs_by_name = self._by_name(arguments, named)
        arrays = [inputs_by_name[name] for name in self._names]
        if not _ARRAY_TYPES.issuperset(map(type, arrays)):
            arrays = [to_input_array(array, info) for array, info in zip(arrays, self.inputs, strict=True)]
            if not self._takes_device_arrays:
                for array, info in zip(arrays, self.inputs, strict=True):
                    require_on_cpu(array, f"input {info}")
        if not self._matches(arrays):
            require_matching_inputs(self.name, self.inputs, arrays)
        return arrays

    def explore(self, /, *arguments: Any, **named: Any) -> Any:
        """Return a report of the compiled program, measured on these inputs; notebooks display it, and `.save` writes it.

        Without inputs the report has no timings. The model is compiled again for it. Raises UnsupportedError for a loaded
        model, and for one that is not a single program.
        """
        if not arguments and not named and any(info.name not in self.defaults for info in self.inputs):
            return self._inspected().page(None)
        arrays = self.checked(*arguments, **named)
        return self._inspected().page({info.name: array for info, array in zip(self.inputs, arrays, strict=True)})

    def profile(self, /, *arguments: Any, **named: Any) -> Any:
        """Profile a call with these inputs: time per kernel, memory, and compilation time. The result prints, and converts to
        JSON.

        Raises UnsupportedError for a loaded model, and for one that does not run on a CPU.
        """
        return self._inspected().profile(self, self.checked(*arguments, **named))

    def _inspected(self) -> ModelInspector:
        if self.inspector is None:
            raise UnsupportedError(
                f"{self.name}: a loaded model cannot be inspected; use the result of dlc.compile_model, or "
                "`dlc bench FILE.dlc --kernels`"
            )
        return self.inspector

    def save(self, path: str | PathLike[str]) -> None:
        """Write the compiled model to one file, which `dlc.load` reads without compiling anything.

        The file of a model that is specialized at run time contains the specializations of the calls so far. Raises
        UnsupportedError for a model without code (target `reference`), and for one without specializations yet; raises DlcError
        if the file cannot be written, or would replace a file that is not a compiled model.
        """
        require_no_other_file(to_path(path))
        save(to_path(path), self)

    def program_of_process(self) -> Model:
        """Return the model that this process runs: of a model on a mesh, the program of a rank, on its shards."""
        return self

    def serialize(self, writer: SectionWriter, defaults: Mapping[str, NDArray[Any]], /) -> dict[str, Any]:
        """Write the sections of the model and return its header fields. Raises UnsupportedError for a model without code."""
        if self.artifact is None:
            raise UnsupportedError(
                f"{self.name}: a model for the target reference has no code to save; compile it for cpu or opencl"
            )
        fields = self.artifact.serialize(writer, {**defaults, **self.defaults})
        default_arrays = [array_to_json(name, array, writer) for name, array in self.defaults.items()]
        return {**fields, "defaults": default_arrays} if default_arrays else fields

    def check_and_run(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Return the outputs for arrays in the order of the inputs, such as the results of another program.

        Raises ShapeError or DTypeError for inputs that do not fit.
        """
        if not self._matches(arrays):
            require_matching_inputs(self.name, self.inputs, arrays)
        return self.run_unchecked(arrays)

    def _matches(self, arrays: Sequence[Any]) -> bool:
        """Return whether arrays provably match the inputs; False if the symbols cannot be solved for."""
        shapes = [a.shape for a in arrays]
        if [a.dtype for a in arrays] != self._dtypes:
            return False
        return shapes == self._shapes if self._symbolic_sizes is None else self._symbolic_sizes.fit(shapes)

    def __copy__(self) -> Model:
        """Return the model itself: it is immutable."""
        return self

    def __deepcopy__(self, memo: object) -> Model:
        return self

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, infos)) for infos in (self.inputs, self.outputs))
        return f"<dlc.Model {self.name}({inputs}) -> {outputs}>"

    def _by_name(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> Mapping[str, Any]:
        if len(arguments) == 1 and isinstance(arguments[0], Mapping):
            arguments, named = (), {**cast("Mapping[str, Any]", arguments[0]), **named}
        if not arguments and named.keys() == self._names.keys():
            return named
        names = list(self._names)
        by_name = {**self.defaults, **dict(zip(names, arguments, strict=False)), **named}
        problems: list[str] = []
        if len(arguments) > len(names):
            problems.append(f"got {len(arguments)} inputs")
        problems += [f"input {n!r} is passed by position and by name" for n in names[: len(arguments)] if n in named]
        unknown = [n for n in named if n not in names]
        problems += [f"no input is named {n!r}" for n in unknown]
        problems += [f"input {n!r} is missing" for n in names if n not in by_name]
        if problems:
            hint = "; to pass an initializer, name it in compile_model's `parameters`" if unknown else ""
            expected = f"its inputs are {', '.join(map(str, self.inputs))}" if self.inputs else "it has no inputs"
            raise DlcError(f"{self.name}: {'; '.join(problems)}; {expected}{hint}")
        return by_name


def as_result(result: Any) -> Any:
    """Convert an output to the array type that users get."""
    return result if type(result) is Array or not isinstance(result, np.ndarray) else result.view(Array)


def require_on_cpu(array: object, where: str) -> None:
    """Raise DeviceError for a device array: copies from a device must be explicit."""
    if isinstance(array, DeviceArray):
        raise DeviceError(f"{where} is on {array.device}, but the program runs on the CPU; copy it with .to('cpu')")


def to_input_array(value: Any, info: TensorInfo) -> NDArray[Any] | DeviceArray:
    """Convert a value to an array for an input. Raises ShapeError and DTypeError for a value that cannot be converted."""
    if isinstance(value, DeviceArray):
        return value
    if isinstance(value, np.ndarray):
        if type(cast(object, value)) is not np.ndarray:
            require_unmasked(cast(object, value), f"input {info}")
        return cast("NDArray[Any]", value)
    try:
        array = to_numpy(value)
    except (ShapeError, DTypeError) as error:
        raise type(error)(f"input {info}: {error}") from error
    if array.dtype.hasobject:
        hint = "; pass its .result(), or call .submit, which waits for futures" if isinstance(value, Future) else ""
        raise DTypeError(f"input {info}: expected an array of numbers; got a {type(cast(object, value)).__name__}{hint}")
    if not hasattr(value, "dtype") and np.can_cast(array.dtype, info.dtype, "same_kind"):
        return array.astype(info.dtype)
    return array
