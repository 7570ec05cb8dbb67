"""Ops whose results have data-dependent sizes or are strings."""
