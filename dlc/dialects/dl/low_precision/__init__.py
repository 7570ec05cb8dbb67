"""Low precision: quantization, weight-only products and packed dot-product operands."""
