"""Contractions of numbers of 16 bits and fewer: quantised, rounded, several to a word."""
