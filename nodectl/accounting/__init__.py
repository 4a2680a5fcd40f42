"""What jobs and steps used, as values: the fields that `nodectl acct` tells, the sums of `nodectl report`.

Pure functions of records that the history keeps. In the daemon and in commands, as anyone.
"""
