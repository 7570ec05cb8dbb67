"""Loops and sizes: what is written out, moved out of bodies, counted, or given its value."""
