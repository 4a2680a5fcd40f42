"""The configuration file as a whole: the table of keys, and the reader.

The daemon reads it at its start, as root; a command reads it as its user, where it has to. `all_keys.py` holds all keys
in order, `reader.py` makes a `nodectl.model.config.Config` from a file. Imports the `keys.py` of every subject, and no
other module of theirs. `nodectl config --explain` (`nodectl/cli/config.py`) explains the keys.

To add a key:

1. Write its row, a `Key`, into `keys.py` of the subject's folder: name, parser, default, help. Names are Slurm's
   parameter names in snake case. A parser that no other subject needs stands beside the row.
2. Add its name and type to the annotations of `nodectl.model.config.Config`, in the place that it has in the table.
3. A subject's first key needs a section in its `keys.py`, and a line in `all_keys.py`.

Defaults, checks, `nodectl config` and `nodectl config --explain` then have it.
"""
