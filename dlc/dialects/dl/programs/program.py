"""Kernels, and the dispatches that run them.

    %y = dl.dispatch @conv_relu(%x, %w) : (tensor<…>, tensor<…>) -> tensor<…>  loc(fused["conv1", "relu1"])
    dl.kernel @conv_relu(%x: tensor<…>, %w: tensor<…>) -> tensor<…> { …; dl.yield %r : tensor<…> }

A kernel is a pure function of `dl` ops; equal kernels have one symbol. The location of a dispatch lists the locations of its
kernel's ops in order; an op inside a kernel has the location `loc("#0")`, `loc("#1")`, …: an index into that list.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.dims_attribute import DimsAttr
from dlc.dialects.dl.base import ints
from dlc.ir import (
    Attribute,
    Block,
    FunctionType,
    IRDLOperation,
    IsolatedFromAbove,
    IsTerminator,
    Operation,
    Parser,
    Printer,
    Pure,
    Region,
    SSAValue,
    StringAttr,
    SymbolNameConstraint,
    SymbolOpInterface,
    SymbolRefAttr,
    VerifyException,
    contains,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from dlc.shapes.dims import Size

# The attribute of a kernel with the representative sizes that its tile plans are optimized for.
REPRESENTATIVE = "representative"
# The attribute of a kernel and its dispatches with the argument whose memory each result reuses, -1 for new memory.
OUTPUT_ALIASES = "output_aliases"
# The attribute of a kernel with the arguments that may contain blocks of zeros or false values, such as masked weights.
ZEROS = "zeros"


@irdl_op_definition
class YieldOp(IRDLOperation):
    """Terminates a kernel or the body of a loop; its operands are the results."""

    name = "dl.yield"
    values = var_operand_def()
    traits = traits_def(IsTerminator(), Pure())
    assembly_format = "attr-dict ($values^ `:` type($values))?"

    def __init__(self, values: Sequence[SSAValue]) -> None:
        super().__init__(operands=[list(values)])


@irdl_op_definition
class KernelOp(IRDLOperation):
    """A function of `dl` ops that becomes one kernel.

    If a result aliases an argument (`output_aliases`), the result initially has the argument's elements, and the kernel
    writes only those that change. A dynamic-shape kernel has symbols `s0`, `s1`, … in its types, for which each dispatch gives
    sizes; the attribute `representative` has an entry for each. The kernel tests at run time whether an argument listed in
    `zeros` has a block of zeros; its results do not depend on the attribute.

    (C1) block arguments have the inputs' types; (C2) the yielded values have the results' types; (C3) it contains no dispatch.
    """

    name = "dl.kernel"
    sym_name = prop_def(SymbolNameConstraint())
    function_type = prop_def(FunctionType)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), SymbolOpInterface())

    def __init__(self, name: str, function_type: FunctionType, body: Region) -> None:
        super().__init__(properties={"sym_name": StringAttr(name), "function_type": function_type}, regions=[body])

    @property
    def symbol(self) -> str:
        return self.sym_name.data

    @property
    def representative(self) -> tuple[int, ...]:
        """The sizes that tile plans are optimized for, one per symbol."""
        return ints(self.attributes.get(REPRESENTATIVE))

    @property
    def zeros(self) -> tuple[int, ...]:
        """The arguments that may have blocks of zeros."""
        return ints(self.attributes.get(ZEROS))

    @property
    def yielded(self) -> Sequence[SSAValue]:
        last = self.body.block.last_op
        assert isinstance(last, YieldOp)
        return last.values

    def verify_(self) -> None:
        if not isinstance(self.body.block.last_op, YieldOp):
            raise VerifyException(f"dl.kernel @{self.symbol}: its block must end in dl.yield")
        if tuple(a.type for a in self.body.block.args) != self.function_type.inputs.data:
            raise VerifyException(f"dl.kernel @{self.symbol}: block arguments do not have the types of its inputs (C1)")
        if tuple(v.type for v in self.yielded) != self.function_type.outputs.data:
            raise VerifyException(f"dl.kernel @{self.symbol}: dl.yield does not have the types of its results (C2)")
        if contains(self, DispatchOp):
            raise VerifyException(f"dl.kernel @{self.symbol}: a kernel cannot contain dl.dispatch (C3)")

    def print(self, printer: Printer) -> None:
        printer.print_string(" ")
        printer.print_symbol_name(self.symbol)
        with printer.in_parens():
            printer.print_list(self.body.block.args, printer.print_block_argument)
        printer.print_string(" -> ")
        with printer.in_parens():
            printer.print_list(self.function_type.outputs.data, printer.print_attribute)
        printer.print_op_attributes(self.attributes, print_keyword=True)
        printer.print_string(" ")
        printer.print_region(self.body, print_entry_block_args=False)

    @classmethod
    def parse(cls, parser: Parser) -> KernelOp:
        name = parser.parse_symbol_name()
        arguments = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_argument)
        parser.parse_punctuation("->")
        outputs = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        attributes = parser.parse_optional_attr_dict_with_keyword()
        region = parser.parse_region(arguments)
        op = KernelOp(name.data, FunctionType.from_lists([a.type for a in arguments], outputs), region)
        op.attributes |= attributes.data if attributes else {}
        return op


def output_aliases(op: Operation) -> dict[int, int]:
    """Return a map from the results of a kernel, dispatch or loop that alias an argument to the index of that argument."""
    return {result: argument for result, argument in enumerate(ints(op.attributes.get(OUTPUT_ALIASES))) if argument >= 0}


# The attribute of a result with the index of the donated argument whose memory it reuses.
DONOR = "dl.donor"
# The attribute of an entry function that is a segment of a program: further segments read its results.
SEGMENT = "dl.segment"


@irdl_op_definition
class DispatchOp(IRDLOperation):
    """Runs a kernel on tensors. (C1) operand and result types are the kernel's, with `sizes` substituted for its symbols."""

    name = "dl.dispatch"
    callee = prop_def(SymbolRefAttr)
    sizes = opt_prop_def(DimsAttr)
    arguments = var_operand_def()
    outputs = var_result_def()
    traits = traits_def(Pure())
    assembly_format = "$callee (`sizes` $sizes^)? `(` $arguments `)` attr-dict `:` functional-type($arguments, $outputs)"

    def __init__(
        self, callee: str, arguments: Sequence[SSAValue], result_types: Sequence[Attribute], sizes: Sequence[Size] = ()
    ) -> None:
        properties: dict[str, Attribute] = {"callee": SymbolRefAttr(callee)}
        if sizes:
            properties["sizes"] = DimsAttr.of(sizes)
        Operation.__init__(self, operands=arguments, result_types=result_types, properties=properties)

    @property
    def symbol(self) -> str:
        return self.callee.string_value()


def empty_kernel(name: str, inputs: Sequence[Attribute], outputs: Sequence[Attribute]) -> KernelOp:
    """Return a kernel with block arguments and no ops."""
    return KernelOp(name, FunctionType.from_lists(inputs, outputs), Region(Block(arg_types=inputs)))
