"""The names in a model: outputs to differentiate, and inputs and weights to differentiate with respect to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from dlc.arrays import TensorInfo
from dlc.dialects.dl.dtypes import element_type, is_float
from dlc.errors import DlcError, DTypeError
from dlc.frontend.onnx.graph import ModelFile
from dlc.frontend.onnx.tensor_names import initializers_of, inner_tensors_of, inputs_of, logits_of, non_trainable_of, outputs_of
from dlc.training.model_transforms import WEIGHTS

# Number of names that a message lists.
_MAX_LISTED_NAMES = 12


@dataclass(frozen=True)
class ModelNames:
    """The inputs, weights, trainable weights, outputs and inner tensors of a model.

    `logits` maps the output of each softmax to its input.
    """

    model: str
    inputs: tuple[TensorInfo, ...]
    weights: tuple[TensorInfo, ...]
    trainable: frozenset[str]
    outputs: tuple[str, ...]
    inner: frozenset[str]
    logits: Mapping[str, str]

    @staticmethod
    def of(file: ModelFile) -> ModelNames:
        """Return the names in a model file."""
        weights, non_trainable = initializers_of(file), non_trainable_of(file)
        trainable = frozenset(w.name for w in weights if _is_float(w) and w.shape and w.name not in non_trainable)
        return ModelNames(
            file.name, inputs_of(file), weights, trainable, outputs_of(file), inner_tensors_of(file), logits_of(file)
        )

    def select(self, wrt: Sequence[str]) -> tuple[TensorInfo, ...]:
        """Return the inputs and weights that match names and patterns: inputs first, without duplicates.

        Raises DlcError for a name or pattern without a match, and DTypeError for a tensor that is not floating point.
        """
        info_by_name = {info.name: info for info in (*self.inputs, *self.weights)}
        selected: set[str] = set()
        for name in wrt:
            if name in info_by_name:
                if not _is_float(info_by_name[name]):
                    raise DTypeError(
                        f"{self.model}: wrt '{name}': expected a float dtype, got {info_by_name[name]}; {self._float_names()}"
                    )
                selected.add(name)
                continue
            matches = (
                self.trainable
                if name == WEIGHTS
                else {n for n, i in info_by_name.items() if _is_float(i) and fnmatchcase(n, name)}
            )
            if not matches:
                raise DlcError(f"{self.model}: wrt '{name}': {self._missing_reason(name, info_by_name)}; {self._float_names()}")
            selected |= matches
        return tuple(info for name, info in info_by_name.items() if name in selected)

    def parameters(self, names: Sequence[str]) -> list[str]:
        """Return the initializers that match names and patterns. Raises DlcError for one without a match."""
        weight_names = [info.name for info in self.weights]
        matches = {name: {w for w in weight_names if w == name or fnmatchcase(w, name)} for name in names}
        for name, matched in matches.items():
            if not matched:
                close = get_close_matches(name, weight_names, 1)
                hint = f" (did you mean '{close[0]}'?)" if close else ""
                raise DlcError(
                    f"{self.model}: parameters '{name}': no such initializer{hint}; initializers: {format_names(weight_names)}"
                )
        return [w for w in weight_names if any(w in matched for matched in matches.values())]

    def require_output(self, name: str) -> None:
        """Raise DlcError unless an output or an inner tensor has this name."""
        if name not in self.outputs and name not in self.inner:
            close = get_close_matches(name, self.inner, 1)
            hint = f" (did you mean '{close[0]}'?)" if close else ""
            raise DlcError(f"{self.model}: no output is named '{name}'{hint}; the outputs are {format_names(self.outputs)}")

    def _missing_reason(self, name: str, candidates: Iterable[str]) -> str:
        if name in self.inner:
            return "it is the output of a node; expected an input or initializer"
        if name == WEIGHTS:
            return "the model has no float initializers of rank 1 or more"
        close = get_close_matches(name, candidates, 1)
        return "no input or weight has this name" + (f" (did you mean '{close[0]}'?)" if close else "")

    def _float_names(self) -> str:
        inputs, weights = ([i.name for i in infos if _is_float(i)] for infos in (self.inputs, self.weights))
        return f"float inputs: {format_names(inputs)}; float weights: {format_names(weights)}"


def format_names(names: Sequence[str]) -> str:
    """Return names as text for a message."""
    num_omitted = len(names) - _MAX_LISTED_NAMES
    return (", ".join(names[:_MAX_LISTED_NAMES]) or "none") + (f" and {num_omitted} more" if num_omitted > 0 else "")


def _is_float(info: TensorInfo) -> bool:
    return is_float(element_type(info.dtype))
