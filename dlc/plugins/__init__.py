"""Plug-ins: packages and scripts that add ops, passes, converters and targets to dlc (docs/plugins.md).

plugin.py     the declaration of a plug-in
registry.py   the plug-ins of this process: discovery of entry points, registration, failures, cache keys
tables.py     tables of rules that built-in code and plug-ins fill

Entry points are discovered when a table is first read, which is when a compilation begins. What plug-ins may import is
`dlc.extend`.
"""
