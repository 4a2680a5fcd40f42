"""Requests of clients, checked without a node: form and meaning.

Pure functions of values. The daemon uses them for its own node, the leader of a cluster for no node in particular.
"""
