"""Select plugins: which nodes, cores, memory and devices of the machine a job gets.

Run in the daemon as root, and in commands that plan.
"""
