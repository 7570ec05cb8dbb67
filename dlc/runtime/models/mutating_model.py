"""Models that write new values into the input arrays of a call, such as the statistics of a batch norm in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlc.arrays import TensorInfo, aligned_empty
from dlc.errors import DlcError
from dlc.runtime.models.model import Model, to_input_array
from dlc.runtime.saving.container import SectionWriter


class MutatingModel(Model):
    """A model whose calls mutate inputs: `mutations` maps outputs of `program` to the inputs that get their values.

    Such an input must be a writable array. If a call omits it, the call mutates the default, which is a copy. Calls that mutate
    defaults run one after the other. A saved file contains the current defaults; its program has no side effects: a caller in C
    passes the inputs and gets the new values as further outputs.
    """

    def __init__(self, program: Model, mutations: Mapping[str, str]) -> None:
        outputs = [info for info in program.outputs if info.name not in mutations]
        super().__init__(program.inputs, outputs, self._run, program.name, program.artifact, values=program.values)
        self.num_threads, self.streams, self.cpus = program.num_threads, program.streams, program.cpus
        self._program, self._mutations = program, dict(mutations)
        self._mutated = frozenset(mutations.values())
        self._mutated_defaults: dict[str, NDArray[Any]] = {}
        self._lock = Lock()
        self.defaults = program.defaults

    def _set_defaults(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._mutated_defaults = {name: _aligned_copy(array) for name, array in arrays.items() if name in self._mutated}
        super()._set_defaults({**arrays, **self._mutated_defaults})

    def checked(self, /, *arguments: Any, **named: Any) -> list[Any]:
        by_name = dict(self._by_name(arguments, named))
        for info in self.inputs:
            if info.name not in self._mutated:
                continue
            if by_name[info.name] is self.defaults.get(info.name):
                by_name[info.name] = self._mutated_defaults[info.name]
            else:
                by_name[info.name] = _writable_array(by_name[info.name], info, self.name)
        return super().checked(**by_name)

    def _run(self, arrays: Sequence[Any]) -> list[Any]:
        by_name = {info.name: array for info, array in zip(self.inputs, arrays, strict=True)}
        mutates_defaults = any(by_name[name] is default for name, default in self._mutated_defaults.items())
        with self._lock if mutates_defaults else nullcontext():
            results = self._program.run_unchecked(arrays)
            results_by_name = {info.name: result for info, result in zip(self._program.outputs, results, strict=True)}
            # The evaluator may return inputs.
            targets = [by_name[name] for name in self._mutated]

            def is_alias(result: Any) -> bool:
                return any(np.may_share_memory(result, target) for target in targets)

            for name, result in results_by_name.items():
                if isinstance(result, np.ndarray) and is_alias(result):
                    results_by_name[name] = result.copy()
            for output, mutated in self._mutations.items():
                np.copyto(by_name[mutated], np.asarray(results_by_name[output]))
            return [results_by_name[info.name] for info in self.outputs]

    def __deepcopy__(self, memo: object) -> Model:
        """Return a model with a copy of the defaults."""
        copy = MutatingModel(self._program, self._mutations)
        copy.defaults, copy.inspector = self.defaults, self.inspector
        copy.num_threads, copy.streams, copy.cpus = self.num_threads, self.streams, self.cpus
        return copy

    def serialize(self, writer: SectionWriter, defaults: Mapping[str, NDArray[Any]], /) -> dict[str, Any]:
        with self._lock:
            return {**super().serialize(writer, defaults), "mutations": self._mutations}


def _aligned_copy(array: NDArray[Any]) -> NDArray[Any]:
    copy = aligned_empty(array.shape, array.dtype)
    np.copyto(copy, array)
    return copy


def _writable_array(value: Any, info: TensorInfo, model: str) -> NDArray[Any]:
    """Return an array on the memory of an array of any library.

    Raises DlcError for a value without memory that NumPy can write to, and what `to_input_array` raises.
    """
    array = to_input_array(value, info)
    # NumPy creates a new array from a list at each conversion.
    if (
        isinstance(array, np.ndarray)
        and array.flags.writeable
        and (not array.size or np.may_share_memory(array, np.asarray(to_input_array(value, info))))
    ):
        return array
    raise DlcError(f"{model}: input {info}: the call mutates it; pass a writable NumPy array, or a PyTorch tensor on the CPU")
