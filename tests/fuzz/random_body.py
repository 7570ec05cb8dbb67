"""Random subgraphs of branches and loops, and random bodies of model functions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import AttributeProto, FunctionProto, GraphProto, helper, numpy_helper

from dlc.dialects.dl.base import Array
from tests.fuzz.random_graph import FUNCTION_DOMAIN, ONNX_TYPE, GraphValue, RandomGraph, opsets_of
from tests.fuzz.random_values import is_extreme

# The operator type of calls; the overload is the index of the function.
FUNCTION_OP = "Function"
# Types of attributes that may become parameters of a function.
_PARAMETER_TYPES = (AttributeProto.FLOAT, AttributeProto.INT, AttributeProto.STRING, AttributeProto.FLOATS, AttributeProto.INTS)


class RandomBody(RandomGraph):
    """A body with `arguments`, which may capture values of the outer graph. It is drawn for these values of its arguments."""

    def __init__(self, outer: RandomGraph, arguments: Sequence[Array] = ()) -> None:
        super().__init__(outer.seed)
        self.outer, self.random, self.rng = outer, outer.random, outer.rng
        self.special, self.types, self.opset = outer.special, outer.types, outer.opset
        self.recipes, self.functions, self.depth = outer.recipes, outer.functions, outer.depth - 1
        self.computed, self.computed_probability = outer.computed, outer.computed_probability
        self.body_initializers, self.in_function = outer.body_initializers, isinstance(outer, RandomBody) and outer.in_function
        self.prefix = f"{outer.prefix}b{outer.bodies}_"
        outer.bodies += 1
        self.arguments = [GraphValue(f"{self.prefix}a{k}", np.asarray(a), False) for k, a in enumerate(arguments)]
        self.values = [*self.visible, *self.arguments]
        self.num_captured = len(self.values)

    @property
    def visible(self) -> list[GraphValue]:
        """The outer values that the body may capture."""
        return [v for v in self.outer.values if v.is_readable]

    @property
    def op_results(self) -> list[GraphValue]:
        return [v for v in self.values[self.num_captured :] if not v.exact]

    def source(self, array: Array) -> GraphValue:
        """Add an initializer of the body, or a value of the outer graph."""
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        if is_extreme(array) or self.in_function or self.random.random() < 0.4:
            value = self.outer_source(array)
        else:
            value = GraphValue(f"{self.prefix}x{len(self.weights)}", array, True)
            self.weights[value.name] = self.body_initializers[value.name] = array
        self.values.append(value)
        return value

    def outer_source(self, array: Array) -> GraphValue:
        return self.outer.source(array)

    def constant(self, array: Array) -> GraphValue:
        return self.constant_node(array) if self.flag() else super().constant(array)

    def computed_shape_operand(self, array: Array) -> GraphValue:
        return self.constant(array) if self.in_function else self.outer.computed_shape_operand(array)

    def constant_node(self, array: Array) -> GraphValue:
        """Return the result of a new Constant node."""
        (name,) = self.names("Constant")
        self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array)))
        return GraphValue(name, array, True)

    def result(self, value: GraphValue) -> GraphValue:
        """Return a value as a result of the body, through Identity if the body does not compute it."""
        is_computed = (
            value.name in self.weights or value.name in self.constants or any(value.name in node.output for node in self.nodes)
        )
        return value if is_computed else self.add("Identity", value)

    def pick(self) -> GraphValue:
        """Choose any result, mostly one that the body computes."""
        op_results = [v for v in self.op_results if v.is_readable]
        return self.result(self.random.choice(op_results[-3:]) if op_results and self.random.random() < 0.8 else self.any())

    def pick_like(self, x: GraphValue) -> GraphValue:
        """Choose a result with the dtype and rank of `x`."""
        return self.result(self.like(x.dtype, lambda s: len(s) == len(x.shape), x.shape))

    def fit(self, dtype: np.dtype, shape: tuple[int, ...]) -> GraphValue:
        """Return a result of this dtype and shape."""
        candidates = [v for v in self.values if (v.dtype, v.shape) == (dtype, shape) and v.is_readable]
        value = self.random.choice(candidates[-4:]) if candidates and self.random.random() < 0.7 else self.fresh(dtype, shape)
        if candidates and dtype in self.types_of("Add") and self.flag():
            value = self.add(self.random.choice(["Add", "Sub", "Mul"]), value, self.random.choice(candidates))
        return self.result(value)

    def graph(self, results: Sequence[GraphValue]) -> GraphProto:
        """Return the body with these results; its arguments have shapes or none."""
        shaped = self.flag()
        return helper.make_graph(
            self.nodes,
            f"{self.prefix}body",
            [helper.make_tensor_value_info(a.name, ONNX_TYPE[a.dtype], a.shape if shaped else None) for a in self.arguments],
            [helper.make_empty_tensor_value_info(r.name) for r in results],
            [numpy_helper.from_array(w, n) for n, w in (self.weights | self.constants).items()],
        )


class RandomFunction(RandomBody):
    """The body of a model function, which only sees its arguments; `operands` are their values in the graph."""

    def __init__(self, outer: RandomGraph, operands: Sequence[GraphValue]) -> None:
        super().__init__(outer, [v.array for v in operands])
        # All values come from the arguments, so that nothing can be folded.
        self.in_function = True
        self.operands = [*operands]
        for argument, operand in zip(self.arguments, operands, strict=True):
            argument.exact = operand.exact

    @property
    def visible(self) -> list[GraphValue]:
        return []

    def outer_source(self, array: Array) -> GraphValue:
        """Add one more argument."""
        self.operands.append(self.outer.source(array))
        self.arguments.append(GraphValue(f"{self.prefix}a{len(self.arguments)}", self.operands[-1].array, True))
        return self.arguments[-1]

    def constant(self, array: Array) -> GraphValue:
        return self.constant_node(array)

    def function(self, results: Sequence[GraphValue]) -> tuple[FunctionProto, list[AttributeProto]]:
        """Return the body as the next function of the model, and the attributes that its calls must give."""
        defaults, required = self._parameterize_attributes()
        function = helper.make_function(
            FUNCTION_DOMAIN,
            FUNCTION_OP,
            [a.name for a in self.arguments],
            [r.name for r in results],
            self.nodes,
            opsets_of(self.nodes, self.opset),
            [a.name for a in required],
            defaults,
            overload=str(len(self.functions)),
        )
        return function, required

    def _parameterize_attributes(self) -> tuple[list[AttributeProto], list[AttributeProto]]:
        """Turn some attributes of nodes into attributes of the function: some with a default, some required."""
        groups = defaults, required = list[AttributeProto](), list[AttributeProto]()
        for node in self.nodes:
            for attribute in node.attribute:
                if attribute.type in _PARAMETER_TYPES and self.random.random() < 0.2:
                    setting = AttributeProto()
                    setting.CopyFrom(attribute)
                    setting.name = f"s{len(defaults) + len(required)}"
                    self.random.choice(groups).append(setting)
                    reference = AttributeProto(name=attribute.name, type=attribute.type, ref_attr_name=setting.name)
                    attribute.CopyFrom(reference)
        return defaults, required
