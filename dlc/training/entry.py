"""Builds the entry function of a derived program: named inputs, optionally with defaults, and named outputs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from dlc.compiler import Program
from dlc.dialects.dl.base import Array, tensor_of
from dlc.dialects.dl.programs.size_ranges import set_size_ranges, size_ranges
from dlc.dialects.entry import entry_of
from dlc.errors import ModelError
from dlc.frontend.entry import entry_function
from dlc.ir import Attribute, Block, ModuleOp, SSAValue


@dataclass
class EntryBuilder:
    """Builds `@main`: `block` takes the `inputs`; `outputs` are the values that it returns."""

    block: Block = field(default_factory=Block)
    inputs: list[str] = field(default_factory=list[str])
    outputs: dict[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    defaults: dict[str, Array] = field(default_factory=dict[str, Array])

    def add_inputs(self, program: Program, *, defaults: bool) -> None:
        """Add the inputs of a program that have defaults, or those that have none."""
        for info, argument in zip(program.inputs, entry_of(program.module).args, strict=True):
            if (info.name in program.defaults) == defaults:
                self.add_input(info.name, argument.type, program.defaults.get(info.name)).name_hint = argument.name_hint

    @property
    def arguments(self) -> dict[str, SSAValue]:
        """The block arguments by input name."""
        return dict(zip(self.inputs, self.block.args, strict=True))

    def add_input(self, name: str, type: Attribute, default: Array | None = None) -> SSAValue:
        """Add an input and return its block argument. Raises ModelError for a name that exists already."""
        if name in self.inputs:
            raise ModelError(f"two inputs would be named '{name}'; rename the input of the model")
        self.inputs.append(name)
        if default is not None:
            self.defaults[name] = default
        return self.block.insert_arg(tensor_of(type), len(self.block.args))

    def add_outputs(self, outputs: Iterable[tuple[str, SSAValue]]) -> None:
        """Add outputs. Raises ModelError for a name that exists already."""
        for name, value in outputs:
            if name in self.outputs:
                raise ModelError(f"two outputs would be named '{name}'; rename the output of the model")
            self.outputs[name] = value

    def of(self, program: Program) -> Program:
        """Return the program with this entry, with the size ranges and weights of the original program."""
        main = entry_function(self.block, self.inputs, list(self.outputs.values()), self.outputs)
        set_size_ranges(main, size_ranges(program.module))
        return replace(program, module=ModuleOp([main]), defaults=self.defaults)
