module @jit_windows attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<1x5x5x3xf32>, %arg1: tensor<3x3x1x6xf32>) -> (tensor<1x5x5x3xf32> {jax.result_info = "result[0]"}, tensor<1x2x2x3xf32> {jax.result_info = "result[1]"}, tensor<1x5x5x3xf32> {jax.result_info = "result[2]"}, tensor<1x5x5x3xf32> {jax.result_info = "result[3]"}, tensor<3x3x1x6xf32> {jax.result_info = "result[4]"}, tensor<5x2xf32> {jax.result_info = "result[5]"}, tensor<5x2xi32> {jax.result_info = "result[6]"}, tensor<5x3xf32> {jax.result_info = "result[7]"}, tensor<5x3xf32> {jax.result_info = "result[8]"}, tensor<1x5x5x3xf32> {jax.result_info = "result[9]"}, tensor<1x5x5x3xf32> {jax.result_info = "result[10]"}) {
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<f32>
    %1 = "stablehlo.reduce_window"(%arg0, %0) <{base_dilations = array<i64: 1, 1, 1, 1>, padding = dense<[[0, 0], [1, 1], [1, 1], [0, 0]]> : tensor<4x2xi64>, window_dilations = array<i64: 1, 1, 1, 1>, window_dimensions = array<i64: 1, 3, 3, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
    ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
      %48 = stablehlo.maximum %arg2, %arg3 : tensor<f32>
      stablehlo.return %48 : tensor<f32>
    }) : (tensor<1x5x5x3xf32>, tensor<f32>) -> tensor<1x3x3x3xf32>
    %cst_0 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<1x3x3x3xf32>
    %3 = stablehlo.multiply %2, %1 : tensor<1x3x3x3xf32>
    %cst_1 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %4 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<1x3x3x3xf32>
    %5 = stablehlo.multiply %4, %3 : tensor<1x3x3x3xf32>
    %cst_2 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %6 = stablehlo.pad %arg0, %cst_2, low = [0, 1, 1, 0], high = [0, 1, 1, 0], interior = [0, 0, 0, 0] : (tensor<1x5x5x3xf32>, tensor<f32>) -> tensor<1x7x7x3xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = "stablehlo.select_and_scatter"(%6, %5, %cst_3) <{padding = dense<0> : tensor<4x2xi64>, window_dimensions = array<i64: 1, 3, 3, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
    ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
      %48 = stablehlo.compare GE, %arg2, %arg3, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %48 : tensor<i1>
    }, {
    ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
      %48 = stablehlo.add %arg2, %arg3 : tensor<f32>
      stablehlo.return %48 : tensor<f32>
    }) : (tensor<1x7x7x3xf32>, tensor<1x3x3x3xf32>, tensor<f32>) -> tensor<1x7x7x3xf32>
    %8 = stablehlo.slice %7 [0:1, 1:6, 1:6, 0:3] : (tensor<1x7x7x3xf32>) -> tensor<1x5x5x3xf32>
    %cst_4 = stablehlo.constant dense<0x7F800000> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<f32>
    %10 = "stablehlo.reduce_window"(%arg0, %9) <{base_dilations = array<i64: 1, 1, 1, 1>, padding = dense<0> : tensor<4x2xi64>, window_dilations = array<i64: 1, 1, 1, 1>, window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
    ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
      %48 = stablehlo.minimum %arg2, %arg3 : tensor<f32>
      stablehlo.return %48 : tensor<f32>
    }) : (tensor<1x5x5x3xf32>, tensor<f32>) -> tensor<1x2x2x3xf32>
    %cst_5 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %11 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<f32>
    %12 = "stablehlo.reduce_window"(%arg0, %11) <{base_dilations = array<i64: 1, 1, 1, 1>, padding = dense<0> : tensor<4x2xi64>, window_dilations = array<i64: 1, 1, 1, 1>, window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
    ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
      %48 = stablehlo.add %arg2, %arg3 : tensor<f32>
      stablehlo.return %48 : tensor<f32>
    }) : (tensor<1x5x5x3xf32>, tensor<f32>) -> tensor<1x2x2x3xf32>
    %cst_6 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %13 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<1x2x2x3xf32>
    %14 = stablehlo.multiply %13, %12 : tensor<1x2x2x3xf32>
    %cst_7 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %15 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<1x2x2x3xf32>
    %16 = stablehlo.multiply %15, %14 : tensor<1x2x2x3xf32>
    %cst_8 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %17 = stablehlo.pad %16, %cst_8, low = [0, 1, 1, 0], high = [0, 2, 2, 0], interior = [0, 1, 1, 0] : (tensor<1x2x2x3xf32>, tensor<f32>) -> tensor<1x6x6x3xf32>
    %cst_9 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %18 = stablehlo.broadcast_in_dim %cst_9, dims = [] : (tensor<f32>) -> tensor<f32>
    %19 = "stablehlo.reduce_window"(%17, %18) <{base_dilations = array<i64: 1, 1, 1, 1>, padding = dense<0> : tensor<4x2xi64>, window_dilations = array<i64: 1, 1, 1, 1>, window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 1, 1, 1>}> ({
    ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
      %48 = stablehlo.add %arg2, %arg3 : tensor<f32>
      stablehlo.return %48 : tensor<f32>
    }) : (tensor<1x6x6x3xf32>, tensor<f32>) -> tensor<1x5x5x3xf32>
    %20 = stablehlo.convolution(%arg0, %arg1) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 3 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<1x5x5x3xf32>, tensor<3x3x1x6xf32>) -> tensor<1x5x5x6xf32>
    %cst_10 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %21 = stablehlo.broadcast_in_dim %cst_10, dims = [] : (tensor<f32>) -> tensor<1x5x5x6xf32>
    %22 = stablehlo.multiply %21, %20 : tensor<1x5x5x6xf32>
    %cst_11 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %23 = stablehlo.broadcast_in_dim %cst_11, dims = [] : (tensor<f32>) -> tensor<1x5x5x6xf32>
    %24 = stablehlo.multiply %23, %22 : tensor<1x5x5x6xf32>
    %25 = stablehlo.convolution(%arg0, %24) dim_numbers = [f, 0, 1, b]x[i, 0, 1, o]->[0, 1, b, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 3 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<1x5x5x3xf32>, tensor<1x5x5x6xf32>) -> tensor<3x3x1x6xf32>
    %26 = stablehlo.reshape %arg1 : (tensor<3x3x1x6xf32>) -> tensor<3x3x1x3x2xf32>
    %27 = stablehlo.transpose %26, dims = [0, 1, 3, 2, 4] : (tensor<3x3x1x3x2xf32>) -> tensor<3x3x3x1x2xf32>
    %28 = stablehlo.reshape %27 : (tensor<3x3x3x1x2xf32>) -> tensor<3x3x3x2xf32>
    %29 = stablehlo.reverse %28, dims = [0, 1] : tensor<3x3x3x2xf32>
    %30 = stablehlo.convolution(%24, %29) dim_numbers = [b, 0, 1, f]x[0, 1, o, i]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 3 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<1x5x5x6xf32>, tensor<3x3x3x2xf32>) -> tensor<1x5x5x3xf32>
    %31 = stablehlo.slice %arg0 [0:1, 0:1, 0:5, 0:3] : (tensor<1x5x5x3xf32>) -> tensor<1x1x5x3xf32>
    %32 = stablehlo.reshape %31 : (tensor<1x1x5x3xf32>) -> tensor<5x3xf32>
    %values, %indices = chlo.top_k(%32, k = 2) : tensor<5x3xf32> -> (tensor<5x2xf32>, tensor<5x2xi32>)
    %cst_12 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %33 = stablehlo.broadcast_in_dim %cst_12, dims = [] : (tensor<f32>) -> tensor<1x5x5x3xf32>
    %34:2 = stablehlo.optimization_barrier %arg0, %33 : tensor<1x5x5x3xf32>, tensor<1x5x5x3xf32>
    %35 = stablehlo.sine %34#0 : tensor<1x5x5x3xf32>
    %36 = stablehlo.cosine %34#0 : tensor<1x5x5x3xf32>
    %37 = stablehlo.cosine %35 : tensor<1x5x5x3xf32>
    %38 = stablehlo.multiply %34#1, %37 : tensor<1x5x5x3xf32>
    %39 = stablehlo.multiply %38, %36 : tensor<1x5x5x3xf32>
    %40 = stablehlo.slice %arg0 [0:1, 0:1, 0:5, 0:3] : (tensor<1x5x5x3xf32>) -> tensor<1x1x5x3xf32>
    %41 = stablehlo.reshape %40 : (tensor<1x1x5x3xf32>) -> tensor<5x3xf32>
    %42 = call @cumprod(%41) : (tensor<5x3xf32>) -> tensor<5x3xf32>
    %43 = stablehlo.slice %arg0 [0:1, 0:1, 0:5, 0:3] : (tensor<1x5x5x3xf32>) -> tensor<1x1x5x3xf32>
    %44 = stablehlo.reshape %43 : (tensor<1x1x5x3xf32>) -> tensor<5x3xf32>
    %45 = call @cumsum(%44) : (tensor<5x3xf32>) -> tensor<5x3xf32>
    %46 = call @_flip(%45) : (tensor<5x3xf32>) -> tensor<5x3xf32>
    %47 = stablehlo.reduce_precision %arg0, format = e8m7 : tensor<1x5x5x3xf32>
    return %8, %10, %19, %30, %25, %values, %indices, %42, %46, %47, %39 : tensor<1x5x5x3xf32>, tensor<1x2x2x3xf32>, tensor<1x5x5x3xf32>, tensor<1x5x5x3xf32>, tensor<3x3x1x6xf32>, tensor<5x2xf32>, tensor<5x2xi32>, tensor<5x3xf32>, tensor<5x3xf32>, tensor<1x5x5x3xf32>, tensor<1x5x5x3xf32>
  }
  func.func private @cumprod(%arg0: tensor<5x3xf32>) -> tensor<5x3xf32> {
    %0 = call @cumprod_0(%arg0) : (tensor<5x3xf32>) -> tensor<5x3xf32>
    return %0 : tensor<5x3xf32>
  }
  func.func private @cumprod_0(%arg0: tensor<5x3xf32>) -> tensor<5x3xf32> {
    %cst = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %0 = "stablehlo.reduce_window"(%arg0, %cst) <{base_dilations = array<i64: 1, 1>, padding = dense<[[4, 0], [0, 0]]> : tensor<2x2xi64>, window_dilations = array<i64: 1, 1>, window_dimensions = array<i64: 5, 1>, window_strides = array<i64: 1, 1>}> ({
    ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
      %1 = stablehlo.multiply %arg1, %arg2 : tensor<f32>
      stablehlo.return %1 : tensor<f32>
    }) : (tensor<5x3xf32>, tensor<f32>) -> tensor<5x3xf32>
    return %0 : tensor<5x3xf32>
  }
  func.func private @cumsum(%arg0: tensor<5x3xf32>) -> tensor<5x3xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<f32>
    %1 = "stablehlo.reduce_window"(%arg0, %0) <{base_dilations = array<i64: 1, 1>, padding = dense<[[0, 4], [0, 0]]> : tensor<2x2xi64>, window_dilations = array<i64: 1, 1>, window_dimensions = array<i64: 5, 1>, window_strides = array<i64: 1, 1>}> ({
    ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
      %2 = stablehlo.add %arg1, %arg2 : tensor<f32>
      stablehlo.return %2 : tensor<f32>
    }) : (tensor<5x3xf32>, tensor<f32>) -> tensor<5x3xf32>
    return %1 : tensor<5x3xf32>
  }
  func.func private @_flip(%arg0: tensor<5x3xf32>) -> tensor<5x3xf32> {
    %0 = stablehlo.reverse %arg0, dims = [0, 1] : tensor<5x3xf32>
    return %0 : tensor<5x3xf32>
  }
}
