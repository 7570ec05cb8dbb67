"""Files: what users name or give, written whole or not at all, and in folders that are theirs alone."""
