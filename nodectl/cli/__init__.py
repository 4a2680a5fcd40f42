"""The command that people run."""
