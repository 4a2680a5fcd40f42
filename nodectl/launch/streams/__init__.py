"""The standard streams of a step: files, the client's descriptors, relays, terminals and viewers.

The stepd decides where the streams of each task lead. A task connects them as the user; a relay, also as the user,
copies those that cannot be connected straight. This package imports nothing of the task or the stepd.

    stdio.py            where the three streams of each task lead
    filename.py         names of files with %t and %j
    client_streams.py   the client's descriptors, which tasks and relays take from a socket
    relay.py            the process that copies streams, for -l, -u and a shared stdin
    terminal.py         the process that copies the terminal of --pty
    viewers.py          the viewers of the copied streams
"""
