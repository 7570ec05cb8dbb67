"""Sums of products: of matrices, in convolutions, in transforms."""
