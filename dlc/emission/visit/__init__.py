"""The visit over a kernel's loops that all languages share."""
