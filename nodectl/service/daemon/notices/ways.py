"""The ways in which people are told, and what a courier notes of it instead of a wait status. Values, in both."""

MAIL, COMMAND, SITE = "mail", "command", "site"
"""By mail to the job's user, by the command of --notify, by the administrator's `notify_command`."""
WAYS = (MAIL, COMMAND, SITE)
LATE, UNKNOWN_USER, UNTRUSTED, FAILED, NOT_BEGUN = -1, -2, -3, -4, -5
