"""A feature: pictures of machines, queues and launches, in a terminal, a browser or a file. Run by commands."""
