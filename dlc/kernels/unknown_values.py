"""Conversions of Python that values inside kernels refuse, because a value is not known while its kernel is traced."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NoReturn

from dlc.errors import DlcError


class UnknownWhileTracing(ABC):
    """The conversions of a value to Python's numbers, conditions and text. Each raises DlcError, which names a replacement."""

    @property
    @abstractmethod
    def noun(self) -> str:
        """The value in error messages, with an article."""

    @abstractmethod
    def error(self, problem: str) -> DlcError:
        """Return an error about the running user line."""

    def __bool__(self) -> NoReturn:
        raise self.error(
            f"a Python condition (if, while, and, or, not, min, max) on {self.noun}, which is not known while "
            "the kernel is traced; use k.when(condition), k.select(condition, x, y), k.minimum, k.maximum, or & | ~"
        )

    def __index__(self) -> NoReturn:
        raise self._unknown("a Python integer", "for a loop use k.range, for an index k.index(value)")

    def __int__(self) -> NoReturn:
        raise self._unknown("a Python integer", "use .astype(np.int64), or k.index(value)")

    def __float__(self) -> NoReturn:
        raise self._unknown(
            "a Python float", "use .astype(np.float32), or a function of dlc.kernels, such as k.exp, instead of math's"
        )

    def __complex__(self) -> NoReturn:
        raise self._unknown("a Python complex number", "compute with the real and the imaginary part")

    def __round__(self, digits: int | None = None) -> NoReturn:
        raise self._unknown("a Python number", "use k.round(x) instead of round")

    def __floor__(self) -> NoReturn:
        raise self._unknown("a Python integer", "use k.floor(x)")

    def __ceil__(self) -> NoReturn:
        raise self._unknown("a Python integer", "use k.ceil(x)")

    def __trunc__(self) -> NoReturn:
        raise self._unknown("a Python integer", "use k.trunc(x)")

    def __format__(self, format_spec: str) -> str:
        if format_spec:
            raise self._unknown("text", "return it as a result, and print that")
        return repr(self)

    def _unknown(self, kind: str, hint: str) -> DlcError:
        return self.error(f"{self.noun} as {kind}, which is not known while the kernel is traced; {hint}")
