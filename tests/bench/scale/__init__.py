"""A cluster of thousands of nodes in one process and in simulated time. The code of mesh, link, leader and of the
client's agent is the real one; kernel, network and the nodes' daemons are modelled, by costs that are measured.
"""
