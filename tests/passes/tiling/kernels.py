"""Small kernels at the `linalg` stage for the tests of tiling."""

from __future__ import annotations

from dlc.dialects.registry import make_context
from dlc.ir import ModuleOp, parse_module

from .attention import ATTENTION, TRANSPOSED_ATTENTION

MATMUL = """
builtin.module {
  func.func @matmul(%a: tensor<13x24xf32>, %b: tensor<3x24x16xf32>, %c: tensor<13x40xf32>) -> tensor<13x40xf32> attributes {kernel} {
    %zero = arith.constant 0.0 : f32
    %z = linalg.fill ins(%zero : f32) outs(%c : tensor<13x40xf32>) -> tensor<13x40xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>,
        affine_map<(m, n, k) -> (n floordiv 16, k, n mod 16)>, affine_map<(m, n, k) -> (m, n)>],
        iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%a, %b : tensor<13x24xf32>, tensor<3x24x16xf32>) outs(%z : tensor<13x40xf32>) {
    ^bb0(%x: f32, %w: f32, %acc: f32):
      %p = arith.mulf %x, %w : f32
      %s = arith.addf %p, %acc : f32
      linalg.yield %s : f32
    } -> tensor<13x40xf32>
    func.return %r : tensor<13x40xf32>
  }
}
"""

# 3×3, stride 2, into the interior of a padded result, with bias, residual and ReLU.
CONVOLUTION = """
builtin.module {
  func.func @conv(%x: tensor<15x13x5xf32>, %w: tensor<3x3x5x20xf32>, %b: tensor<20xf32>, %s: tensor<9x8x20xf32>,
      %y: tensor<9x8x20xf32>) -> tensor<9x8x20xf32> attributes {kernel} {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<7x6x20xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<7x6x20xf32>) -> tensor<7x6x20xf32>
    %c = linalg.generic {indexing_maps = [affine_map<(h, w, o, i, j, k) -> (2 * h + i, 2 * w + j, k)>,
        affine_map<(h, w, o, i, j, k) -> (i, j, k, o)>, affine_map<(h, w, o, i, j, k) -> (h, w, o)>],
        iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction", "reduction"]}
        ins(%x, %w : tensor<15x13x5xf32>, tensor<3x3x5x20xf32>) outs(%z : tensor<7x6x20xf32>) {
    ^bb0(%xe: f32, %we: f32, %acc: f32):
      %p = arith.mulf %xe, %we : f32
      %n = arith.addf %p, %acc : f32
      linalg.yield %n : f32
    } -> tensor<7x6x20xf32>
    %si = tensor.extract_slice %s[1, 1, 0] [7, 6, 20] [1, 1, 1] : tensor<9x8x20xf32> to tensor<7x6x20xf32>
    %yi = tensor.extract_slice %y[1, 1, 0] [7, 6, 20] [1, 1, 1] : tensor<9x8x20xf32> to tensor<7x6x20xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(h, w, o) -> (h, w, o)>, affine_map<(h, w, o) -> (o)>,
        affine_map<(h, w, o) -> (h, w, o)>, affine_map<(h, w, o) -> (h, w, o)>],
        iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%c, %b, %si : tensor<7x6x20xf32>, tensor<20xf32>, tensor<7x6x20xf32>) outs(%yi : tensor<7x6x20xf32>) {
    ^bb0(%ce: f32, %be: f32, %se: f32, %old: f32):
      %p = arith.addf %ce, %be : f32
      %q = arith.addf %p, %se : f32
      %t = arith.maximumf %q, %zero : f32
      linalg.yield %t : f32
    } -> tensor<7x6x20xf32>
    %top = tensor.extract_slice %y[0, 0, 0] [1, 8, 20] [1, 1, 1] : tensor<9x8x20xf32> to tensor<1x8x20xf32>
    %ft = linalg.fill ins(%zero : f32) outs(%top : tensor<1x8x20xf32>) -> tensor<1x8x20xf32>
    %y1 = tensor.insert_slice %ft into %y[0, 0, 0] [1, 8, 20] [1, 1, 1] : tensor<1x8x20xf32> into tensor<9x8x20xf32>
    %out = tensor.insert_slice %r into %y1[1, 1, 0] [7, 6, 20] [1, 1, 1] : tensor<7x6x20xf32> into tensor<9x8x20xf32>
    func.return %out : tensor<9x8x20xf32>
  }
}
"""

# A depthwise window of three elements.
DEPTHWISE = """
builtin.module {
  func.func @depthwise(%x: tensor<62x32xf32>, %w: tensor<3x32xf32>, %y: tensor<60x32xf32>) -> tensor<60x32xf32> attributes {kernel} {
    %zero = arith.constant 0.0 : f32
    %z = linalg.fill ins(%zero : f32) outs(%y : tensor<60x32xf32>) -> tensor<60x32xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(h, c, i) -> (h + i, c)>, affine_map<(h, c, i) -> (i, c)>,
        affine_map<(h, c, i) -> (h, c)>], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%x, %w : tensor<62x32xf32>, tensor<3x32xf32>) outs(%z : tensor<60x32xf32>) {
    ^bb0(%xe: f32, %we: f32, %acc: f32):
      %p = arith.mulf %xe, %we : f32
      %n = arith.addf %p, %acc : f32
      linalg.yield %n : f32
    } -> tensor<60x32xf32>
    func.return %r : tensor<60x32xf32>
  }
}
"""

# Six groups of three input and four output channels, with a bias, then with a ReLU.
GROUPS = """
builtin.module {
  func.func @groups(%x: tensor<11x6x3xf32>, %w: tensor<3x3x6x4xf32>, %b: tensor<6x4xf32>, %y: tensor<9x6x4xf32>)
      -> tensor<9x6x4xf32> attributes {kernel} {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<9x6x4xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<9x6x4xf32>) -> tensor<9x6x4xf32>
    %c = linalg.generic {indexing_maps = [affine_map<(w, g, o, i, k) -> (w + i, g, k)>,
        affine_map<(w, g, o, i, k) -> (i, k, g, o)>, affine_map<(w, g, o, i, k) -> (w, g, o)>],
        iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
        ins(%x, %w : tensor<11x6x3xf32>, tensor<3x3x6x4xf32>) outs(%z : tensor<9x6x4xf32>) {
    ^bb0(%xe: f32, %we: f32, %acc: f32):
      %p = arith.mulf %xe, %we : f32
      %n = arith.addf %p, %acc : f32
      linalg.yield %n : f32
    } -> tensor<9x6x4xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(w, g, o) -> (w, g, o)>, affine_map<(w, g, o) -> (g, o)>,
        affine_map<(w, g, o) -> (w, g, o)>], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%c, %b : tensor<9x6x4xf32>, tensor<6x4xf32>) outs(%y : tensor<9x6x4xf32>) {
    ^bb0(%ce: f32, %be: f32, %old: f32):
      %p = arith.addf %ce, %be : f32
      %t = arith.maximumf %p, %zero : f32
      linalg.yield %t : f32
    } -> tensor<9x6x4xf32>
    func.return %r : tensor<9x6x4xf32>
  }
}
"""

# Each row minus its maximum, squared, divided by the row's sum: five ops that share the rows.
ROWS = """
builtin.module {
  func.func @rows(%x: tensor<4x6x50xf32>, %y: tensor<4x6x50xf32>) -> tensor<4x6x50xf32> attributes {kernel} {
    %least = arith.constant 0xFF800000 : f32
    %zero = arith.constant 0.0 : f32
    %e0 = tensor.empty() : tensor<4x6x1xf32>
    %m0 = linalg.fill ins(%least : f32) outs(%e0 : tensor<4x6x1xf32>) -> tensor<4x6x1xf32>
    %m = linalg.generic {indexing_maps = [affine_map<(a, r, c) -> (a, r, c)>, affine_map<(a, r, c) -> (a, r, 0)>],
        iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%x : tensor<4x6x50xf32>) outs(%m0 : tensor<4x6x1xf32>) {
    ^bb0(%v: f32, %acc: f32):
      %n = arith.maximumf %acc, %v : f32
      linalg.yield %n : f32
    } -> tensor<4x6x1xf32>
    %e1 = tensor.empty() : tensor<4x6x50xf32>
    %d = linalg.generic {indexing_maps = [affine_map<(a, r, c) -> (a, r, c)>, affine_map<(a, r, c) -> (a, r, 0)>,
        affine_map<(a, r, c) -> (a, r, c)>], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%x, %m : tensor<4x6x50xf32>, tensor<4x6x1xf32>) outs(%e1 : tensor<4x6x50xf32>) {
    ^bb0(%v: f32, %largest: f32, %old: f32):
      %n = arith.subf %v, %largest : f32
      %q = arith.mulf %n, %n : f32
      linalg.yield %q : f32
    } -> tensor<4x6x50xf32>
    %e2 = tensor.empty() : tensor<4x6x1xf32>
    %s0 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<4x6x1xf32>) -> tensor<4x6x1xf32>
    %s = linalg.generic {indexing_maps = [affine_map<(a, r, c) -> (a, r, c)>, affine_map<(a, r, c) -> (a, r, 0)>],
        iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%d : tensor<4x6x50xf32>) outs(%s0 : tensor<4x6x1xf32>) {
    ^bb0(%v: f32, %acc: f32):
      %n = arith.addf %acc, %v : f32
      linalg.yield %n : f32
    } -> tensor<4x6x1xf32>
    %out = linalg.generic {indexing_maps = [affine_map<(a, r, c) -> (a, r, c)>, affine_map<(a, r, c) -> (a, r, 0)>,
        affine_map<(a, r, c) -> (a, r, c)>], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%d, %s : tensor<4x6x50xf32>, tensor<4x6x1xf32>) outs(%y : tensor<4x6x50xf32>) {
    ^bb0(%v: f32, %sum: f32, %old: f32):
      %n = arith.divf %v, %sum : f32
      linalg.yield %n : f32
    } -> tensor<4x6x50xf32>
    func.return %out : tensor<4x6x50xf32>
  }
}
"""

# The sum over the first two axes, and an index in the body.
COLUMNS = """
builtin.module {
  func.func @columns(%x: tensor<7x5x22xf32>, %y: tensor<22xf32>) -> tensor<22xf32> attributes {kernel} {
    %zero = arith.constant 0.0 : f32
    %z = linalg.fill ins(%zero : f32) outs(%y : tensor<22xf32>) -> tensor<22xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(c, h, w) -> (h, w, c)>, affine_map<(c, h, w) -> (c)>],
        iterator_types = ["parallel", "reduction", "reduction"]} ins(%x : tensor<7x5x22xf32>) outs(%z : tensor<22xf32>) {
    ^bb0(%v: f32, %acc: f32):
      %i = linalg.index 0 : index
      %k = arith.index_cast %i : index to i32
      %f = arith.sitofp %k : i32 to f32
      %p = arith.mulf %v, %f : f32
      %s = arith.addf %p, %acc : f32
      linalg.yield %s : f32
    } -> tensor<22xf32>
    func.return %r : tensor<22xf32>
  }
}
"""

# Rows of `u` added to the rows `i` of the result; some indices are out of bounds.
SCATTER = """
builtin.module {
  func.func @scatter(%x: tensor<7x21xf32>, %i: tensor<3x4xi64>, %u: tensor<3x4x21xf32>, %y: tensor<7x21xf32>)
      -> tensor<7x21xf32> attributes {kernel} {
    %c = linalg.generic {indexing_maps = [affine_map<(r, s) -> (r, s)>, affine_map<(r, s) -> (r, s)>],
        iterator_types = ["parallel", "parallel"]} ins(%x : tensor<7x21xf32>) outs(%y : tensor<7x21xf32>) {
    ^bb0(%xe: f32, %old: f32):
      linalg.yield %xe : f32
    } -> tensor<7x21xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(r, i, j, s) -> (i, j)>, affine_map<(r, i, j, s) -> (i, j, s)>,
        affine_map<(r, i, j, s) -> (r, s)>], iterator_types = ["parallel", "reduction", "reduction", "parallel"]}
        ins(%i, %u : tensor<3x4xi64>, tensor<3x4x21xf32>) outs(%c : tensor<7x21xf32>) {
    ^bb0(%ie: i64, %ue: f32, %acc: f32):
      %zero = arith.constant 0 : i64
      %six = arith.constant 6 : i64
      %most = arith.minsi %ie, %six : i64
      %near = arith.maxsi %most, %zero : i64
      %row = arith.index_cast %near : i64 to index
      %inside = arith.cmpi sge, %ie, %zero : i64
      %sum = arith.addf %acc, %ue : f32
      %next = arith.select %inside, %sum, %acc : f32
      %here = linalg.index 0 : index
      %hit = arith.cmpi eq, %here, %row : index
      %chosen = arith.select %hit, %next, %acc : f32
      linalg.yield %chosen : f32
    } -> tensor<7x21xf32>
    func.return %r : tensor<7x21xf32>
  }
}
"""

# The same into a local buffer, which is then transposed.
SCATTER_TURNED = (
    SCATTER.replace("%y: tensor<7x21xf32>)\n      -> tensor<7x21xf32>", "%y: tensor<21x7xf32>)\n      -> tensor<21x7xf32>")
    .replace("    %c = linalg", "    %own = tensor.empty() : tensor<7x21xf32>\n    %c = linalg")
    .replace("outs(%y :", "outs(%own :")
    .replace(
        "    func.return %r : tensor<7x21xf32>",
        """    %t = linalg.generic {indexing_maps = [affine_map<(s, r) -> (r, s)>, affine_map<(s, r) -> (s, r)>],
        iterator_types = ["parallel", "parallel"]} ins(%r : tensor<7x21xf32>) outs(%y : tensor<21x7xf32>) {
    ^bb0(%re: f32, %before: f32):
      linalg.yield %re : f32
    } -> tensor<21x7xf32>
    func.return %t : tensor<21x7xf32>""",
    )
)

# Row-wise dot products of two matrices: no operand is reused.
DOTS = """
builtin.module {
  func.func @dots(%x: tensor<5x70xf32>, %y: tensor<5x70xf32>, %d: tensor<5xf32>) -> tensor<5xf32> attributes {kernel} {
    %zero = arith.constant 0.0 : f32
    %z = linalg.fill ins(%zero : f32) outs(%d : tensor<5xf32>) -> tensor<5xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m, k)>, affine_map<(m, k) -> (m)>],
        iterator_types = ["parallel", "reduction"]}
        ins(%x, %y : tensor<5x70xf32>, tensor<5x70xf32>) outs(%z : tensor<5xf32>) {
    ^bb0(%a: f32, %b: f32, %acc: f32):
      %p = arith.mulf %a, %b : f32
      %s = arith.addf %acc, %p : f32
      linalg.yield %s : f32
    } -> tensor<5xf32>
    func.return %r : tensor<5xf32>
  }
}
"""

# For each row, the sum of squared distances of its elements from the sum of another row.
DISTANCES = """
builtin.module {
  func.func @distances(%x: tensor<70x50xf32>, %y: tensor<70x50xf32>, %d: tensor<70xf32>) -> tensor<70xf32>
      attributes {kernel} {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<70xf32>
    %m0 = linalg.fill ins(%zero : f32) outs(%e : tensor<70xf32>) -> tensor<70xf32>
    %m = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r)>],
        iterator_types = ["parallel", "reduction"]} ins(%y : tensor<70x50xf32>) outs(%m0 : tensor<70xf32>) {
    ^bb0(%v: f32, %acc: f32):
      %n = arith.addf %acc, %v : f32
      linalg.yield %n : f32
    } -> tensor<70xf32>
    %z = linalg.fill ins(%zero : f32) outs(%d : tensor<70xf32>) -> tensor<70xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r, c)>, affine_map<(r, c) -> (r)>, affine_map<(r, c) -> (r)>],
        iterator_types = ["parallel", "reduction"]}
        ins(%x, %m : tensor<70x50xf32>, tensor<70xf32>) outs(%z : tensor<70xf32>) {
    ^bb0(%v: f32, %sum: f32, %acc: f32):
      %n = arith.subf %v, %sum : f32
      %q = arith.mulf %n, %n : f32
      %s = arith.addf %acc, %q : f32
      linalg.yield %s : f32
    } -> tensor<70xf32>
    func.return %r : tensor<70xf32>
  }
}
"""

TURNED = """
builtin.module {
  func.func @turned(%x: tensor<19x21xf32>, %y: tensor<21x19xf32>) -> tensor<21x19xf32> attributes {kernel} {
    %r = linalg.generic {indexing_maps = [affine_map<(n, m) -> (m, n)>, affine_map<(n, m) -> (n, m)>],
        iterator_types = ["parallel", "parallel"]} ins(%x : tensor<19x21xf32>) outs(%y : tensor<21x19xf32>) {
    ^bb0(%a: f32, %b: f32):
      %n = arith.negf %a : f32
      linalg.yield %n : f32
    } -> tensor<21x19xf32>
    func.return %r : tensor<21x19xf32>
  }
}
"""

# Sums of windows over an image with channels last, and their squares with channels first, plus an operand with channels last.
WINDOWS_TRANSPOSED = """
builtin.module {
  func.func @windows(%x: tensor<12x11x21xf32>, %v: tensor<10x9x21xf32>, %y: tensor<21x10x9xf32>) -> tensor<21x10x9xf32>
      attributes {kernel} {
    %zero = arith.constant 0.0 : f32
    %e = tensor.empty() : tensor<10x9x21xf32>
    %z = linalg.fill ins(%zero : f32) outs(%e : tensor<10x9x21xf32>) -> tensor<10x9x21xf32>
    %k = tensor.empty() : tensor<3x3xf32>
    %s = linalg.generic {indexing_maps = [affine_map<(h, w, c, i, j) -> (h + i, w + j, c)>,
        affine_map<(h, w, c, i, j) -> (i, j)>, affine_map<(h, w, c, i, j) -> (h, w, c)>],
        iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}
        ins(%x, %k : tensor<12x11x21xf32>, tensor<3x3xf32>) outs(%z : tensor<10x9x21xf32>) {
    ^bb0(%xe: f32, %ke: f32, %acc: f32):
      %n = arith.addf %xe, %acc : f32
      linalg.yield %n : f32
    } -> tensor<10x9x21xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(c, h, w) -> (h, w, c)>, affine_map<(c, h, w) -> (h, w, c)>,
        affine_map<(c, h, w) -> (c, h, w)>], iterator_types = ["parallel", "parallel", "parallel"]}
        ins(%s, %v : tensor<10x9x21xf32>, tensor<10x9x21xf32>) outs(%y : tensor<21x10x9xf32>) {
    ^bb0(%se: f32, %ve: f32, %before: f32):
      %q = arith.mulf %se, %se : f32
      %t = arith.addf %q, %ve : f32
      linalg.yield %t : f32
    } -> tensor<21x10x9xf32>
    func.return %r : tensor<21x10x9xf32>
  }
}
"""

KERNELS = {
    "matmul": MATMUL,
    "convolution": CONVOLUTION,
    "depthwise": DEPTHWISE,
    "groups": GROUPS,
    "rows": ROWS,
    "columns": COLUMNS,
    "scatter": SCATTER,
    "scatter, turned": SCATTER_TURNED,
    "dots": DOTS,
    "distances": DISTANCES,
    "turned": TURNED,
    "windows, transposed": WINDOWS_TRANSPOSED,
    "attention": ATTENTION,
    "attention, transposed": TRANSPOSED_ATTENTION,
}


def kernel_module(name: str) -> ModuleOp:
    """Return a fresh module with one of the kernels."""
    return parse_module(make_context(), KERNELS[name], name)
