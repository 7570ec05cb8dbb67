"""Watching passes run: verification, timing, dumps of the IR, and the evidence that a crash leaves."""
