"""Notices about jobs: sent by mail, by a command of the job's user, by a command of the administrator.

The daemon writes what is to be told with the change of the job itself, in one transaction. Processes that outlive the
daemon tell it, one for each user and way, and note each notice that was told.
"""
