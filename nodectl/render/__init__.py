"""Plain text and pictures for people: tables, timelines, layouts, and machines as people know them from lstopo.

Pure but for `terminal`, which looks at standard output, and the names of users. The commands call it, as their user.
"""
