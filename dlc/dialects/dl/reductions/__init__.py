"""Ops that combine elements along axes or in windows, and what is normalised by them."""
