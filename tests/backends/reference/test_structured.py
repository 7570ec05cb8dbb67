"""`linalg.generic` on whole iteration spaces: each recognized pattern, and the definition otherwise."""

import numpy as np
import pytest

from dlc.backends.reference import EvaluationError, evaluate
from dlc.dialects.registry import make_context
from dlc.ir import parse_module

RNG = np.random.default_rng(0)
CONTRACT = "%p = arith.mulf %a, %b : f32\n%r = arith.addf %p, %acc : f32"


def generic(
    maps: list[str],
    iterators: str,
    body: str,
    operands: list[np.ndarray],
    init: np.ndarray,
    types: str = "f32",
    verify: bool = True,
):
    """Evaluate a generic op on these operands; `body` names their elements %a, %b, …, %acc and yields %r."""
    kinds = ", ".join('"parallel"' if k == "p" else '"reduction"' for k in iterators)
    arrays = [*operands, init]
    names = [f"%{chr(ord('a') + k)}" for k in range(len(operands))] + ["%acc"]
    shaped = [f"tensor<{''.join(f'{n}x' for n in x.shape)}{types}>" for x in arrays]
    arguments = ", ".join(f"%t{k}: {t}" for k, t in enumerate(shaped))
    inputs = ", ".join(f"%t{k}" for k in range(len(operands)))
    module = parse_module(
        make_context(),
        f"""
        func.func @main({arguments}) -> {shaped[-1]} {{
          %r = linalg.generic {{indexing_maps = [{", ".join(f"affine_map<{m}>" for m in maps)}], iterator_types = [{kinds}]}}
            ins({inputs} : {", ".join(shaped[:-1])}) outs(%t{len(operands)} : {shaped[-1]}) {{
          ^bb0({", ".join(f"{name}: {types}" for name in names)}):
            {body}
            linalg.yield %r : {types}
          }} -> {shaped[-1]}
          func.return %r : {shaped[-1]}
        }}""",
    )
    if verify:
        module.verify()
    (result,) = evaluate(module, arrays)
    return result


def test_batched_matmul_with_an_axis_that_one_operand_lacks():
    a, b = RNG.standard_normal((2, 3, 5), np.float32), RNG.standard_normal((5, 4), np.float32)
    c = RNG.standard_normal((2, 4, 3), np.float32)
    maps = ["(n, i, j, k) -> (n, i, k)", "(n, i, j, k) -> (k, j)", "(n, i, j, k) -> (n, j, i)"]
    result = generic(maps, "pppr", CONTRACT, [a, b], c)
    np.testing.assert_allclose(result, c + (a @ b).transpose(0, 2, 1), rtol=1e-5, atol=1e-6)


def test_a_reduced_axis_that_one_factor_or_none_depends_on():
    a, b = RNG.standard_normal((3, 5), np.float32), RNG.standard_normal((3, 2), np.float32)
    maps = ["(i, k, l) -> (i, k)", "(i, k, l) -> (i, l)", "(i, k, l) -> (i)"]
    result = generic(maps, "prr", CONTRACT, [a, b], np.zeros(3, np.float32))
    np.testing.assert_allclose(result, a.sum(1) * b.sum(1), rtol=1e-5)


def test_depthwise_convolution_with_stride_and_dilation():
    x, w = RNG.standard_normal((11, 3), np.float32), RNG.standard_normal((3, 3), np.float32)
    maps = ["(o, c, k) -> (o * 2 + k * 3, c)", "(o, c, k) -> (k, c)", "(o, c, k) -> (o, c)"]
    result = generic(maps, "ppr", CONTRACT, [x, w], np.zeros((3, 3), np.float32))
    expected = sum(x[3 * k : 3 * k + 5 : 2] * w[k] for k in range(3))
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


def test_packed_weights_are_read_through_division_and_remainder():
    a, w = RNG.standard_normal((2, 5), np.float32), RNG.standard_normal((5, 8), np.float32)
    packed = np.ascontiguousarray(w.reshape(5, 2, 4).transpose(1, 0, 2))
    maps = ["(i, o, k) -> (i, k)", "(i, o, k) -> (o floordiv 4, k, o mod 4)", "(i, o, k) -> (i, o)"]
    result = generic(maps, "ppr", CONTRACT, [a, packed], np.zeros((2, 8), np.float32))
    np.testing.assert_allclose(result, a @ w, rtol=1e-5, atol=1e-6)


def test_integer_contraction_wraps():
    a = RNG.integers(-128, 128, (4, 300)).astype(np.int8)
    b = RNG.integers(-128, 128, (300, 3)).astype(np.int8)
    maps = ["(i, j, k) -> (i, k)", "(i, j, k) -> (k, j)", "(i, j, k) -> (i, j)"]
    body = "%p = arith.muli %a, %b : i8\n%r = arith.addi %p, %acc : i8"
    result = generic(maps, "ppr", body, [a, b], np.zeros((4, 3), np.int8), "i8")
    np.testing.assert_array_equal(result, (a.astype(np.int64) @ b.astype(np.int64)).astype(np.int8))


def test_maximum_over_windows_keeps_nan():
    x = RNG.standard_normal(8).astype(np.float32)
    x[3] = np.nan
    result = generic(
        ["(o, k) -> (o + k)", "(o, k) -> (k)", "(o, k) -> (o)"], "pr", "%r = arith.maximumf %a, %acc : f32",
        [x, np.zeros(3, np.float32)], np.full(6, -np.inf, np.float32),
    )  # fmt: skip
    np.testing.assert_array_equal(result, np.lib.stride_tricks.sliding_window_view(x, 3).max(1))


def test_unrecognized_reductions_are_sequential():
    # acc·½ + a: the order of the elements matters.
    body = "%h = arith.constant 0.5 : f32\n%s = arith.mulf %acc, %h : f32\n%r = arith.addf %s, %a : f32"
    x = RNG.standard_normal((2, 6)).astype(np.float32)
    result = generic(["(i, k) -> (i, k)", "(i, k) -> (i)"], "pr", body, [x], np.zeros(2, np.float32))
    np.testing.assert_allclose(result, (x * 0.5 ** np.arange(5, -1, -1, dtype=np.float32)).sum(1), rtol=1e-5)


def test_reversed_reads_and_indices():
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    body = """
    %i = linalg.index 0 : index
    %n = arith.index_cast %i : index to i32
    %f = arith.sitofp %n : i32 to f32
    %r = arith.addf %a, %f : f32"""
    result = generic(["(i, j) -> (i, -j + 3)", "(i, j) -> (i, j)"], "pp", body, [x], np.zeros((3, 4), np.float32))
    np.testing.assert_array_equal(result, x[:, ::-1] + np.arange(3, dtype=np.float32)[:, None])


def test_a_body_with_a_branch_runs_every_point_in_lockstep():
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    body = """
    %z = arith.constant 0.0 : f32
    %c = arith.cmpf olt, %a, %z : f32
    %r = scf.if %c -> (f32) {
      %n = arith.negf %a : f32
      scf.yield %n : f32
    } else {
      scf.yield %b : f32
    }"""
    maps = ["(i, j) -> (i, j)", "(i, j) -> (i)", "(i, j) -> (i, j)"]
    b = np.array([10, 20, 30], np.float32)
    result = generic(maps, "pp", body, [x, b], np.zeros((3, 4), np.float32))
    np.testing.assert_array_equal(result, np.where(x < 0, -x, b[:, None]))


def test_elements_gathered_from_a_captured_tensor():
    module = parse_module(
        make_context(),
        """
        func.func @main(%table: tensor<5x2xf32>, %i: tensor<3xi32>, %y: tensor<3x2xf32>) -> tensor<3x2xf32> {
          %r = linalg.generic {indexing_maps = [affine_map<(n, c) -> (n)>, affine_map<(n, c) -> (n, c)>],
                               iterator_types = ["parallel", "parallel"]} ins(%i : tensor<3xi32>) outs(%y : tensor<3x2xf32>) {
          ^bb0(%a: i32, %o: f32):
            %row = arith.index_cast %a : i32 to index
            %c = linalg.index 1 : index
            %e = tensor.extract %table[%row, %c] : tensor<5x2xf32>
            linalg.yield %e : f32
          } -> tensor<3x2xf32>
          func.return %r : tensor<3x2xf32>
        }""",
    )
    table, y = RNG.standard_normal((5, 2)).astype(np.float32), np.zeros((3, 2), np.float32)
    (result,) = evaluate(module, [table, np.array([4, 0, 2], np.int32), y])
    np.testing.assert_array_equal(result, table[[4, 0, 2]])
    with pytest.raises(EvaluationError, match=r"tensor.extract: index 0..5 of axis 0, of size 5"):
        evaluate(module, [table, np.array([5, 0, 2], np.int32), y])


def test_out_of_bounds_map_is_an_error():
    # The verifier would refuse it too.
    with pytest.raises(EvaluationError, match=r"reads 1..4 of axis 0, of size 4"):
        generic(["(i) -> (i + 1)", "(i) -> (i)"], "p", "%r = arith.addf %a, %a : f32", [np.zeros(4, np.float32)],
                np.zeros(4, np.float32), verify=False)  # fmt: skip
