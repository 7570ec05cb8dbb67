"""Tests of whole loops as kernels."""
