"""Plain text and pictures for people: tables, timelines, layouts, and machines in the style of lstopo.

Pure but for `terminal`, which looks at standard output, and the names of users. The commands call it, as their user.
"""
