"""Plug-ins."""
