"""The service's log in systemd's journal: fields beside the text of each line.

Used by the daemon, the forkserver and stepds, as root; elsewhere, and without a journal, lines are plain text.
"""
