"""`nodectl web`: running and waiting jobs on a read-only page for a browser on the same machine.

It is the command's own process, as its user; Starlette and uvicorn, extras of ours, speak HTTP.
"""
