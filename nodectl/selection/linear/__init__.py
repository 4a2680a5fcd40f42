"""What select/linear is made of: how it chooses whole nodes, whom it counts where, what it tells of nodes and jobs.

Used by that plugin alone, in the daemon and in commands that plan. Imports the records and bitmaps of the layer.
"""
