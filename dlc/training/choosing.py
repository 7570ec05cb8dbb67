"""What names mean: the outputs that are differentiated, and the inputs and weights that they are differentiated by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

from dlc.arrays import TensorInfo
from dlc.derived import WEIGHTS
from dlc.dialects.dl.dtypes import element_type, is_float
from dlc.errors import DlcError, DTypeError
from dlc.frontend.onnx.graph import ModelFile
from dlc.frontend.onnx.named import initialisers_of, inner_tensors_of, inputs_of, logits_of, outputs_of, settings_of

# How many names a message lists.
_MOST_LISTED = 12


@dataclass(frozen=True)
class Names:
    """What a model has to offer: its inputs, its weights, those of them that training changes, its outputs, tensors inside.

    `logits` says of what each softmax is one.
    """

    model: str
    inputs: tuple[TensorInfo, ...]
    weights: tuple[TensorInfo, ...]
    trained: frozenset[str]
    outputs: tuple[str, ...]
    inner: frozenset[str]
    logits: Mapping[str, str]

    @staticmethod
    def of(file: ModelFile) -> Names:
        """Those of a model file."""
        weights, settings = initialisers_of(file), settings_of(file)
        trained = frozenset(w.name for w in weights if _is_float(w) and w.shape and w.name not in settings)
        return Names(file.name, inputs_of(file), weights, trained, outputs_of(file), inner_tensors_of(file), logits_of(file))

    def chosen(self, wrt: Sequence[str]) -> tuple[TensorInfo, ...]:
        """The inputs and weights that names and patterns mean: inputs first, each once.

        Raises DlcError for a name or pattern that none has, and DTypeError for one that is not of floats.
        """
        every = {info.name: info for info in (*self.inputs, *self.weights)}
        found: set[str] = set()
        for name in wrt:
            if name in every:
                if not _is_float(every[name]):
                    raise DTypeError(
                        f"{self.model}: wrt '{name}': {every[name]} is not of floats, and has no gradient; {self._floats()}"
                    )
                found.add(name)
                continue
            meant = self.trained if name == WEIGHTS else {n for n, i in every.items() if _is_float(i) and fnmatchcase(n, name)}
            if not meant:
                raise DlcError(f"{self.model}: wrt '{name}': {self._why_none(name, every)}; {self._floats()}")
            found |= meant
        return tuple(info for name, info in every.items() if name in found)

    def parameters(self, names: Sequence[str]) -> list[str]:
        """The initialisers that names and patterns mean. Raises DlcError for a name or pattern that none has."""
        known = [info.name for info in self.weights]
        meant = {name: {w for w in known if w == name or fnmatchcase(w, name)} for name in names}
        for name, found in meant.items():
            if not found:
                close = get_close_matches(name, known, 1)
                hint = f" (did you mean '{close[0]}'?)" if close else ""
                raise DlcError(
                    f"{self.model}: parameters '{name}': no initialiser is called so{hint}; initialisers: {listed(known)}"
                )
        return [w for w in known if any(w in found for found in meant.values())]

    def require_output(self, name: str) -> None:
        """Raises DlcError unless an output, or a tensor inside of the model, has this name."""
        if name not in self.outputs and name not in self.inner:
            close = get_close_matches(name, self.inner, 1)
            hint = f" (did you mean '{close[0]}'?)" if close else ""
            raise DlcError(f"{self.model}: no output is called '{name}'{hint}; its outputs are {listed(self.outputs)}")

    def _why_none(self, name: str, every: Iterable[str]) -> str:
        if name in self.inner:
            return "a node makes it; a derivative is with respect to inputs and initialisers"
        if name == WEIGHTS:
            return "the model has no initialisers of floats with axes"
        close = get_close_matches(name, every, 1)
        return "no input or weight is called so" + (f" (did you mean '{close[0]}'?)" if close else "")

    def _floats(self) -> str:
        inputs, weights = ([i.name for i in infos if _is_float(i)] for infos in (self.inputs, self.weights))
        return f"inputs of floats: {listed(inputs)}; weights of floats: {listed(weights)}"


def listed(names: Sequence[str]) -> str:
    """Names in a message."""
    more = len(names) - _MOST_LISTED
    return (", ".join(names[:_MOST_LISTED]) or "none") + (f" and {more} more" if more > 0 else "")


def _is_float(info: TensorInfo) -> bool:
    return is_float(element_type(info.dtype))
