"""File access: model sources, memory mapping, atomic writes, private folders and user Python files."""
