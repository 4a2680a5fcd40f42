"""What a client may ask for, looked at without a node: form and meaning of requests.

Pure functions of values. The daemon uses them for its own node, the leader of a cluster for no node in particular.
"""
