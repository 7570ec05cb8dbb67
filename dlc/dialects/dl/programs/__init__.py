"""The structure of programs: kernels, control flow, function transformations, symbolic sizes and weight expressions."""
