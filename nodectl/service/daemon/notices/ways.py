"""The ways to send a notice, and a courier's results that are no wait status. Values, in the daemon and in couriers."""

MAIL, COMMAND, SITE = "mail", "command", "site"
"""A mail to the job's user, the command of --notify, the administrator's `notify_command`."""
WAYS = (MAIL, COMMAND, SITE)
LATE, UNKNOWN_USER, UNTRUSTED, FAILED, NOT_BEGUN = -1, -2, -3, -4, -5
