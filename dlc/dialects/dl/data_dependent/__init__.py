"""Ops of whose results only data says how many elements there are, or that are text."""
