"""The entry of a program that is made of another one: named inputs, some of which a call may leave out, and named outputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from dlc.compiler import Program
from dlc.dialects.dl.base import Array, tensor_of
from dlc.dialects.dl.programs.ranges import ranges_of, state_ranges
from dlc.dialects.entry import entry_of
from dlc.errors import ModelError
from dlc.frontend.entry import entry_function
from dlc.ir import Attribute, Block, ModuleOp, SSAValue


@dataclass
class Entry:
    """A `@main` while it is written: `block` takes the `inputs`; `outputs` are what it returns."""

    block: Block = field(default_factory=Block)
    inputs: list[str] = field(default_factory=list[str])
    outputs: dict[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    defaults: dict[str, Array] = field(default_factory=dict[str, Array])

    def take_inputs(self, program: Program, *, defaults: bool) -> None:
        """Takes the inputs of a program that a call may, or may not, leave out."""
        for info, argument in zip(program.inputs, entry_of(program.module).args, strict=True):
            if (info.name in program.defaults) == defaults:
                self.take(info.name, argument.type, program.defaults.get(info.name)).name_hint = argument.name_hint

    @property
    def arguments(self) -> dict[str, SSAValue]:
        """The inputs, by name."""
        return dict(zip(self.inputs, self.block.args, strict=True))

    def take(self, name: str, type: Attribute, default: Array | None = None) -> SSAValue:
        """One more input. Raises ModelError for a name that there is already."""
        if name in self.inputs:
            raise ModelError(f"two inputs would be called '{name}'; rename the one of the model")
        self.inputs.append(name)
        if default is not None:
            self.defaults[name] = default
        return self.block.insert_arg(tensor_of(type), len(self.block.args))

    def give(self, outputs: Iterable[tuple[str, SSAValue]]) -> None:
        """More outputs. Raises ModelError for a name that there is already."""
        for name, value in outputs:
            if name in self.outputs:
                raise ModelError(f"two outputs would be called '{name}'; rename the one of the model")
            self.outputs[name] = value

    def of(self, program: Program) -> Program:
        """The program that it is the entry of, with the sizes and weights of the one that it was made of."""
        main = entry_function(self.block, self.inputs, list(self.outputs.values()), self.outputs)
        state_ranges(main, ranges_of(program.module))
        return replace(program, module=ModuleOp([main]), defaults=self.defaults)
