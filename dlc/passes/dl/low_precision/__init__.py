"""Low-precision contractions: bf16 and f16, int8 quantization, weight-only quantization, packed dot-product operands."""
