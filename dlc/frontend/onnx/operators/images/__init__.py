"""Operators on images and volumes: windows, and places between elements."""
