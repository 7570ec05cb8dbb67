"""Shardings of the `sdy` dialect become annotations."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dlc
from dlc.compiler.program import Program
from dlc.compiler.sharding import shard_program
from dlc.distributed.mesh_model import compile_on_mesh
from dlc.errors import ModelError, UnsupportedError
from dlc.options import Options
from dlc.runtime.collectives.mesh import Mesh
from dlc.runtime.collectives.threads import run_ranks
from dlc.runtime.saving.container import to_bytes
from dlc.stablehlo import read_module
from dlc.stablehlo.shardings import parse_sharding

MESH = Mesh.of({"data": 2, "model": 2})
TEXT = """
module @jit_f attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["data"=2, "model"=2]> {stablehlo.mesh = {axes = [{name = "data", size = 2 : i64}]}}
  func.func public @main(%arg0: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>}, %arg1: tensor<4x8xf32>)
      -> (tensor<16xf32> {jax.result_info = "y", sdy.sharding = #sdy.sharding<@mesh, [{"data", "model"}]>}) {
    %0 = stablehlo.dot_general %arg1, %arg0, contracting_dims = [1] x [0]
      : (tensor<4x8xf32>, tensor<8x16xf32>) -> tensor<4x16xf32>
    %1 = sdy.sharding_constraint %0 <@mesh, [{"data"}, {?}]> : tensor<4x16xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %2 = stablehlo.reduce(%1 init: %cst) applies stablehlo.add across dimensions = [0]
      : (tensor<4x16xf32>, tensor<f32>) -> tensor<16xf32>
    return %2 : tensor<16xf32>
  }
}
"""
# A manual computation: a sum over `model`, then a gather over `data`, a sum of parts, a ring and the id of the device.
SHARD_MAP = """
module @jit_body attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["data"=2, "model"=2]>
  func.func public @main(%arg0: tensor<4x8xf32>, %arg1: tensor<8x16xf32>)
      -> (tensor<4x32xf32>, tensor<4x32xf32>, tensor<4x16xf32>, tensor<4xui32>) {
    %0:4 = sdy.manual_computation(%arg0, %arg1)
        in_shardings=[<@mesh, [{"data"}, {"model"}]>, <@mesh, [{"model"}, {}]>]
        out_shardings=[<@mesh, [{"data"}, {}]>, <@mesh, [{"data"}, {"model"}]>, <@mesh, [{"data"}, {}]>, <@mesh, [{"data", "model"}]>]
        manual_axes={"data", "model"} (%arg2: tensor<2x4xf32>, %arg3: tensor<4x16xf32>) {
      %1 = stablehlo.dot_general %arg2, %arg3, contracting_dims = [1] x [0]
        : (tensor<2x4xf32>, tensor<4x16xf32>) -> tensor<2x16xf32>
      %2 = "stablehlo.all_reduce"(%1) <{replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>, use_global_device_ids}> ({
      ^bb0(%arg4: tensor<f32>, %arg5: tensor<f32>):
        %9 = stablehlo.add %arg4, %arg5 : tensor<f32>
        stablehlo.return %9 : tensor<f32>
      }) : (tensor<2x16xf32>) -> tensor<2x16xf32>
      %3 = "stablehlo.all_gather"(%2) <{all_gather_dim = 1 : i64, replica_groups = dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>}>
        : (tensor<2x16xf32>) -> tensor<2x32xf32>
      %4 = "stablehlo.reduce_scatter"(%3) <{replica_groups = dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>,
        scatter_dimension = 1 : i64}> ({
      ^bb0(%arg4: tensor<f32>, %arg5: tensor<f32>):
        %9 = stablehlo.add %arg4, %arg5 : tensor<f32>
        stablehlo.return %9 : tensor<f32>
      }) : (tensor<2x32xf32>) -> tensor<2x16xf32>
      %5 = "stablehlo.collective_permute"(%2) <{source_target_pairs = dense<[[0, 2], [2, 0], [1, 3], [3, 1]]> : tensor<4x2xi64>}>
        : (tensor<2x16xf32>) -> tensor<2x16xf32>
      %6 = stablehlo.partition_id : tensor<ui32>
      %7 = stablehlo.broadcast_in_dim %6, dims = [] : (tensor<ui32>) -> tensor<1xui32>
      sdy.return %3, %4, %5, %7 : tensor<2x32xf32>, tensor<2x16xf32>, tensor<2x16xf32>, tensor<1xui32>
    } : (tensor<4x8xf32>, tensor<8x16xf32>) -> (tensor<4x32xf32>, tensor<4x32xf32>, tensor<4x16xf32>, tensor<4xui32>)
    return %0#0, %0#1, %0#2, %0#3 : tensor<4x32xf32>, tensor<4x32xf32>, tensor<4x16xf32>, tensor<4xui32>
  }
}
"""
RNG = np.random.default_rng(0)
W, X = RNG.normal(size=(8, 16)).astype(np.float32), RNG.normal(size=(4, 8)).astype(np.float32)


def program(text: str = TEXT) -> Program:
    imported = read_module(text, "f.mlir")
    return Program(imported.module, imported.weights, "f")


def test_annotations_of_arguments_values_and_results() -> None:
    sharded = shard_program(program(), MESH, [None, None], [None])
    assert sharded.inputs == (((), ("model",)), (("data",), ()))
    assert sharded.outputs == ((("data", "model"),),)
    explicit = shard_program(program(), MESH, [((), ()), None], [((),)])
    assert explicit.inputs[0] == ((), ()) and explicit.outputs == (((),),)


def test_ranks_compute_the_unsharded_result() -> None:
    results = run_ranks(MESH, lambda rank: compile_on_mesh(program(), MESH, None, "cpu", Options(cache=False))(W, X)["y"])
    for result in results:
        np.testing.assert_allclose(result, (X @ W).sum(0), rtol=1e-5)


def test_files_with_a_split_default() -> None:
    """The file of a function on a mesh serves all ranks, so that each needs the whole default value."""
    split, whole = replace(program(), defaults={"arg0": W}), ((), ())

    def save(rank: int) -> bytes:
        with pytest.raises(
            UnsupportedError, match=r"default value of input 'arg0' is split over the mesh .*; annotate the input"
        ):
            to_bytes(compile_on_mesh(split, MESH, None, "cpu", Options(cache=False)))
        return to_bytes(compile_on_mesh(split, MESH, [whole, None], "cpu", Options(cache=False)))

    assert len(set(run_ranks(MESH, save))) == 1


def test_manual_computation() -> None:
    manual, product = program(SHARD_MAP), X @ W
    gathered = np.tile(np.concatenate([product[:2], product[2:]], 1), (2, 1))
    expected = gathered, 2 * gathered, np.roll(product, 2, 0), np.arange(4)
    options = Options(cache=False)
    for results in run_ranks(MESH, lambda rank: compile_on_mesh(manual, MESH, None, "cpu", options)(X, W)):
        for got, want in zip(results.values(), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('manual_axes={"data", "model"}', 'manual_axes={"data"}', "expected all axes of the mesh data=2,model=2"),
        ("dense<[[0, 1], [2, 3]]>", "dense<[[0, 3], [1, 2]]>", "match no axes of the mesh data=2,model=2"),
        ("[[0, 2], [2, 0], [1, 3], [3, 1]]", "[[0, 2], [2, 0], [1, 0], [3, 1]]", "match no axis of the mesh"),
        ("stablehlo.add %arg4", "stablehlo.multiply %arg4", "a reduction by multiply; expected one of add, maximum"),
    ],
)
def test_unsupported_manual_computations(old: str, new: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        program(SHARD_MAP.replace(old, new))


def test_another_mesh(tmp_path: Path) -> None:
    """A model may run on a mesh of another size; without a mesh, shardings are ignored."""
    assert shard_program(program(), Mesh.of({"data": 4, "model": 1}), [None, None], [None]).inputs[1] == (("data",), ())
    path = tmp_path / "f.mlir"
    path.write_text(TEXT)
    np.testing.assert_allclose(dlc.compile_model(path, cache=False)(W, X)["y"], (X @ W).sum(0), rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ('#sdy.sharding<@mesh, [{"a", "b"}, {}, {?}]>', [("a", "b"), (), None]),
        ('<mesh<["a"=2]>, [{"a", ?}p1]>', [("a",)]),
        ("@mesh , [ ]", []),
        ('@mesh, [{}], replicated={"a"}', [()]),
    ],
)
def test_forms(text: str, spec: list[tuple[str, ...] | None]) -> None:
    assert parse_sharding(text, len(spec), "f.mlir") == spec


def test_unsupported_forms() -> None:
    for text in ('@mesh, [{"a":(1)2}]', '@mesh, [{}], unreduced={"a"}'):
        with pytest.raises(UnsupportedError, match=r"f\.mlir:3: the sharding @mesh, .* is not supported"):
            parse_sharding(text, 1, "f.mlir:3")
    with pytest.raises(ModelError, match="one entry in braces for each of 2 axes"):
        parse_sharding('@mesh, [{"a"}]', 2, "f.mlir:3")


@pytest.mark.parametrize(
    "sharding", ['%arg0: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"model"}]>}', '<@mesh, [{"data"}, {?}]>']
)
def test_unknown_meshes_and_axes(sharding: str) -> None:
    assert sharding in TEXT
    with pytest.raises(
        ModelError, match=r"f\.mlir:\d+: the sharding .*: @other is not a mesh of the module; its meshes are @mesh"
    ):
        program(TEXT.replace(sharding, sharding.replace("@mesh", "@other")))
    with pytest.raises(
        ModelError, match=r"f\.mlir:\d+: the sharding .*: 'rows' is not an axis of @mesh; its axes are data, model"
    ):
        program(TEXT.replace(sharding, sharding.replace('"model"', '"rows"').replace('"data"', '"rows"')))


def test_generic_form() -> None:
    text = """
    "builtin.module"() <{sym_name = "jit_f"}> ({
      "sdy.mesh"() <{mesh = #sdy.mesh<["data"=2]>, sym_name = "mesh"}> : () -> ()
      "func.func"() <{function_type = (tensor<4xf32>) -> tensor<4xf32>, sym_name = "main", sym_visibility = "public",
          arg_attrs = [{sdy.sharding = #sdy.sharding<@mesh, [{"data"}]>}]}> ({
      ^bb0(%arg0: tensor<4xf32>):
        %0 = "stablehlo.add"(%arg0, %arg0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
        "func.return"(%0) : (tensor<4xf32>) -> ()
      }) : () -> ()
    }) : () -> ()
    """
    assert shard_program(program(text), Mesh.of({"data": 2}), [None], [None]).inputs == ((("data",),),)
    with pytest.raises(ModelError, match="@other is not a mesh of the module"):
        program(text.replace("@mesh", "@other"))
