"""Attention as structured ops: two contractions with the softmax of rows between them."""

from __future__ import annotations

# Keys are packed in panels. A constant is added to each score, and positions decide which are unmasked: i < j <= i + 7.
ATTENTION = """
#hij = affine_map<(h, i, j) -> (h, i, j)>
#hi = affine_map<(h, i, j) -> (h, i)>
#ij = affine_map<(h, i, j) -> (i, j)>
builtin.module {
  func.func @attention(%q: tensor<2x9x6xf32>, %k: tensor<3x2x6x8xf32>, %mask: tensor<9x21xf32>, %v: tensor<2x21x12xf32>,
      %out: tensor<2x9x12xf32>) -> tensor<2x9x12xf32> attributes {kernel} {
    %zero = arith.constant 0.0 : f32
    %lowest = arith.constant 0xff800000 : f32
    %c7 = arith.constant 7 : i32
    %e0 = tensor.empty() : tensor<2x9x21xf32>
    %z0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<2x9x21xf32>) -> tensor<2x9x21xf32>
    %s = linalg.generic {indexing_maps = [affine_map<(h, i, j, d) -> (h, i, d)>,
        affine_map<(h, i, j, d) -> (j floordiv 8, h, d, j mod 8)>, affine_map<(h, i, j, d) -> (h, i, j)>],
        iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
        ins(%q, %k : tensor<2x9x6xf32>, tensor<3x2x6x8xf32>) outs(%z0 : tensor<2x9x21xf32>) {
    ^bb0(%a: f32, %b: f32, %acc: f32):
      %p = arith.mulf %a, %b : f32
      %n = arith.addf %p, %acc : f32
      linalg.yield %n : f32
    } -> tensor<2x9x21xf32>
    %e1 = tensor.empty() : tensor<2x9x21xf32>
    %m = linalg.generic {indexing_maps = [#hij, #ij, #hij], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%s, %mask : tensor<2x9x21xf32>, tensor<9x21xf32>) outs(%e1 : tensor<2x9x21xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %x = arith.addf %a, %b : f32
      %i = linalg.index 1 : index
      %j = linalg.index 2 : index
      %row = arith.index_cast %i : index to i32
      %key = arith.index_cast %j : index to i32
      %end = arith.addi %row, %c7 : i32
      %first = arith.cmpi slt, %row, %key : i32
      %last = arith.cmpi sge, %end, %key : i32
      %seen = arith.andi %first, %last : i1
      %n = arith.select %seen, %x, %lowest : f32
      linalg.yield %n : f32
    } -> tensor<2x9x21xf32>
    %e2 = tensor.empty() : tensor<2x9xf32>
    %z2 = linalg.fill ins(%lowest : f32) outs(%e2 : tensor<2x9xf32>) -> tensor<2x9xf32>
    %top = linalg.generic {indexing_maps = [#hij, #hi], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%m : tensor<2x9x21xf32>) outs(%z2 : tensor<2x9xf32>) {
    ^bb0(%a: f32, %acc: f32):
      %n = arith.maximumf %acc, %a : f32
      linalg.yield %n : f32
    } -> tensor<2x9xf32>
    %e3 = tensor.empty() : tensor<2x9x21xf32>
    %w = linalg.generic {indexing_maps = [#hij, #hi, #hij], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%m, %top : tensor<2x9x21xf32>, tensor<2x9xf32>) outs(%e3 : tensor<2x9x21xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %d = arith.subf %a, %b : f32
      %n = math.exp %d : f32
      linalg.yield %n : f32
    } -> tensor<2x9x21xf32>
    %e4 = tensor.empty() : tensor<2x9xf32>
    %z4 = linalg.fill ins(%zero : f32) outs(%e4 : tensor<2x9xf32>) -> tensor<2x9xf32>
    %t = linalg.generic {indexing_maps = [#hij, #hi], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%w : tensor<2x9x21xf32>) outs(%z4 : tensor<2x9xf32>) {
    ^bb0(%a: f32, %acc: f32):
      %n = arith.addf %acc, %a : f32
      linalg.yield %n : f32
    } -> tensor<2x9xf32>
    %e5 = tensor.empty() : tensor<2x9x12xf32>
    %z5 = linalg.fill ins(%zero : f32) outs(%e5 : tensor<2x9x12xf32>) -> tensor<2x9x12xf32>
    %y = linalg.generic {indexing_maps = [affine_map<(h, i, e, j) -> (h, i, j)>, affine_map<(h, i, e, j) -> (h, j, e)>,
        affine_map<(h, i, e, j) -> (h, i, e)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
        ins(%w, %v : tensor<2x9x21xf32>, tensor<2x21x12xf32>) outs(%z5 : tensor<2x9x12xf32>) {
    ^bb0(%a: f32, %b: f32, %acc: f32):
      %p = arith.mulf %a, %b : f32
      %n = arith.addf %p, %acc : f32
      linalg.yield %n : f32
    } -> tensor<2x9x12xf32>
    %r = linalg.generic {indexing_maps = [#hij, #hi, #hij], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%y, %t : tensor<2x9x12xf32>, tensor<2x9xf32>) outs(%out : tensor<2x9x12xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %n = arith.divf %a, %b : f32
      linalg.yield %n : f32
    } -> tensor<2x9x12xf32>
    func.return %r : tensor<2x9x12xf32>
  }
}
"""

# The same, vectorized along queries: queries have a transposed copy, and keys are read in place.
TRANSPOSED_ATTENTION = """
#hie = affine_map<(h, i, e) -> (h, i, e)>
#he = affine_map<(h, i, e) -> (h, i)>
#hij = affine_map<(h, j, i) -> (h, j, i)>
#hi = affine_map<(h, j, i) -> (h, i)>
#ij = affine_map<(h, j, i) -> (j, i)>
builtin.module {
  func.func @columns_of_attention(%q: tensor<2x9x6xf32>, %k: tensor<2x21x6xf32>, %mask: tensor<21x9xf32>, %v: tensor<2x21x12xf32>,
      %out: tensor<2x9x12xf32>) -> tensor<2x9x12xf32> attributes {kernel} {
    %zero = arith.constant 0.0 : f32
    %lowest = arith.constant 0xff800000 : f32
    %c7 = arith.constant 7 : i32
    %e0 = tensor.empty() : tensor<2x21x9xf32>
    %z0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<2x21x9xf32>) -> tensor<2x21x9xf32>
    %e = tensor.empty() : tensor<2x6x9xf32>
    %u = linalg.generic {indexing_maps = [affine_map<(h, d, i) -> (h, i, d)>, affine_map<(h, d, i) -> (h, d, i)>],
        iterator_types = ["parallel", "parallel", "parallel"]} ins(%q : tensor<2x9x6xf32>) outs(%e : tensor<2x6x9xf32>) {
    ^bb0(%a: f32, %b: f32):
      linalg.yield %a : f32
    } -> tensor<2x6x9xf32>
    %s = linalg.generic {indexing_maps = [affine_map<(h, j, i, d) -> (h, j, d)>,
        affine_map<(h, j, i, d) -> (h, d, i)>, affine_map<(h, j, i, d) -> (h, j, i)>],
        iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
        ins(%k, %u : tensor<2x21x6xf32>, tensor<2x6x9xf32>) outs(%z0 : tensor<2x21x9xf32>) {
    ^bb0(%a: f32, %b: f32, %acc: f32):
      %p = arith.mulf %a, %b : f32
      %n = arith.addf %p, %acc : f32
      linalg.yield %n : f32
    } -> tensor<2x21x9xf32>
    %e1 = tensor.empty() : tensor<2x21x9xf32>
    %m = linalg.generic {indexing_maps = [#hij, #ij, #hij], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%s, %mask : tensor<2x21x9xf32>, tensor<21x9xf32>) outs(%e1 : tensor<2x21x9xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %x = arith.addf %a, %b : f32
      %i = linalg.index 2 : index
      %j = linalg.index 1 : index
      %row = arith.index_cast %i : index to i32
      %key = arith.index_cast %j : index to i32
      %end = arith.addi %row, %c7 : i32
      %first = arith.cmpi slt, %row, %key : i32
      %last = arith.cmpi sge, %end, %key : i32
      %seen = arith.andi %first, %last : i1
      %n = arith.select %seen, %x, %lowest : f32
      linalg.yield %n : f32
    } -> tensor<2x21x9xf32>
    %e2 = tensor.empty() : tensor<2x9xf32>
    %z2 = linalg.fill ins(%lowest : f32) outs(%e2 : tensor<2x9xf32>) -> tensor<2x9xf32>
    %top = linalg.generic {indexing_maps = [#hij, #hi], iterator_types = ["parallel", "reduction", "parallel"]}
        ins(%m : tensor<2x21x9xf32>) outs(%z2 : tensor<2x9xf32>) {
    ^bb0(%a: f32, %acc: f32):
      %n = arith.maximumf %acc, %a : f32
      linalg.yield %n : f32
    } -> tensor<2x9xf32>
    %e3 = tensor.empty() : tensor<2x21x9xf32>
    %w = linalg.generic {indexing_maps = [#hij, #hi, #hij], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%m, %top : tensor<2x21x9xf32>, tensor<2x9xf32>) outs(%e3 : tensor<2x21x9xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %d = arith.subf %a, %b : f32
      %n = math.exp %d : f32
      linalg.yield %n : f32
    } -> tensor<2x21x9xf32>
    %e4 = tensor.empty() : tensor<2x9xf32>
    %z4 = linalg.fill ins(%zero : f32) outs(%e4 : tensor<2x9xf32>) -> tensor<2x9xf32>
    %t = linalg.generic {indexing_maps = [#hij, #hi], iterator_types = ["parallel", "reduction", "parallel"]}
        ins(%w : tensor<2x21x9xf32>) outs(%z4 : tensor<2x9xf32>) {
    ^bb0(%a: f32, %acc: f32):
      %n = arith.addf %acc, %a : f32
      linalg.yield %n : f32
    } -> tensor<2x9xf32>
    %e5 = tensor.empty() : tensor<2x9x12xf32>
    %z5 = linalg.fill ins(%zero : f32) outs(%e5 : tensor<2x9x12xf32>) -> tensor<2x9x12xf32>
    %y = linalg.generic {indexing_maps = [affine_map<(h, i, e, j) -> (h, j, i)>, affine_map<(h, i, e, j) -> (h, j, e)>,
        affine_map<(h, i, e, j) -> (h, i, e)>], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
        ins(%w, %v : tensor<2x21x9xf32>, tensor<2x21x12xf32>) outs(%z5 : tensor<2x9x12xf32>) {
    ^bb0(%a: f32, %b: f32, %acc: f32):
      %p = arith.mulf %a, %b : f32
      %n = arith.addf %p, %acc : f32
      linalg.yield %n : f32
    } -> tensor<2x9x12xf32>
    %r = linalg.generic {indexing_maps = [#hie, #he, #hie], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%y, %t : tensor<2x9x12xf32>, tensor<2x9xf32>) outs(%out : tensor<2x9x12xf32>) {
    ^bb0(%a: f32, %b: f32, %c: f32):
      %n = arith.divf %a, %b : f32
      linalg.yield %n : f32
    } -> tensor<2x9x12xf32>
    func.return %r : tensor<2x9x12xf32>
  }
}
"""
