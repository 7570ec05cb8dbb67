"""The `host` dialect: programs after memory planning, as kernel launches on buffers, and loops and branches around them.

    %w = host.weight @w7 : memref<64x64xf32>
    %b = host.arena 4096 : memref<1x56x56x64xf32>
    host.launch @conv_relu(%x, %w, %b) : memref<…>, memref<…>, memref<…>

Buffers have fixed addresses, except for the arguments of a loop's body, which are another slice of a buffer in each iteration.
In dynamic-shape programs, buffers have symbolic sizes, and a launch passes the sizes that its kernel takes as arguments:

    %b = host.buffer {sizes = #dl.dims<"N", 64>, region = 2} : memref<?x64xf32>
    host.launch @conv_relu sizes <"N">(%x, %w, %b) : memref<…>, memref<…>, memref<…>

Entry arguments are the program's inputs, then its outputs, as memrefs; outputs have the attribute `host.output`. Views
of a buffer are `memref.reinterpret_cast`; `memref.copy` fills an output that no kernel writes. Element types are those of
the `dl` dialect, including `ui8`: a kernel with an argument of `i8` reads the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from dlc.dialects.dims_attribute import DimsAttr
from dlc.dialects.dl.base import PlainOp, attribute
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
from dlc.shapes.dims import Size


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
    """A buffer in the arena, `offset` bytes from its start (a multiple of the planned alignment)."""

    name = "host.arena"
    offset = prop_def(IntegerAttr)
    result = result_def(MemRefType)
    traits = traits_def(Pure())
    assembly_format = "$offset attr-dict `:` type($result)"

    def __init__(self, offset: int, type: Attribute) -> None:
        Operation.__init__(self, properties={"offset": attribute(offset)}, result_types=[type])


@irdl_op_definition
class BufferOp(IRDLOperation):
    """A buffer in the arena whose offset depends on the sizes of a call.

    The buffers of an arena `region` have disjoint lifetimes: the region has the size of the largest one. Region -1 means that
    no region is assigned yet.
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
    """A view of a buffer from the element `offset` on, with another shape, static or symbolic, or as i32 words."""

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
    """Runs a kernel on buffers: its inputs, then its outputs; `sizes` are its size arguments."""

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
    def kernel_sizes(self) -> tuple[Size, ...]:
        """The size arguments of the kernel."""
        return self.sizes.sizes if self.sizes is not None else ()

    @property
    def symbol(self) -> str:
        return self.callee.string_value()


# Attributes of launches: the FLOPs of contractions, until `form-sections`, and the number of outputs (the last arguments).
FLOPS, NUM_OUTPUTS = "flops", "outputs"
# The attribute of launches in a `host.parallel`: the index of their section.
SECTION = "section"


@irdl_op_definition
class YieldOp(IRDLOperation):
    """Terminates a body; its operands are the buffers of the next iteration, preceded by the condition in a `host.while`."""

    name = "host.yield"
    buffers = var_operand_def(MemRefType)
    traits = traits_def(IsTerminator())
    assembly_format = "attr-dict ($buffers^ `:` type($buffers))?"

    def __init__(self, buffers: Sequence[SSAValue]) -> None:
        super().__init__(operands=[list(buffers)])


class HostLoop(PlainOp):
    """A loop whose body runs repeatedly and passes buffers to the next iteration."""

    @property
    def yielded(self) -> Sequence[SSAValue]:
        """The operands of the body's `host.yield`."""
        last = self.blocks[0].last_op
        assert isinstance(last, YieldOp)
        return last.buffers


@irdl_op_definition
class LoopOp(HostLoop):
    """Runs its body `count` times.

        %last = host.loop %first, %next, %xs {count = 300, carried = 2} : (memref<4xf32>, …, memref<300x4xf32>) -> (…) {
        ^bb0(%state: memref<4xf32>, %free: memref<4xf32>, %x: memref<4xf32>):
          host.launch @step(%state, %x, %free) : …
          host.yield %free, %state : …
        }

    The first `carried` operands are the buffers of the body's first arguments in the first iteration; in the next one these are
    the yielded buffers, so that buffers are exchanged without copies. The other operands are sequences: iteration `i` has their
    element `i` along axis 0 as its remaining arguments, or element `count - 1 - i` if `reverse` is set. Results are the carried
    buffers after the last iteration. A symbolic count is an attribute `count = #dl.dims<"L">`.
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
    def trip_count(self) -> Size:
        """The number of iterations."""
        return self.count.sizes[0] if isinstance(self.count, DimsAttr) else self.count.value.data


@irdl_op_definition
class WhileOp(HostLoop):
    """Runs its body as long as a bool in memory is true: `%begin` before the first iteration, then the first yielded buffer.

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
    """Runs its first body if a bool in memory is true, else the second; both write to the same buffers."""

    name = "host.if"
    condition = operand_def(MemRefType)
    then = region_def("single_block")
    otherwise = region_def("single_block")

    def __init__(self, condition: SSAValue, then: Block, otherwise: Block) -> None:
        super().__init__(operands=[condition], regions=[Region(then), Region(otherwise)])


@irdl_op_definition
class ParallelOp(PlainOp):
    """Runs the sections of its body concurrently: the launches with the same `section`, in order, each on one thread.

        host.parallel {max_threads = 8, reason = "2 sections take about 3.0 us on 2 threads, …"} {
          host.launch @a(%x, %p) {section = 0} : …
          host.launch @b(%x, %q) {section = 1} : …
          host.yield
        }

    No section accesses memory that another one writes, so that the body may also run in order, with all threads for each
    launch: with more than `max_threads` threads, that is faster.
    """

    name = "host.parallel"
    max_threads = prop_def(IntegerAttr)
    reason = prop_def(StringAttr)
    body = region_def("single_block")

    def __init__(self, body: Block, max_threads: int, reason: str) -> None:
        properties = {"max_threads": IntegerAttr(max_threads, i64), "reason": StringAttr(reason)}
        super().__init__(properties=properties, regions=[Region(body)])

    @property
    def sections(self) -> list[list[Operation]]:
        """The launches of each section."""
        sections: dict[int, list[Operation]] = {}
        for op in self.body.block.ops:
            if not isinstance(op, YieldOp):
                sections.setdefault(section_of(op), []).append(op)
        return [sections[k] for k in sorted(sections)]


def section_of(launch: Operation) -> int:
    """Return the section of a launch in a `host.parallel`."""
    section = launch.attributes.get(SECTION)
    return section.value.data if isinstance(section, IntegerAttr) else 0


@irdl_op_definition
class FailOp(IRDLOperation):
    """Fails the call with an error; values from memory replace the last `{}` of its message."""

    name = "host.fail"
    message = prop_def(StringAttr)
    message_values = var_operand_def(MemRefType)
    traits = traits_def(IsTerminator())
    assembly_format = "$message (`(` $message_values^ `:` type($message_values) `)`)? attr-dict"

    def __init__(self, message: str, message_values: Sequence[SSAValue] = ()) -> None:
        super().__init__(operands=[list(message_values)], properties={"message": StringAttr(message)})


@irdl_op_definition
class BindSizeOp(IRDLOperation):
    """Binds a symbolic size to a value in memory, as `dl.bind_size` does; buffers of that size are allocated after it."""

    name = "host.bind_size"
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
    """Prints the contents of buffers, as `dl.print` does."""

    name = "host.print"
    format_parts = prop_def(ArrayAttr[StringAttr])
    buffers = var_operand_def(MemRefType)
    assembly_format = "$format_parts (`(` $buffers^ `:` type($buffers) `)`)? attr-dict"

    def __init__(self, format_parts: ArrayAttr[StringAttr], buffers: Sequence[SSAValue]) -> None:
        super().__init__(operands=[list(buffers)], properties={"format_parts": format_parts})

    @property
    def texts(self) -> list[str]:
        return [part.data for part in self.format_parts]


@irdl_op_definition
class ComputeOp(IRDLOperation):
    """Computes an op in Python, from the first `inputs` buffers to the others; `function` names it (`runtime/python_ops/`).

        host.compute "string_split" (%x, %d, %parts) {settings = "{}", inputs = 2, data_dependent_sizes = ["k"]} : memref<…>, …

    `data_dependent_sizes` are the sizes of its results that the computation binds; `settings` are JSON.
    """

    name = "host.compute"
    function = prop_def(StringAttr)
    settings = prop_def(StringAttr)
    inputs = prop_def(IntegerAttr)
    data_dependent_sizes = prop_def(ArrayAttr[StringAttr])
    buffers = var_operand_def(MemRefType)
    irdl_options = (ParsePropInAttrDict(),)
    assembly_format = "$function `(` $buffers `)` attr-dict `:` type($buffers)"

    def __init__(
        self,
        function: str,
        settings: str,
        inputs: Sequence[SSAValue],
        results: Sequence[SSAValue],
        data_dependent_sizes: Sequence[str],
    ) -> None:
        properties = {
            "function": StringAttr(function),
            "settings": StringAttr(settings),
            "inputs": IntegerAttr(len(inputs), i64),
            "data_dependent_sizes": ArrayAttr(map(StringAttr, data_dependent_sizes)),
        }
        super().__init__(operands=[[*inputs, *results]], properties=properties)

    @property
    def arguments(self) -> Sequence[SSAValue]:
        return self.buffers[: self.inputs.value.data]

    @property
    def result_buffers(self) -> Sequence[SSAValue]:
        """The buffers of its results."""
        return self.buffers[self.inputs.value.data :]


def sizes_bound_by(op: Operation) -> tuple[str, ...]:
    """Return the names of the sizes that an op binds."""
    match op:
        case BindSizeOp():
            return (op.symbol,)
        case ComputeOp():
            return tuple(symbol.data for symbol in op.data_dependent_sizes)
        case _:
            return ()


Host = Dialect(
    "host",
    [WeightOp, ArenaOp, BufferOp, ViewOp, LaunchOp, YieldOp, LoopOp, WhileOp, IfOp, FailOp, BindSizeOp, PrintOp, ComputeOp],
    [],
)
