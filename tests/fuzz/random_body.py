"""Random bodies of nodes, within a graph or a function: branches, steps of loops, what a model brings along as operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import AttributeProto, FunctionProto, GraphProto, helper, numpy_helper

from dlc.dialects.dl.base import Array
from tests.fuzz.draws import is_extreme
from tests.fuzz.random_graph import FUNCTIONS, OF_ONNX, GraphValue, RandomGraph, opsets_of

# What calls of the functions are called; a number says of which.
FUNCTION = "Function"
# Settings that a call may give.
_NAMED = (AttributeProto.FLOAT, AttributeProto.INT, AttributeProto.STRING, AttributeProto.FLOATS, AttributeProto.INTS)


class RandomBody(RandomGraph):
    """A body that is given `arguments`, and reads what is around it. It is drawn for these elements of its arguments."""

    def __init__(self, outer: RandomGraph, arguments: Sequence[Array] = ()) -> None:
        super().__init__(outer.seed)
        self.outer, self.random, self.numbers = outer, outer.random, outer.numbers
        self.special, self.types, self.opset = outer.special, outer.types, outer.opset
        self.recipes, self.functions, self.depth = outer.recipes, outer.functions, outer.depth - 1
        self.computed, self.how_often_computed = outer.computed, outer.how_often_computed
        self.in_bodies, self.in_function = outer.in_bodies, isinstance(outer, RandomBody) and outer.in_function
        self.prefix = f"{outer.prefix}b{outer.bodies}_"
        outer.bodies += 1
        self.arguments = [GraphValue(f"{self.prefix}a{k}", np.asarray(a), False) for k, a in enumerate(arguments)]
        self.values = [*self.seen, *self.arguments]
        self.around = len(self.values)

    @property
    def seen(self) -> list[GraphValue]:
        """What is around it."""
        return [v for v in self.outer.values if v.may_be_read]

    @property
    def made(self) -> list[GraphValue]:
        return [v for v in self.values[self.around :] if not v.exact]

    def given(self, array: Array) -> GraphValue:
        """An initializer, or something from outside."""
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        if is_extreme(array) or self.in_function or self.random.random() < 0.4:
            value = self.given_outside(array)
        else:
            value = GraphValue(f"{self.prefix}x{len(self.weights)}", array, True)
            self.weights[value.name] = self.in_bodies[value.name] = array
        self.values.append(value)
        return value

    def given_outside(self, array: Array) -> GraphValue:
        return self.outer.given(array)

    def constant(self, array: Array) -> GraphValue:
        return self.noted(array) if self.flag() else super().constant(array)

    def computed_setting(self, array: Array) -> GraphValue:
        return self.constant(array) if self.in_function else self.outer.computed_setting(array)

    def noted(self, array: Array) -> GraphValue:
        """The result of a Constant."""
        (name,) = self.names("Constant")
        self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array)))
        return GraphValue(name, array, True)

    def result(self, value: GraphValue) -> GraphValue:
        """A value as one that the body itself makes."""
        own = value.name in self.weights or value.name in self.settings or any(value.name in node.output for node in self.nodes)
        return value if own else self.add("Identity", value)

    def picked(self) -> GraphValue:
        """Any result: mostly what it has made itself."""
        made = [v for v in self.made if v.may_be_read]
        return self.result(self.random.choice(made[-3:]) if made and self.random.random() < 0.8 else self.any())

    def picked_like(self, x: GraphValue) -> GraphValue:
        """A result of the dtype and rank of `x`."""
        return self.result(self.like(x.dtype, lambda s: len(s) == len(x.shape), x.shape))

    def fitted(self, dtype: np.dtype, shape: tuple[int, ...]) -> GraphValue:
        """A result of this dtype and shape."""
        found = [v for v in self.values if (v.dtype, v.shape) == (dtype, shape) and v.may_be_read]
        value = self.random.choice(found[-4:]) if found and self.random.random() < 0.7 else self.fresh(dtype, shape)
        if found and dtype in self.types_of("Add") and self.flag():
            value = self.add(self.random.choice(["Add", "Sub", "Mul"]), value, self.random.choice(found))
        return self.result(value)

    def graph(self, results: Sequence[GraphValue]) -> GraphProto:
        """The body with these results; its arguments have a shape or none."""
        shaped = self.flag()
        return helper.make_graph(
            self.nodes,
            f"{self.prefix}body",
            [helper.make_tensor_value_info(a.name, OF_ONNX[a.dtype], a.shape if shaped else None) for a in self.arguments],
            [helper.make_empty_tensor_value_info(r.name) for r in results],
            [numpy_helper.from_array(w, n) for n, w in (self.weights | self.settings).items()],
        )


class RandomFunction(RandomBody):
    """The body of a function, which sees its arguments only: `operands` are what they are in the graph."""

    def __init__(self, outer: RandomGraph, operands: Sequence[GraphValue]) -> None:
        super().__init__(outer, [v.array for v in operands])
        # All that it computes with comes from calls: nothing is folded in it that might be an input.
        self.in_function = True
        self.operands = [*operands]
        for argument, operand in zip(self.arguments, operands, strict=True):
            argument.exact = operand.exact

    @property
    def seen(self) -> list[GraphValue]:
        return []

    def given_outside(self, array: Array) -> GraphValue:
        """One more argument."""
        self.operands.append(self.outer.given(array))
        self.arguments.append(GraphValue(f"{self.prefix}a{len(self.arguments)}", self.operands[-1].array, True))
        return self.arguments[-1]

    def constant(self, array: Array) -> GraphValue:
        return self.noted(array)

    def function(self, results: Sequence[GraphValue]) -> tuple[FunctionProto, list[AttributeProto]]:
        """The body as the next function of the model, and what settings calls of it have to give."""
        defaults, given = self._settings_from_calls()
        function = helper.make_function(
            FUNCTIONS,
            FUNCTION,
            [a.name for a in self.arguments],
            [r.name for r in results],
            self.nodes,
            opsets_of(self.nodes, self.opset),
            [a.name for a in given],
            defaults,
            overload=str(len(self.functions)),
        )
        return function, given

    def _settings_from_calls(self) -> tuple[list[AttributeProto], list[AttributeProto]]:
        """Makes some settings of nodes what a call says: those with a default, and those without."""
        kinds = defaults, given = list[AttributeProto](), list[AttributeProto]()
        for node in self.nodes:
            for attribute in node.attribute:
                if attribute.type in _NAMED and self.random.random() < 0.2:
                    setting = AttributeProto()
                    setting.CopyFrom(attribute)
                    setting.name = f"s{len(defaults) + len(given)}"
                    self.random.choice(kinds).append(setting)
                    reference = AttributeProto(name=attribute.name, type=attribute.type, ref_attr_name=setting.name)
                    attribute.CopyFrom(reference)
        return defaults, given
