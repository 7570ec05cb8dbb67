"""The functions of `math`, from additions, multiplications, roundings and operations on bits: one formula each.

Error bounds are in units in the last place of the result (ulp), against the exact value, for normal results; NaN and
infinite arguments, signed zeros, overflow and denormal results are as in IEEE 754. Where a fit is involved, the
coefficients come from Remez's algorithm in 60 digits, rounded to the format; the statement says which function, over
which interval, in which measure, to which error.

Bounds are for `math.fma` rounded once. Where a target has no such instruction and it becomes a product and a sum, the
exponential and logarithmic functions stay within 2 ulp more; sin, cos and tan have an absolute error of |x|·2⁻²³ (f32) or
|x|·2⁻⁵² (f64), and powf in f64 a relative one of |y·log x|·2⁻⁵².
"""
