"""Pictures of a machine, as people know them from lstopo: text for a terminal, and SVG.

Pure: `groups` says what is drawn within what, `occupants` who is on which CPU, `text` and `svg` draw it.
"""
