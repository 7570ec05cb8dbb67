"""On-disk caches, shared by all processes of a user."""
