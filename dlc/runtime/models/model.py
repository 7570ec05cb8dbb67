"""A compiled model, as users call it: arrays in by name or place, arrays out by name; whichever target runs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import Array, TensorInfo, given_array, require_unmasked, type_text
from dlc.dims import Dim, Size, is_static, is_symbol, substitute
from dlc.errors import DeviceError, DlcError, DTypeError, ShapeError, UnsupportedError
from dlc.files.whole_files import path_of
from dlc.runtime.cpu.direct import DirectCalls
from dlc.runtime.opencl.array import DeviceArray
from dlc.runtime.saving.container import Saveable, Writer, save
from dlc.runtime.saving.header.arrays import array_to_json
from dlc.runtime.sizes.input_sizes import InputSizes

# Runs the program on checked inputs, in order: NumPy's arrays, and on an OpenCL device DeviceArrays.
Run = Callable[[Sequence[Any]], Sequence[Any]]
# Arrays that are taken as they are given.
_PLAIN = frozenset[type]((np.ndarray, Array))


class Study(Protocol):
    """What is known of a model by who compiled it, and takes a compiler."""

    def page(self, inputs: Mapping[str, Any] | None) -> Any:
        """A page about it, measured on these inputs; None: not measured."""
        ...

    def profile(self, model: Model, inputs: Sequence[Any]) -> Any:
        """What a call with these inputs takes."""
        ...


class Model:
    """A program with named inputs and outputs: `model(x=x)`, `model({"x": x})` or `model(x)` in the order of the inputs.

    A call returns a dict from output names to arrays. Anything that NumPy makes an array of is an input, without a copy
    where it is C-contiguous; its dtype must be the input's, but for Python numbers and lists, which are converted.
    `defaults` are for inputs that a call leaves out.
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
        # What takes arrays of the right shapes and dtypes, in a list in order, and looks at nothing.
        self.run_unchecked = run
        self.artifact = artifact
        # The inputs for whose values it is compiled when it is called.
        self.values = tuple(values)
        self._defaults: Mapping[str, NDArray[Any]] = {}
        # What was asked for: all usable processors if None.
        self.num_threads: int | None = None
        # Of a model that this process compiled: who knows how.
        self.study: Study | None = None
        self._takes_device_arrays = takes_device_arrays
        self._names = dict.fromkeys(info.name for info in self.inputs)
        self._ordered = list(self._names)
        self._results = [info.name for info in self.outputs]
        self._open = None if all(is_static(info.shape) for info in self.inputs) else InputSizes(self.inputs)
        self._shapes = [info.shape for info in self.inputs]
        self._dtypes = [info.dtype for info in self.inputs]
        # What takes arrays that fit without Python.
        self._direct = DirectCalls(run)

    @property
    def defaults(self) -> Mapping[str, NDArray[Any]]:
        """What inputs are that a call leaves out; read-only, since a program may write over what it is given."""
        return self._defaults

    @defaults.setter
    def defaults(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._defaults = {name: array.view() for name, array in arrays.items()}
        for array in self._defaults.values():
            array.flags.writeable = False

    def __call__(self, /, *arguments: Any, **named: Any) -> dict[str, Array | DeviceArray]:
        """The outputs; those of a model for an OpenCL device stay there until they are looked at.

        Raises ShapeError or DTypeError for inputs that do not fit, naming all of them, and DlcError for missing and
        unknown ones.
        """
        in_order = not named or [*named] == self._ordered
        if in_order and (direct := self._direct.call) is not None:
            results = direct(*arguments, *named.values())
            if results is not None:
                return dict(zip(self._results, results, strict=True))
        arrays = self.checked(*arguments, **named)
        results = self.run_unchecked(arrays)
        if in_order:
            self._direct.made(arrays)
        return dict(zip(self._results, map(as_result, results), strict=True))

    def checked(self, /, *arguments: Any, **named: Any) -> list[Any]:
        """The inputs of a call as arrays, in order."""
        given = self._by_name(arguments, named)
        arrays = [given[name] for name in self._names]
        if not _PLAIN.issuperset(map(type, arrays)):
            arrays = [given_as(array, info) for array, info in zip(arrays, self.inputs, strict=True)]
            if not self._takes_device_arrays:
                for array, info in zip(arrays, self.inputs, strict=True):
                    require_on_cpu(array, f"input {info}")
        if not self._fits(arrays):
            require_fitting(self.name, self.inputs, arrays)
        return arrays

    def explore(self, /, *arguments: Any, **named: Any) -> Any:
        """A page of what the compiler made of the model, measured on these inputs: a notebook shows it, `.save` writes it.

        Without inputs it has no times. The model is compiled once more for it. Raises UnsupportedError for one that is not
        compiled as one, or was loaded.
        """
        if not arguments and not named and any(info.name not in self.defaults for info in self.inputs):
            return self._studied().page(None)
        arrays = self.checked(*arguments, **named)
        return self._studied().page({info.name: array for info, array in zip(self.inputs, arrays, strict=True)})

    def profile(self, /, *arguments: Any, **named: Any) -> Any:
        """What a call with these inputs takes: kernels, time and memory, and what compiling took; it prints, and is JSON.

        Raises UnsupportedError for a model that is not one program for a CPU, or was loaded.
        """
        return self._studied().profile(self, self.checked(*arguments, **named))

    def _studied(self) -> Study:
        if self.study is None:
            raise UnsupportedError(
                f"{self.name}: it was loaded as it was compiled; ask the model that dlc.compile_model makes, or use "
                "`dlc bench FILE.dlc --kernels`"
            )
        return self.study

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the compiled model to one file, which `dlc.load` reads without compiling anything.

        Of a model, or a part of one, that is compiled when it is called, the file holds what the calls so far took.
        Raises UnsupportedError for a model that is no code (of the target `reference`), and for one that was not called yet
        though what it is compiled for comes with a call; DlcError when the file cannot be written.
        """
        save(path_of(path), self)

    def written(self, writer: Writer, defaults: Mapping[str, NDArray[Any]], /) -> dict[str, Any]:
        """Its part of a file's header. Raises UnsupportedError for a model that is no code."""
        if self.artifact is None:
            raise UnsupportedError(
                f"{self.name}: it is evaluated as a module, of which there is no code to save; compile it for cpu or opencl"
            )
        fields = self.artifact.written(writer, {**defaults, **self.defaults})
        own = [array_to_json(name, array, writer) for name, array in self.defaults.items()]
        return {**fields, "defaults": own} if own else fields

    def run_fitting(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """The outputs for inputs in order, which come from another program.

        Raises ShapeError or DTypeError for inputs that do not fit.
        """
        if not self._fits(arrays):
            require_fitting(self.name, self.inputs, arrays)
        return self.run_unchecked(arrays)

    def _fits(self, arrays: Sequence[Any]) -> bool:
        """Whether arrays are surely what the inputs are; where symbols are no sizes by themselves, it does not say."""
        shapes = [a.shape for a in arrays]
        if [a.dtype for a in arrays] != self._dtypes:
            return False
        return shapes == self._shapes if self._open is None else self._open.fit(shapes)

    def __copy__(self) -> Model:
        """Itself: a model does not change."""
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
        given = {**self.defaults, **dict(zip(names, arguments, strict=False)), **named}
        problems: list[str] = []
        if len(arguments) > len(names):
            problems.append(f"{len(arguments)} inputs given")
        problems += [f"input {n!r} is given by place and by name" for n in names[: len(arguments)] if n in named]
        unknown = [n for n in named if n not in names]
        problems += [f"no input is called {n!r}" for n in unknown]
        problems += [f"input {n!r} is missing" for n in names if n not in given]
        if problems:
            hint = "; what a file has as an initialiser is one if compile_model's `parameters` name it" if unknown else ""
            takes = f"its inputs are {', '.join(map(str, self.inputs))}" if self.inputs else "it has no inputs"
            raise DlcError(f"{self.name}: {'; '.join(problems)}; {takes}{hint}")
        return given


def as_result(result: Any) -> Any:
    """An output as users get it."""
    return result if type(result) is Array or not isinstance(result, np.ndarray) else result.view(Array)


def require_on_cpu(array: object, where: str) -> None:
    """Raises DeviceError for an array that must be moved first: nothing leaves a device unseen."""
    if isinstance(array, DeviceArray):
        raise DeviceError(f"{where} is on {array.device}, the program on the CPU; move it there with .to('cpu')")


def require_fitting(name: str, infos: Sequence[TensorInfo], arrays: Sequence[NDArray[Any] | DeviceArray]) -> None:
    """Raises ShapeError or DTypeError, listing every array that is not what the program called `name` takes."""
    sizes: dict[str, Size] = {}
    for array, info in zip(arrays, infos, strict=True):
        if array.ndim == len(info.shape):
            for got, size in zip(array.shape, info.shape, strict=True):
                if is_symbol(size):
                    sizes.setdefault(str(size), got)
    problems: list[str] = []
    dtype_fits = True
    for array, info in zip(arrays, infos, strict=True):
        expected = tuple(substitute(size, sizes) for size in info.shape)
        # A size that stays symbolic names a symbol that no input has by itself: any value may be meant.
        shape_fits = array.ndim == len(expected) and all(
            isinstance(size, Dim) or size == got for size, got in zip(expected, array.shape, strict=True)
        )
        if shape_fits and array.dtype == info.dtype:
            continue
        bound = {n: size for n, size in sizes.items() if any(n in _symbols(s) for s in info.shape)}
        where = f" with {', '.join(f'{n} = {s}' for n, s in bound.items())}" if bound and not shape_fits else ""
        problems.append(f"input {info}{where}; got {type_text(array.dtype, array.shape)}")
        if array.dtype != info.dtype:
            dtype_fits = False
            problems[-1] += f", convert it with .astype({info.dtype.name!r})"
    if problems:
        raise (ShapeError if dtype_fits else DTypeError)(f"{name}: expected {'; expected '.join(problems)}")


def _symbols(size: Size) -> set[str]:
    return size.symbols() if isinstance(size, Dim) else set()


def given_as(value: Any, info: TensorInfo) -> NDArray[Any] | DeviceArray:
    """What is given for an input as an array. Raises ShapeError and DTypeError for what is none."""
    if isinstance(value, DeviceArray):
        return value
    if isinstance(value, np.ndarray):
        if type(cast(object, value)) is not np.ndarray:
            require_unmasked(cast(object, value), f"input {info}")
        return cast("NDArray[Any]", value)
    try:
        array = given_array(value)
    except (ShapeError, DTypeError) as error:
        raise type(error)(f"input {info}: {error}") from error
    if array.dtype.hasobject:
        raise DTypeError(f"input {info}: expected an array of numbers; got a {type(value).__name__}")
    if not hasattr(value, "dtype") and np.can_cast(array.dtype, info.dtype, "same_kind"):
        return array.astype(info.dtype)
    return array
