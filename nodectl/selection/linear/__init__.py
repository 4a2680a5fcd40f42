"""The parts of select/linear: the choice of whole nodes, the counts of jobs, the data about nodes and jobs.

Used by that plugin alone, in the daemon and in planning commands. Imports the records and bitmaps of the layer.
"""
