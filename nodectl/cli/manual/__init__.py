"""The manual: pages of man(1), and the same pages as Markdown, made from the tables of options, keys, hooks and calls.

Runs in a command of its own, `python3 -m nodectl.cli.manual DIR`, when a package is made or installed: no step and no
service imports it. The manual's own texts stand in `about.py` and `subjects.py`; all else is read from the sources of
`--help`, `nodectl config --explain` and the service.
"""
