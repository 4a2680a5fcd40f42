"""nodectl: the compute-node half of a batch system, alone on one Linux machine."""

__version__ = "0.1.0"
