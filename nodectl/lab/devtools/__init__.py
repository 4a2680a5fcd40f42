"""Tools for authors of plugins, behind `nodectl spank` and `nodectl select`. Run in the command, as user or root."""
