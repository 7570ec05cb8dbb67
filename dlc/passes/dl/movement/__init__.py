"""Where elements stand: transposes and reshapes leave the way of what computes; indices are seen to be inside."""
