"""Ops whose loops are written by hand, since a step goes on with what the steps before it have left, and what they make up."""
