"""A launch for other tools and for people: spans for ui.perfetto.dev and OpenTelemetry, pictures, comparisons.

Pure: the command makes them, as its user, from the lines of a trace.
"""
