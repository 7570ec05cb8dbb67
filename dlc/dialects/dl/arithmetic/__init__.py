"""Elementwise ops, random bits, and conversion between element types."""
