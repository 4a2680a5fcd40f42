"""Tools for authors of plugins, behind `nodectl spank`. Run in the command, as its user or root."""
