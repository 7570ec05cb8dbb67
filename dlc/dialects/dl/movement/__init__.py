"""Ops that put elements in other places: known ones, and ones that come from data."""
