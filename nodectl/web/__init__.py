"""`nodectl web`: what runs and waits as a page in a browser of the same machine, to be read only. It is the command's
own process, as its user; Starlette and uvicorn, extras of ours, speak HTTP.
"""
