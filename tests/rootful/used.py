"""A program that asks a service, or a cluster, what steps use: its argument is the socket."""

from rootful.node import PATH

ASK = f"""
import json, sys
sys.path[:0] = {PATH!r}
from nodectl.client.command import GlobalOptions
from nodectl.client.session import Session
settings = GlobalOptions()
settings.config, settings.socket = None, sys.argv[1]
print(json.dumps(Session(settings, start_private=False).call("Usage")["steps"]))
"""
