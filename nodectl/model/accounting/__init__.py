"""Use of resources by jobs and steps, as values: the fields of `nodectl acct` and the sums of `nodectl report`.

Pure functions of records that the history keeps. In the daemon and in commands, as any user.
"""
