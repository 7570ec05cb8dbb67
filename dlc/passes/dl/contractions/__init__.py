"""Rewrites of contractions and reductions: other algorithms, other summation orders, scales folded into weights."""
