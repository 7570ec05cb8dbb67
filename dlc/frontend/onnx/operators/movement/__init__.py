"""Operators that put elements in other places, choose them or order them."""
