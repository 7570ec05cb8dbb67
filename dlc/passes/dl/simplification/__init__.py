"""The same values by fewer and simpler ops."""
