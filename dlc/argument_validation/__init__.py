"""Validation of the arguments of public functions against their annotations.

validate.py             checks of calls and their messages
annotation_parser.py    annotations as predicates
"""
