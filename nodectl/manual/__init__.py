"""The manual: pages of man(1), and the same as Markdown, made of the tables of options, keys, hooks and calls.

Runs in a command of its own, `python3 -m nodectl.manual DIR`, when a package is made or installed: no step and no
service imports it. What a page says in words of its own stands in `about.py` and `subjects.py`; all else is read from
where `--help`, `nodectl config --explain` and the service have it.
"""
