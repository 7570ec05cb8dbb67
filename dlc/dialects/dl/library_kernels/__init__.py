"""Ops with hand-written loops, whose iterations depend on earlier ones, and ops that decompose to them."""
