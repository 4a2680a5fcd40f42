"""The methods of org.nodectl: what users ask of the service, one file for each subject.

Runs in the daemon, as root, in its event loop. It imports every other package of the daemon but `recovery`.
"""
