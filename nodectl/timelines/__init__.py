"""A launch as other tools read it and as people look at it: spans for ui.perfetto.dev and OpenTelemetry, pictures, two
launches beside each other. Pure: the command makes them, as its user, of the lines of a trace.
"""
