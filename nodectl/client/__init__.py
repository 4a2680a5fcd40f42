"""Speaking to the service: sessions, launches, and a private node where no service runs.

Runs in the command, as its user.
"""
