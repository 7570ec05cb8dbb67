func.func @conv_add_relu(%x: memref<58x58x64xf32>, %w: memref<2x3x192x32xf32>, %b: memref<2x32xf32>, %r: memref<58x58x2x32xf32>, %y: memref<58x58x2x32xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c14 = arith.constant 14 : index
  %c56 = arith.constant 56 : index
  %c192 = arith.constant 192 : index
  %f0 = arith.constant 0.0 : f32
  %zero = arith.constant dense<0.0> : vector<14x32xf32>
  %win = memref.reinterpret_cast %x to offset: [0], sizes: [56, 56, 3, 192], strides: [3712, 64, 3712, 1] : memref<58x58x64xf32> to memref<56x56x3x192xf32, strided<[3712, 64, 3712, 1]>>
  "scf.parallel"(%c0, %c0, %c2, %c56, %c1, %c1) <{operandSegmentSizes = array<i32: 2, 2, 2, 0>}> ({
  ^bb0(%p: index, %oh: index):
    %oh1 = arith.addi %oh, %c1 : index
    scf.for %ow = %c0 to %c56 step %c14 {
      %ow1 = arith.addi %ow, %c1 : index
      %acc = scf.for %kh = %c0 to %c3 step %c1 iter_args(%a0 = %zero) -> (vector<14x32xf32>) {
        %in = scf.for %k = %c0 to %c192 step %c1 iter_args(%a1 = %a0) -> (vector<14x32xf32>) {
          %px = vector.transfer_read %win[%oh, %ow, %kh, %k], %f0 {in_bounds = [true, true], permutation_map = affine_map<(d0, d1, d2, d3) -> (d1, d3)>} : memref<56x56x3x192xf32, strided<[3712, 64, 3712, 1]>>, vector<14x1xf32>
          %ch_pad = arith.constant 0.0 : f32
          %ch = vector.transfer_read %w[%p, %kh, %k, %c0], %ch_pad {in_bounds = [true]} : memref<2x3x192x32xf32>, vector<32xf32>
          %pxs = vector.broadcast %px : vector<14x1xf32> to vector<14x32xf32>
          %chs = vector.broadcast %ch : vector<32xf32> to vector<14x32xf32>
          %a2 = vector.fma %pxs, %chs, %a1 : vector<14x32xf32>
          scf.yield %a2 : vector<14x32xf32>
        }
        scf.yield %in : vector<14x32xf32>
      }
      %bv_pad = arith.constant 0.0 : f32
      %bv = vector.transfer_read %b[%p, %c0], %bv_pad {in_bounds = [true]} : memref<2x32xf32>, vector<32xf32>
      %bs = vector.broadcast %bv : vector<32xf32> to vector<14x32xf32>
      %s = arith.addf %acc, %bs : vector<14x32xf32>
      %rv = vector.transfer_read %r[%oh1, %ow1, %p, %c0], %f0 {in_bounds = [true, true], permutation_map = affine_map<(d0, d1, d2, d3) -> (d1, d3)>} : memref<58x58x2x32xf32>, vector<14x32xf32>
      %t = arith.addf %s, %rv : vector<14x32xf32>
      %u = arith.maximumf %t, %zero : vector<14x32xf32>
      vector.transfer_write %u, %y[%oh1, %ow1, %p, %c0] {in_bounds = [true, true], permutation_map = affine_map<(d0, d1, d2, d3) -> (d1, d3)>} : vector<14x32xf32>, memref<58x58x2x32xf32>
    }
    "scf.reduce"() : () -> ()
  }) {level = "grid"} : (index, index, index, index, index, index) -> ()
  func.return
}
