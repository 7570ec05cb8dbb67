"""Comparison, selection and conversion on vectors print as in MLIR and round-trip."""

import pytest
from xdsl.rewriter import Rewriter

from dlc.ir import Builtin, Context, Linalg, ParseError, VerifyException, arith, func, i32, parse_module, print_module, vector

ACCEPTED = [
    "%r = arith.cmpf olt, %a, %a : vector<2x4xf32>",
    "%r = arith.cmpi slt, %i, %i : vector<2x4xi32>",
    "%r = arith.select %m, %a, %a : vector<2x4xi1>, vector<2x4xf32>",
    "%r = arith.select %c, %a, %a : vector<2x4xf32>",
    "%r = arith.fptosi %a : vector<2x4xf32> to vector<2x4xi32>",
    "%r = arith.uitofp %i : vector<2x4xi32> to vector<2x4xf32>",
    "%r = arith.extsi %i : vector<2x4xi32> to vector<2x4xi64>",
    "%r = arith.trunci %i : vector<2x4xi32> to vector<2x4xi8>",
    "%r = arith.index_cast %i : vector<2x4xi32> to vector<2x4xindex>",
]
REFUSED = [
    "%r = arith.trunci %i : vector<2x4xi32> to vector<2x4xi64>",
    "%r = arith.extui %i : vector<2x4xi32> to vector<4xi64>",
    '%r = "arith.select"(%m, %c, %c) : (vector<2x4xi1>, i1, i1) -> i1',
]


def parse(line: str):
    context = Context()
    for dialect in (Builtin, arith.Arith, func.Func, vector.Vector):
        context.load_dialect(dialect)
    arguments = "%a: vector<2x4xf32>, %i: vector<2x4xi32>, %m: vector<2x4xi1>, %c: i1"
    return context, parse_module(context, f"func.func @f({arguments}) {{\n{line}\nfunc.return\n}}")


@pytest.mark.parametrize("line", ACCEPTED)
def test_vector_forms_verify_and_round_trip(line: str):
    context, module = parse(line)
    module.verify()
    text = print_module(module)
    assert line in text
    for generic in (False, True):
        again = parse_module(context, print_module(module, generic=generic))
        again.verify()
        assert print_module(again) == text


@pytest.mark.parametrize("line", REFUSED)
def test_shapes_and_widths_are_verified(line: str):
    with pytest.raises(VerifyException):
        parse(line)[1].verify()


def test_a_comparison_of_vectors_has_a_vector_of_bools():
    _, module = parse(ACCEPTED[0])
    (op,) = [op for op in module.walk() if isinstance(op, arith.CmpfOp)]
    assert str(op.result.type) == "vector<2x4xi1>"


def test_changed_ops_are_verified_again():
    _, module = parse(ACCEPTED[0])
    (op,) = [op for op in module.walk() if isinstance(op, arith.CmpfOp)]
    module.verify()
    predicate = op.properties.pop("predicate")
    with pytest.raises(VerifyException, match="predicate"):
        op.verify()
    op.properties["predicate"] = predicate
    op.verify()
    rewritten = Rewriter.replace_value_with_new_type(op.result, i32)
    with pytest.raises(VerifyException):
        rewritten.owner.verify()


def test_unterminated_strings_are_lexed_in_linear_time():
    with pytest.raises(ParseError, match="closing string literal"):
        parse('%r"= arith.cmpf olt, %a, %a : vector<2x4xf32> of a line that is as long as lines are')


def test_errors_of_op_constructors_have_a_location():
    context = Context()
    for dialect in (Builtin, func.Func, Linalg):
        context.load_dialect(dialect)
    with pytest.raises(ParseError, match=r"(?s)<text>:2:.*IndexError"):
        parse_module(
            context, "func.func @f(%a: f32, %b: memref<2xf32>) {\nlinalg.fill bb0(%a : f32) outs(%b : memref<2xf32>)\n}"
        )
