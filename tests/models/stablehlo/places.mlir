module @jit__lambda attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<6x6xf32>, %arg1: tensor<5xi32>, %arg2: tensor<5x6xf32>) -> (tensor<5x2x3xf32> {jax.result_info = "result[0]"}, tensor<5x2xf32> {jax.result_info = "result[1]"}, tensor<5x1xf32> {jax.result_info = "result[2]"}, tensor<6x6xf32> {jax.result_info = "result[3]"}, tensor<5x6xf32> {jax.result_info = "result[4]"}, tensor<5x6xf32> {jax.result_info = "result[5]"}, tensor<6xf32> {jax.result_info = "result[6]"}, tensor<6x6xi1> {jax.result_info = "result[7]"}) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %1 = stablehlo.compare LT, %arg1, %0, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_0 = stablehlo.constant dense<6> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %3 = stablehlo.add %arg1, %2 : tensor<5xi32>
    %4 = stablehlo.select %1, %3, %arg1 : tensor<5xi1>, tensor<5xi32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %c_1 = stablehlo.constant dense<1> : tensor<i32>
    %6 = stablehlo.broadcast_in_dim %c_1, dims = [] : (tensor<i32>) -> tensor<5x1xi32>
    %7 = stablehlo.concatenate %5, %6, dim = 1 : (tensor<5x1xi32>, tensor<5x1xi32>) -> tensor<5x2xi32>
    %8 = "stablehlo.gather"(%arg0, %7) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], start_index_map = [0, 1], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 2, 3>}> : (tensor<6x6xf32>, tensor<5x2xi32>) -> tensor<5x2x3xf32>
    %9 = stablehlo.slice %arg0 [0:5, 0:6] : (tensor<6x6xf32>) -> tensor<5x6xf32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %10 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %11 = stablehlo.compare LT, %arg1, %10, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_3 = stablehlo.constant dense<6> : tensor<i32>
    %12 = stablehlo.broadcast_in_dim %c_3, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %13 = stablehlo.add %arg1, %12 : tensor<5xi32>
    %14 = stablehlo.select %11, %13, %arg1 : tensor<5xi1>, tensor<5xi32>
    %15 = stablehlo.broadcast_in_dim %14, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %16 = "stablehlo.gather"(%9, %15) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 1>, indices_are_sorted = true, slice_sizes = array<i64: 1, 2>}> : (tensor<5x6xf32>, tensor<5x1xi32>) -> tensor<5x2xf32>
    %c_4 = stablehlo.constant dense<0> : tensor<i32>
    %17 = stablehlo.broadcast_in_dim %c_4, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %18 = stablehlo.compare LT, %arg1, %17, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_5 = stablehlo.constant dense<6> : tensor<i32>
    %19 = stablehlo.broadcast_in_dim %c_5, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %20 = stablehlo.add %arg1, %19 : tensor<5xi32>
    %21 = stablehlo.select %18, %20, %arg1 : tensor<5xi1>, tensor<5xi32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %23 = "stablehlo.gather"(%arg0, %22) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 6>}> : (tensor<6x6xf32>, tensor<5x1xi32>) -> tensor<5x6xf32>
    %24 = stablehlo.broadcast_in_dim %23, dims = [0, 1] : (tensor<5x6xf32>) -> tensor<5x6x1xf32>
    %25 = stablehlo.slice %24 [0:5, 1:2, 0:1] : (tensor<5x6x1xf32>) -> tensor<5x1x1xf32>
    %26 = stablehlo.reshape %25 : (tensor<5x1x1xf32>) -> tensor<5x1xf32>
    %27 = stablehlo.slice %arg1 [0:2] : (tensor<5xi32>) -> tensor<2xi32>
    %28 = stablehlo.slice %arg1 [2:4] : (tensor<5xi32>) -> tensor<2xi32>
    %c_6 = stablehlo.constant dense<0> : tensor<i32>
    %29 = stablehlo.broadcast_in_dim %c_6, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %30 = stablehlo.compare LT, %27, %29, SIGNED : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
    %c_7 = stablehlo.constant dense<6> : tensor<i32>
    %31 = stablehlo.broadcast_in_dim %c_7, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %32 = stablehlo.add %27, %31 : tensor<2xi32>
    %33 = stablehlo.select %30, %32, %27 : tensor<2xi1>, tensor<2xi32>
    %c_8 = stablehlo.constant dense<0> : tensor<i32>
    %34 = stablehlo.broadcast_in_dim %c_8, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %35 = stablehlo.compare LT, %28, %34, SIGNED : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi1>
    %c_9 = stablehlo.constant dense<6> : tensor<i32>
    %36 = stablehlo.broadcast_in_dim %c_9, dims = [] : (tensor<i32>) -> tensor<2xi32>
    %37 = stablehlo.add %28, %36 : tensor<2xi32>
    %38 = stablehlo.select %35, %37, %28 : tensor<2xi1>, tensor<2xi32>
    %39 = stablehlo.broadcast_in_dim %33, dims = [0] : (tensor<2xi32>) -> tensor<2x1xi32>
    %40 = stablehlo.broadcast_in_dim %38, dims = [0] : (tensor<2xi32>) -> tensor<2x1xi32>
    %41 = stablehlo.concatenate %39, %40, dim = 1 : (tensor<2x1xi32>, tensor<2x1xi32>) -> tensor<2x2xi32>
    %42 = "stablehlo.gather"(%arg0, %41) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1>}> : (tensor<6x6xf32>, tensor<2x2xi32>) -> tensor<2xf32>
    %43 = stablehlo.slice %42 [0:1] : (tensor<2xf32>) -> tensor<1xf32>
    %44 = stablehlo.reshape %43 : (tensor<1xf32>) -> tensor<f32>
    %45 = stablehlo.broadcast_in_dim %44, dims = [] : (tensor<f32>) -> tensor<5x1xf32>
    %46 = stablehlo.add %26, %45 : tensor<5x1xf32>
    %c_10 = stablehlo.constant dense<0> : tensor<i32>
    %47 = stablehlo.broadcast_in_dim %c_10, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %48 = stablehlo.compare LT, %arg1, %47, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_11 = stablehlo.constant dense<6> : tensor<i32>
    %49 = stablehlo.broadcast_in_dim %c_11, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %50 = stablehlo.add %arg1, %49 : tensor<5xi32>
    %51 = stablehlo.select %48, %50, %arg1 : tensor<5xi1>, tensor<5xi32>
    %52 = stablehlo.broadcast_in_dim %51, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %53 = "stablehlo.scatter"(%arg0, %52, %arg2) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      stablehlo.return %arg4 : tensor<f32>
    }) : (tensor<6x6xf32>, tensor<5x1xi32>, tensor<5x6xf32>) -> tensor<6x6xf32>
    %54 = stablehlo.transpose %arg2, dims = [1, 0] : (tensor<5x6xf32>) -> tensor<6x5xf32>
    %c_12 = stablehlo.constant dense<0> : tensor<i32>
    %55 = stablehlo.broadcast_in_dim %c_12, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %56 = stablehlo.compare LT, %arg1, %55, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_13 = stablehlo.constant dense<6> : tensor<i32>
    %57 = stablehlo.broadcast_in_dim %c_13, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %58 = stablehlo.add %arg1, %57 : tensor<5xi32>
    %59 = stablehlo.select %56, %58, %arg1 : tensor<5xi1>, tensor<5xi32>
    %60 = stablehlo.broadcast_in_dim %59, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %61 = "stablehlo.scatter"(%53, %60, %54) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [0], inserted_window_dims = [1], scatter_dims_to_operand_dims = [1], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %114 = stablehlo.multiply %arg3, %arg4 : tensor<f32>
      stablehlo.return %114 : tensor<f32>
    }) : (tensor<6x6xf32>, tensor<5x1xi32>, tensor<6x5xf32>) -> tensor<6x6xf32>
    %62 = stablehlo.slice %arg0 [0:5, 0:6] : (tensor<6x6xf32>) -> tensor<5x6xf32>
    %63 = stablehlo.broadcast_in_dim %arg1, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %c_14 = stablehlo.constant dense<6> : tensor<i32>
    %64 = call @remainder(%63, %c_14) : (tensor<5x1xi32>, tensor<i32>) -> tensor<5x1xi32>
    %65:2 = call @take_along_axis(%62, %64) : (tensor<5x6xf32>, tensor<5x1xi32>) -> (tensor<5x1xf32>, tensor<5x1x1xi32>)
    %cst = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %66 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<5x1xf32>
    %67 = stablehlo.multiply %66, %65#0 : tensor<5x1xf32>
    %c_15 = stablehlo.constant dense<0> : tensor<i32>
    %68 = stablehlo.broadcast_in_dim %c_15, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %69 = stablehlo.compare LT, %arg1, %68, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_16 = stablehlo.constant dense<5> : tensor<i32>
    %70 = stablehlo.broadcast_in_dim %c_16, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %71 = stablehlo.add %arg1, %70 : tensor<5xi32>
    %72 = stablehlo.select %69, %71, %arg1 : tensor<5xi1>, tensor<5xi32>
    %73 = stablehlo.broadcast_in_dim %72, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %74 = "stablehlo.gather"(%62, %73) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 6>}> : (tensor<5x6xf32>, tensor<5x1xi32>) -> tensor<5x6xf32>
    %cst_17 = stablehlo.constant dense<2.000000e+00> : tensor<f32>
    %75 = stablehlo.broadcast_in_dim %cst_17, dims = [] : (tensor<f32>) -> tensor<5x6xf32>
    %76 = stablehlo.multiply %75, %74 : tensor<5x6xf32>
    %cst_18 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %77 = stablehlo.broadcast_in_dim %cst_18, dims = [] : (tensor<f32>) -> tensor<5x6xf32>
    %78 = stablehlo.multiply %77, %76 : tensor<5x6xf32>
    %cst_19 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %79 = stablehlo.broadcast_in_dim %cst_19, dims = [] : (tensor<f32>) -> tensor<5x6xf32>
    %80 = "stablehlo.scatter"(%79, %73, %78) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %114 = stablehlo.add %arg3, %arg4 : tensor<f32>
      stablehlo.return %114 : tensor<f32>
    }) : (tensor<5x6xf32>, tensor<5x1xi32>, tensor<5x6xf32>) -> tensor<5x6xf32>
    %cst_20 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %81 = stablehlo.broadcast_in_dim %cst_20, dims = [] : (tensor<f32>) -> tensor<5x1xf32>
    %82 = stablehlo.multiply %81, %67 : tensor<5x1xf32>
    %83 = call @take_along_axis_0(%65#1, %82) : (tensor<5x1x1xi32>, tensor<5x1xf32>) -> tensor<5x6xf32>
    %84 = stablehlo.add %80, %83 : tensor<5x6xf32>
    %85 = stablehlo.slice %arg0 [0:5, 0:6] : (tensor<6x6xf32>) -> tensor<5x6xf32>
    %86 = stablehlo.slice %arg2 [0:5, 0:2] : (tensor<5x6xf32>) -> tensor<5x2xf32>
    %c_21 = stablehlo.constant dense<0> : tensor<i32>
    %87 = stablehlo.broadcast_in_dim %c_21, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %88 = stablehlo.compare LT, %arg1, %87, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_22 = stablehlo.constant dense<6> : tensor<i32>
    %89 = stablehlo.broadcast_in_dim %c_22, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %90 = stablehlo.add %arg1, %89 : tensor<5xi32>
    %91 = stablehlo.select %88, %90, %arg1 : tensor<5xi1>, tensor<5xi32>
    %92 = stablehlo.broadcast_in_dim %91, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %c_23 = stablehlo.constant dense<4> : tensor<1xi32>
    %c_24 = stablehlo.constant dense<2147483647> : tensor<i32>
    %93 = stablehlo.broadcast_in_dim %c_24, dims = [] : (tensor<i32>) -> tensor<1xi32>
    %94 = stablehlo.minimum %c_23, %93 : tensor<1xi32>
    %95 = stablehlo.broadcast_in_dim %94, dims = [1] : (tensor<1xi32>) -> tensor<5x1xi32>
    %c_25 = stablehlo.constant dense<0> : tensor<i32>
    %96 = stablehlo.broadcast_in_dim %c_25, dims = [] : (tensor<i32>) -> tensor<5x1xi32>
    %97 = stablehlo.clamp %96, %92, %95 : tensor<5x1xi32>
    %98 = "stablehlo.scatter"(%85, %97, %86) <{indices_are_sorted = true, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 1>, unique_indices = true}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      stablehlo.return %arg4 : tensor<f32>
    }) : (tensor<5x6xf32>, tensor<5x1xi32>, tensor<5x2xf32>) -> tensor<5x6xf32>
    %99 = stablehlo.slice %arg0 [0:6, 0:1] : (tensor<6x6xf32>) -> tensor<6x1xf32>
    %100 = stablehlo.reshape %99 : (tensor<6x1xf32>) -> tensor<6xf32>
    %101 = stablehlo.broadcast_in_dim %arg1, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %102 = stablehlo.slice %arg2 [0:5, 0:2] : (tensor<5x6xf32>) -> tensor<5x2xf32>
    %103 = "stablehlo.scatter"(%100, %101, %102) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %114 = stablehlo.maximum %arg3, %arg4 : tensor<f32>
      stablehlo.return %114 : tensor<f32>
    }) : (tensor<6xf32>, tensor<5x1xi32>, tensor<5x2xf32>) -> tensor<6xf32>
    %cst_26 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %104 = stablehlo.broadcast_in_dim %cst_26, dims = [] : (tensor<f32>) -> tensor<6x6xf32>
    %105 = stablehlo.compare GT, %arg0, %104, FLOAT : (tensor<6x6xf32>, tensor<6x6xf32>) -> tensor<6x6xi1>
    %c_27 = stablehlo.constant dense<0> : tensor<i32>
    %106 = stablehlo.broadcast_in_dim %c_27, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %107 = stablehlo.compare LT, %arg1, %106, SIGNED : (tensor<5xi32>, tensor<5xi32>) -> tensor<5xi1>
    %c_28 = stablehlo.constant dense<6> : tensor<i32>
    %108 = stablehlo.broadcast_in_dim %c_28, dims = [] : (tensor<i32>) -> tensor<5xi32>
    %109 = stablehlo.add %arg1, %108 : tensor<5xi32>
    %110 = stablehlo.select %107, %109, %arg1 : tensor<5xi1>, tensor<5xi32>
    %111 = stablehlo.broadcast_in_dim %110, dims = [0] : (tensor<5xi32>) -> tensor<5x1xi32>
    %c_29 = stablehlo.constant dense<true> : tensor<i1>
    %112 = stablehlo.broadcast_in_dim %c_29, dims = [] : (tensor<i1>) -> tensor<5x6xi1>
    %113 = "stablehlo.scatter"(%105, %111, %112) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%arg3: tensor<i1>, %arg4: tensor<i1>):
      stablehlo.return %arg4 : tensor<i1>
    }) : (tensor<6x6xi1>, tensor<5x1xi32>, tensor<5x6xi1>) -> tensor<6x6xi1>
    return %8, %16, %46, %61, %84, %98, %103, %113 : tensor<5x2x3xf32>, tensor<5x2xf32>, tensor<5x1xf32>, tensor<6x6xf32>, tensor<5x6xf32>, tensor<5x6xf32>, tensor<6xf32>, tensor<6x6xi1>
  }
  func.func private @remainder(%arg0: tensor<5x1xi32>, %arg1: tensor<i32>) -> tensor<5x1xi32> {
    %0 = stablehlo.convert %arg1 : tensor<i32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %1 = stablehlo.compare EQ, %0, %c, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %c_0 = stablehlo.constant dense<1> : tensor<i32>
    %2 = call @_where(%1, %c_0, %0) : (tensor<i1>, tensor<i32>, tensor<i32>) -> tensor<i32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<i32>) -> tensor<5x1xi32>
    %4 = stablehlo.remainder %arg0, %3 : tensor<5x1xi32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %5 = stablehlo.broadcast_in_dim %c_1, dims = [] : (tensor<i32>) -> tensor<5x1xi32>
    %6 = stablehlo.compare NE, %4, %5, SIGNED : (tensor<5x1xi32>, tensor<5x1xi32>) -> tensor<5x1xi1>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %7 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<5x1xi32>
    %8 = stablehlo.compare LT, %4, %7, SIGNED : (tensor<5x1xi32>, tensor<5x1xi32>) -> tensor<5x1xi1>
    %c_3 = stablehlo.constant dense<0> : tensor<i32>
    %9 = stablehlo.compare LT, %2, %c_3, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %10 = stablehlo.broadcast_in_dim %9, dims = [] : (tensor<i1>) -> tensor<5x1xi1>
    %11 = stablehlo.compare NE, %8, %10, UNSIGNED : (tensor<5x1xi1>, tensor<5x1xi1>) -> tensor<5x1xi1>
    %12 = stablehlo.and %11, %6 : tensor<5x1xi1>
    %13 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<i32>) -> tensor<5x1xi32>
    %14 = stablehlo.add %4, %13 : tensor<5x1xi32>
    %15 = stablehlo.select %12, %14, %4 : tensor<5x1xi1>, tensor<5x1xi32>
    return %15 : tensor<5x1xi32>
  }
  func.func private @_where(%arg0: tensor<i1>, %arg1: tensor<i32>, %arg2: tensor<i32>) -> tensor<i32> {
    %0 = stablehlo.select %arg0, %arg1, %arg2 : tensor<i1>, tensor<i32>
    return %0 : tensor<i32>
  }
  func.func private @take_along_axis(%arg0: tensor<5x6xf32>, %arg1: tensor<5x1xi32>) -> (tensor<5x1xf32>, tensor<5x1x1xi32>) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<5x1xi32>
    %1 = stablehlo.compare LT, %arg1, %0, SIGNED : (tensor<5x1xi32>, tensor<5x1xi32>) -> tensor<5x1xi1>
    %c_0 = stablehlo.constant dense<6> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<5x1xi32>
    %3 = stablehlo.add %arg1, %2 : tensor<5x1xi32>
    %4 = stablehlo.select %1, %3, %arg1 : tensor<5x1xi1>, tensor<5x1xi32>
    %5 = stablehlo.reshape %4 : (tensor<5x1xi32>) -> tensor<5x1x1xi32>
    %c_1 = stablehlo.constant dense<5> : tensor<1xi32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %6 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<5x1x1xi32>
    %7 = stablehlo.compare GE, %5, %6, SIGNED : (tensor<5x1x1xi32>, tensor<5x1x1xi32>) -> tensor<5x1x1xi1>
    %8 = stablehlo.broadcast_in_dim %c_1, dims = [2] : (tensor<1xi32>) -> tensor<1x1x1xi32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1, 2] : (tensor<1x1x1xi32>) -> tensor<5x1x1xi32>
    %10 = stablehlo.compare LE, %5, %9, SIGNED : (tensor<5x1x1xi32>, tensor<5x1x1xi32>) -> tensor<5x1x1xi1>
    %11 = stablehlo.and %7, %10 : tensor<5x1x1xi1>
    %c_3 = stablehlo.constant dense<true> : tensor<i1>
    %12 = stablehlo.reduce(%11 init: %c_3) applies stablehlo.and across dimensions = [2] : (tensor<5x1x1xi1>, tensor<i1>) -> tensor<5x1xi1>
    %13 = "stablehlo.gather"(%arg0, %5) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1>}> : (tensor<5x6xf32>, tensor<5x1x1xi32>) -> tensor<5x1xf32>
    %cst = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<5x1xf32>
    %15 = stablehlo.select %12, %13, %14 : tensor<5x1xi1>, tensor<5x1xf32>
    return %15, %5 : tensor<5x1xf32>, tensor<5x1x1xi32>
  }
  func.func private @take_along_axis_0(%arg0: tensor<5x1x1xi32>, %arg1: tensor<5x1xf32>) -> tensor<5x6xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<5x6xf32>
    %1 = "stablehlo.scatter"(%0, %arg0, %arg1) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [1], input_batching_dims = [0], scatter_indices_batching_dims = [0], scatter_dims_to_operand_dims = [1], index_vector_dim = 2>, unique_indices = false}> ({
    ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):
      %2 = stablehlo.add %arg2, %arg3 : tensor<f32>
      stablehlo.return %2 : tensor<f32>
    }) : (tensor<5x6xf32>, tensor<5x1x1xi32>, tensor<5x1xf32>) -> tensor<5x6xf32>
    return %1 : tensor<5x6xf32>
  }
}
