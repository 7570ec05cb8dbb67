"""Choose the specializations of a function or model that are compiled for the sizes of its calls."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import TypeAlias

from dlc.compiler.program import Program
from dlc.errors import DlcError, UnsupportedError
from dlc.options import Options
from dlc.runtime.models.model import Model
from dlc.runtime.models.specializations import Specialization
from dlc.shapes.domain import SizeDomain

# Imports or traces the program with static sizes of these symbols. Comparisons of other sizes are decided for the sizes of a
# call, and become guards of the program. None if the program is the same as before.
ReadProgram: TypeAlias = "Callable[[Mapping[str, int]], Program | None]"
# Compiles a program for these sizes of its symbols and all others that satisfy its guards; None if they violate a guard.
CompileForSizes: TypeAlias = "Callable[[Program, Options, Mapping[str, int]], Specialization[Model] | None]"


class Specializer:
    """Specializes the function or model `name` for the sizes of calls, with `compile_for_sizes`.

    Only the first specialization dumps its IR, since later ones differ in shapes only.
    """

    def __init__(self, name: str, options: Options, compile_for_sizes: CompileForSizes) -> None:
        self._name, self._options, self._compile_for_sizes = name, options, compile_for_sizes
        # Keys of programs that cannot be read with symbolic sizes, each reported by a warning.
        self._static_keys: set[Hashable] = set()

    def specialize(
        self,
        sizes: Mapping[str, int],
        read: ReadProgram,
        compile_static: Callable[[], Model] | None = None,
        key: Hashable = (),
    ) -> Specialization[Model]:
        """Compile a specialization for the sizes of a call and all other sizes that satisfy its guards.

        Each attempt makes more assumptions than the previous one: the outcomes of comparisons for these sizes; sizes 0 and 1,
        which broadcast and are empty; all sizes. `compile_static` compiles for all sizes, by default the program that is read.
        `key` is the exact key of the call, without its sizes.

        Raises what `read` and `compile_static` raise for static sizes.
        """
        special = {symbol: size for symbol, size in sizes.items() if size <= 1}
        attempts: list[dict[str, int]] = [{}, special] if 0 < len(special) < len(sizes) else [{}]
        error: Exception | None = None
        for static in attempts if sizes and key not in self._static_keys else ():
            try:
                program = read(static)
            except (DlcError, ArithmeticError, TypeError) as raised:
                error = raised
                continue
            compiled = None if program is None else self._compile(program, sizes)
            if compiled is not None:
                return replace(compiled, domain=compiled.domain.restricted_to(static))
            error = None
        # An error that is independent of symbolic sizes is raised here again.
        model = self._compile_static(read, sizes) if compile_static is None else compile_static()
        if error is not None and len(special) < len(sizes):
            reason = error.problems[0] if isinstance(error, UnsupportedError) and error.problems else error
            warnings.warn(f"{self._name} is specialized per shape: {reason}", stacklevel=7)
            self._static_keys.add(key)
        return Specialization(model, SizeDomain.of_sizes(sizes))

    def _compile_static(self, read: ReadProgram, sizes: Mapping[str, int]) -> Model:
        program = read(sizes)
        compiled = None if program is None else self._compile(program, {})
        assert compiled is not None, "no guards exclude static sizes"
        return compiled.program

    def next_options(self) -> Options:
        """Return the options of the next compilation."""
        options, self._options = self._options, replace(self._options, dump_ir=None)
        return options

    def _compile(self, program: Program, sizes: Mapping[str, int]) -> Specialization[Model] | None:
        compiled = self._compile_for_sizes(program, self._options, sizes)
        if compiled is not None:
            self.next_options()
        return compiled
