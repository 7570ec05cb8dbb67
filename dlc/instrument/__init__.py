"""Watching passes run: verification, timing, dumps of the IR, what they compute, and the evidence that a fault leaves."""
