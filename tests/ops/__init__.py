"""One record per sample of an op: evidence that several tests use."""
