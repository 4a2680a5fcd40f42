"""From a request to a step: who asks, what they may have, where its tasks go, how it is confined.

Runs in the daemon, as root. It imports `processes`, `reception`, `steps` and `jobs`.
"""
