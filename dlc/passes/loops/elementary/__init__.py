"""Elementary functions of the `math` dialect, expanded to basic arithmetic and bit operations: one formula each.

Error bounds are in units in the last place (ulp) of a normal result, against the exact value. NaN and infinite arguments,
signed zeros, overflow and subnormal results are as in IEEE 754, except for the subnormal results of `exp_at_most_zero`.
Coefficients of approximations come from the Remez algorithm in 60 digits, rounded to the format; each has a comment with the
function, the interval, the error measure and the maximum error.

Bounds are for `math.fma` rounded once. On a target without such an instruction it becomes a product and a sum: the exponential
and logarithmic functions stay within 2 ulp more, sin, cos and tan have an absolute error of |x|·2⁻²³ (f32) or |x|·2⁻⁵² (f64),
and powf in f64 a relative one of |y·log x|·2⁻⁵².
"""
