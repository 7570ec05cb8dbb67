"""The host program after planning: launches of kernels on buffers, and the loops and branches around them.

    %w = host.weight @w7 : memref<64x64xf32>
    %b = host.arena 4096 : memref<1x56x56x64xf32>
    host.launch @conv_relu(%x, %w, %b) : memref<…>, memref<…>, memref<…>

Buffers are at fixed places, but for the arguments of a loop's body, which are another part of a buffer in each step. Where
sizes are known only when the program is called, buffers say theirs, and a launch gives those that its kernel takes:

    %b = host.buffer {sizes = #dl.dims<"N", 64>, region = 2} : memref<?x64xf32>
    host.launch @conv_relu sizes <"N">(%x, %w, %b) : memref<…>, memref<…>, memref<…>

Entry arguments are the program's inputs, then its outputs, as memrefs; the latter carry the attribute `host.output`. Views
of a buffer are `memref.reinterpret_cast`; `memref.copy` fills an output that no kernel writes. Element types are those of
the `dl` dialect, `ui8` among them: a kernel that takes `i8` there sees the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.dl.base import DimsAttr, PlainOp, attribute
from dlc.dims import Size
from dlc.ir import (
    ArrayAttr,
    Attribute,
    Block,
    BoolAttr,
    Dialect,
    IntegerAttr,
    IRDLOperation,
    IsTerminator,
    MemRefType,
    Operation,
    ParsePropInAttrDict,
    Pure,
    Region,
    SSAValue,
    StringAttr,
    SymbolRefAttr,
    i64,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)


@irdl_op_definition
class WeightOp(IRDLOperation):
    """An array of the weights store, as a read-only buffer."""

    name = "host.weight"
    symbol = prop_def(SymbolRefAttr)
    result = result_def(MemRefType)
    traits = traits_def(Pure())
    assembly_format = "$symbol attr-dict `:` type($result)"

    def __init__(self, symbol: str, type: Attribute) -> None:
        Operation.__init__(self, properties={"symbol": SymbolRefAttr(symbol)}, result_types=[type])


@irdl_op_definition
class ArenaOp(IRDLOperation):
    """A buffer in the arena, `offset` bytes from its start (a multiple of the alignment that was planned for)."""

    name = "host.arena"
    offset = prop_def(IntegerAttr)
    result = result_def(MemRefType)
    traits = traits_def(Pure())
    assembly_format = "$offset attr-dict `:` type($result)"

    def __init__(self, offset: int, type: Attribute) -> None:
        Operation.__init__(self, properties={"offset": attribute(offset)}, result_types=[type])


@irdl_op_definition
class BufferOp(IRDLOperation):
    """A buffer in the arena whose place follows from the sizes of a call.

    Buffers of one `region` of the arena are never alive at the same time: it is as large as the largest of them. Region -1 is
    none yet.
    """

    name = "host.buffer"
    sizes = prop_def(DimsAttr)
    region = prop_def(IntegerAttr)
    result = result_def(MemRefType)
    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "attr-dict `:` type($result)"

    def __init__(self, sizes: Sequence[Size], type: Attribute, region: int = -1) -> None:
        properties = {"sizes": DimsAttr.of(sizes), "region": IntegerAttr(region, i64)}
        super().__init__(properties=properties, result_types=[type])


@irdl_op_definition
class ViewOp(IRDLOperation):
    """What of a buffer begins at an element: in another shape, which may follow from the sizes of a call, or as words."""

    name = "host.view"
    source = operand_def(MemRefType)
    offset = prop_def(IntegerAttr)
    sizes = prop_def(DimsAttr)
    result = result_def(MemRefType)
    traits = traits_def(Pure())
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$source attr-dict `:` type($source) `->` type($result)"

    def __init__(self, source: SSAValue, offset: int, sizes: Sequence[Size], type: Attribute) -> None:
        properties = {"offset": IntegerAttr(offset, i64), "sizes": DimsAttr.of(sizes)}
        super().__init__(operands=[source], properties=properties, result_types=[type])


@irdl_op_definition
class LaunchOp(IRDLOperation):
    """Runs a kernel on buffers: its inputs, then its outputs; `sizes` are those that it takes besides."""

    name = "host.launch"
    callee = prop_def(SymbolRefAttr)
    sizes = opt_prop_def(DimsAttr)
    arguments = var_operand_def()
    assembly_format = "$callee (`sizes` $sizes^)? `(` $arguments `)` attr-dict `:` type($arguments)"

    def __init__(self, callee: str, arguments: Sequence[SSAValue], sizes: DimsAttr | None = None) -> None:
        properties: dict[str, Attribute] = {"callee": SymbolRefAttr(callee)}
        if sizes is not None:
            properties["sizes"] = sizes
        Operation.__init__(self, operands=arguments, properties=properties)

    @property
    def numbers(self) -> tuple[Size, ...]:
        """The sizes that the kernel takes."""
        return self.sizes.sizes if self.sizes is not None else ()

    @property
    def symbol(self) -> str:
        return self.callee.string_value()


@irdl_op_definition
class YieldOp(IRDLOperation):
    """Ends a body; its operands are the buffers that the next step takes, or of a `while` whether there is one, then these."""

    name = "host.yield"
    buffers = var_operand_def(MemRefType)
    traits = traits_def(IsTerminator())
    assembly_format = "attr-dict ($buffers^ `:` type($buffers))?"

    def __init__(self, buffers: Sequence[SSAValue]) -> None:
        super().__init__(operands=[list(buffers)])


class Repeated(PlainOp):
    """An op whose body runs again and again, and hands buffers on."""

    @property
    def yielded(self) -> Sequence[SSAValue]:
        """What the body hands on."""
        last = self.blocks[0].last_op
        assert isinstance(last, YieldOp)
        return last.buffers


@irdl_op_definition
class LoopOp(Repeated):
    """Runs its body `count` times.

        %last = host.loop %first, %next, %xs {count = 300, carried = 2} : (memref<4xf32>, …, memref<300x4xf32>) -> (…) {
        ^bb0(%state: memref<4xf32>, %free: memref<4xf32>, %x: memref<4xf32>):
          host.launch @step(%state, %x, %free) : …
          host.yield %free, %state : …
        }

    The first `carried` operands are buffers that the body's first arguments are in the first step; in the next step they are
    what it yields. So buffers take turns, and nothing is copied. Step `i` has element `i` of the other operands, along axis
    0, as the rest of its arguments; if `reverse` is set, element `count - 1 - i`. Results are what the carried buffers are in
    the end. A count that comes with a call is written `count = #dl.dims<"L">`.
    """

    name = "host.loop"
    count = prop_def(IntegerAttr | DimsAttr)
    carried = prop_def(IntegerAttr)
    reverse = opt_prop_def(BoolAttr)
    arguments = var_operand_def(MemRefType)
    outputs = var_result_def(MemRefType)
    body = region_def("single_block")

    def __init__(
        self, count: Size, carried: Sequence[SSAValue], elements: Sequence[SSAValue], body: Block, reverse: bool = False
    ) -> None:
        super().__init__(
            operands=[[*carried, *elements]],
            result_types=[[v.type for v in carried]],
            properties={
                "count": IntegerAttr(count, i64) if isinstance(count, int) else DimsAttr.of((count,)),
                "carried": IntegerAttr(len(carried), i64),
                "reverse": BoolAttr.from_bool(True) if reverse else None,
            },
            regions=[Region(body)],
        )

    @property
    def turns(self) -> Size:
        """How often the body runs."""
        return self.count.sizes[0] if isinstance(self.count, DimsAttr) else self.count.value.data


@irdl_op_definition
class WhileOp(Repeated):
    """Runs its body as long as a bool in memory holds: `%begin` before the first step, later what the body yields first.

    %last = host.while %begin, %first, %next : (memref<i1>, memref<4xf32>, memref<4xf32>) -> (…) {
    ^bb0(%state: memref<4xf32>, %free: memref<4xf32>):
      host.launch @step(%state, %free, %again) : …
      host.yield %again, %free, %state : …
    }
    """

    name = "host.while"
    condition = operand_def(MemRefType)
    arguments = var_operand_def(MemRefType)
    outputs = var_result_def(MemRefType)
    body = region_def("single_block")

    def __init__(self, condition: SSAValue, carried: Sequence[SSAValue], body: Block) -> None:
        super().__init__(operands=[condition, list(carried)], result_types=[[v.type for v in carried]], regions=[Region(body)])


@irdl_op_definition
class IfOp(PlainOp):
    """Runs its first body if a bool in memory holds, else the second; both write to the same buffers."""

    name = "host.if"
    condition = operand_def(MemRefType)
    then = region_def("single_block")
    otherwise = region_def("single_block")

    def __init__(self, condition: SSAValue, then: Block, otherwise: Block) -> None:
        super().__init__(operands=[condition], regions=[Region(then), Region(otherwise)])


@irdl_op_definition
class FailOp(IRDLOperation):
    """Ends the call with an error, whose message has numbers from memory where its last `{}` are."""

    name = "host.fail"
    message = prop_def(StringAttr)
    numbers = var_operand_def(MemRefType)
    traits = traits_def(IsTerminator())
    assembly_format = "$message (`(` $numbers^ `:` type($numbers) `)`)? attr-dict"

    def __init__(self, message: str, numbers: Sequence[SSAValue] = ()) -> None:
        super().__init__(operands=[list(numbers)], properties={"message": StringAttr(message)})


@irdl_op_definition
class DecideOp(IRDLOperation):
    """A number in memory is a size from here on, as `dl.decide` says: what is as large has its place only then."""

    name = "host.decide"
    count = operand_def(MemRefType)
    size = prop_def(DimsAttr)
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$count attr-dict `:` type($count)"

    def __init__(self, count: SSAValue, size: DimsAttr) -> None:
        super().__init__(operands=[count], properties={"size": size})

    @property
    def symbol(self) -> str:
        """The name of the size."""
        return str(self.size.sizes[0])


@irdl_op_definition
class PrintOp(IRDLOperation):
    """Prints what is in buffers, as `dl.print` does."""

    name = "host.print"
    pieces = prop_def(ArrayAttr[StringAttr])
    buffers = var_operand_def(MemRefType)
    assembly_format = "$pieces (`(` $buffers^ `:` type($buffers) `)`)? attr-dict"

    def __init__(self, pieces: ArrayAttr[StringAttr], buffers: Sequence[SSAValue]) -> None:
        super().__init__(operands=[list(buffers)], properties={"pieces": pieces})

    @property
    def texts(self) -> list[str]:
        return [piece.data for piece in self.pieces]


@irdl_op_definition
class ComputeOp(IRDLOperation):
    """What Python computes, from the first `inputs` buffers to the others: an op by its name (`runtime/python_ops/`).

        host.compute "text_split" (%x, %d, %parts) {settings = "{}", inputs = 2, decided = ["k"]} : memref<…>, …

    `decided` are the sizes of its results that are known only then; `settings` are JSON.
    """

    name = "host.compute"
    function = prop_def(StringAttr)
    settings = prop_def(StringAttr)
    inputs = prop_def(IntegerAttr)
    decided = prop_def(ArrayAttr[StringAttr])
    buffers = var_operand_def(MemRefType)
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$function `(` $buffers `)` attr-dict `:` type($buffers)"

    def __init__(
        self,
        function: str,
        settings: str,
        inputs: Sequence[SSAValue],
        results: Sequence[SSAValue],
        decided: Sequence[str],
    ) -> None:
        properties = {
            "function": StringAttr(function),
            "settings": StringAttr(settings),
            "inputs": IntegerAttr(len(inputs), i64),
            "decided": ArrayAttr(map(StringAttr, decided)),
        }
        super().__init__(operands=[[*inputs, *results]], properties=properties)

    @property
    def arguments(self) -> Sequence[SSAValue]:
        return self.buffers[: self.inputs.value.data]

    @property
    def made(self) -> Sequence[SSAValue]:
        """The buffers of its results."""
        return self.buffers[self.inputs.value.data :]


def decided_by(op: Operation) -> tuple[str, ...]:
    """The names of the sizes that an op decides."""
    match op:
        case DecideOp():
            return (op.symbol,)
        case ComputeOp():
            return tuple(symbol.data for symbol in op.decided)
        case _:
            return ()


Host = Dialect(
    "host",
    [WeightOp, ArenaOp, BufferOp, ViewOp, LaunchOp, YieldOp, LoopOp, WhileOp, IfOp, FailOp, DecideOp, PrintOp, ComputeOp],
    [],
)
