"""The names of nodectl's Varlink interfaces, apart from the code of the methods: the client needs only the names."""

NODE = "org.nodectl"
STEP = "org.nodectl.step"
WRAPPED = "#!/bin/sh\n# Made by nodectl submit --wrap.\n\n"
"""How the script of --wrap begins; the command follows. The name of this script is `WRAP`."""
WRAP = "wrap"
QUEUED_AGAIN = "put into the queue again"
"""How the reason of an End begins that is no cancellation: the daemon's word to the step's runner."""
