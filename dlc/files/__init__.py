"""File access: model sources, memory mapping, safetensors, atomic writes, private folders and user Python files."""
