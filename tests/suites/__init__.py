"""Others' test suites: `python -m tests.suites SUITE`; docs/conformance.md has the results.

`suite.py` defines suites and outcomes, `record.py` the recorded results; each other module adapts one suite.
"""
