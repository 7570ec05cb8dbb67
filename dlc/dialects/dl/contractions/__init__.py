"""Sums of products: matrix products, convolutions, Fourier transforms."""
