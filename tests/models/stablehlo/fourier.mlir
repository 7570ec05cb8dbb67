module @jit_fourier attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<4x6xf32>, %arg1: tensor<complex<f32>>) -> (tensor<4x6xf32> {jax.result_info = "result[0]"}, tensor<6xcomplex<f32>> {jax.result_info = "result[1]"}) {
    %0 = call @fft(%arg0) : (tensor<4x6xf32>) -> tensor<4x6xcomplex<f32>>
    %cst = stablehlo.constant dense<(0.000000e+00,2.000000e+00)> : tensor<complex<f32>>
    %1 = stablehlo.add %arg1, %cst : tensor<complex<f32>>
    %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<complex<f32>>) -> tensor<4x6xcomplex<f32>>
    %3 = stablehlo.multiply %0, %2 : tensor<4x6xcomplex<f32>>
    %4 = stablehlo.abs %arg0 : tensor<4x6xf32>
    %cst_0 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<4x6xf32>
    %6 = stablehlo.add %5, %4 : tensor<4x6xf32>
    %7 = stablehlo.convert %6 : (tensor<4x6xf32>) -> tensor<4x6xcomplex<f32>>
    %8 = stablehlo.divide %3, %7 : tensor<4x6xcomplex<f32>>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %9:2 = stablehlo.while(%iterArg = %c, %iterArg_2 = %8) : tensor<i32>, tensor<4x6xcomplex<f32>>
    cond {
      %c_3 = stablehlo.constant dense<2> : tensor<i32>
      %19 = stablehlo.compare LT, %iterArg, %c_3, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %19 : tensor<i1>
    } do {
      %19 = func.call @closed_call(%iterArg_2) : (tensor<4x6xcomplex<f32>>) -> tensor<4x6xcomplex<f32>>
      %c_3 = stablehlo.constant dense<1> : tensor<i32>
      %20 = stablehlo.add %iterArg, %c_3 : tensor<i32>
      stablehlo.return %20, %19 : tensor<i32>, tensor<4x6xcomplex<f32>>
    }
    %10 = stablehlo.transpose %9#1, dims = [1, 0] : (tensor<4x6xcomplex<f32>>) -> tensor<6x4xcomplex<f32>>
    %11 = stablehlo.dot_general %9#1, %10, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4x6xcomplex<f32>>, tensor<6x4xcomplex<f32>>) -> tensor<4x4xcomplex<f32>>
    %12 = call @fft_0(%11) : (tensor<4x4xcomplex<f32>>) -> tensor<4x6xf32>
    %13 = stablehlo.slice %9#1 [0:4:2, 0:6] : (tensor<4x6xcomplex<f32>>) -> tensor<2x6xcomplex<f32>>
    %14 = stablehlo.real %13 : (tensor<2x6xcomplex<f32>>) -> tensor<2x6xf32>
    %15 = stablehlo.imag %13 : (tensor<2x6xcomplex<f32>>) -> tensor<2x6xf32>
    %16 = stablehlo.negate %15 : tensor<2x6xf32>
    %17 = stablehlo.complex %14, %16 : tensor<2x6xcomplex<f32>>
    %cst_1 = stablehlo.constant dense<(0.000000e+00,0.000000e+00)> : tensor<complex<f32>>
    %18 = stablehlo.reduce(%17 init: %cst_1) applies stablehlo.add across dimensions = [0] : (tensor<2x6xcomplex<f32>>, tensor<complex<f32>>) -> tensor<6xcomplex<f32>>
    return %12, %18 : tensor<4x6xf32>, tensor<6xcomplex<f32>>
  }
  func.func private @fft(%arg0: tensor<4x6xf32>) -> tensor<4x6xcomplex<f32>> {
    %0 = stablehlo.convert %arg0 : (tensor<4x6xf32>) -> tensor<4x6xcomplex<f32>>
    %1 = stablehlo.fft %0, type = FFT, length = [4, 6] : (tensor<4x6xcomplex<f32>>) -> tensor<4x6xcomplex<f32>>
    return %1 : tensor<4x6xcomplex<f32>>
  }
  func.func private @closed_call(%arg0: tensor<4x6xcomplex<f32>>) -> tensor<4x6xcomplex<f32>> {
    %cst = stablehlo.constant dense<(5.000000e-01,5.000000e-01)> : tensor<complex<f32>>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<complex<f32>>) -> tensor<4x6xcomplex<f32>>
    %1 = stablehlo.multiply %arg0, %0 : tensor<4x6xcomplex<f32>>
    %cst_0 = stablehlo.constant dense<(1.000000e-01,0.000000e+00)> : tensor<complex<f32>>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<complex<f32>>) -> tensor<4x6xcomplex<f32>>
    %3 = stablehlo.multiply %2, %arg0 : tensor<4x6xcomplex<f32>>
    %4 = stablehlo.exponential %3 : tensor<4x6xcomplex<f32>>
    %5 = stablehlo.add %1, %4 : tensor<4x6xcomplex<f32>>
    return %5 : tensor<4x6xcomplex<f32>>
  }
  func.func private @fft_0(%arg0: tensor<4x4xcomplex<f32>>) -> tensor<4x6xf32> {
    %0 = stablehlo.fft %arg0, type = IRFFT, length = [6] : (tensor<4x4xcomplex<f32>>) -> tensor<4x6xf32>
    return %0 : tensor<4x6xf32>
  }
}
