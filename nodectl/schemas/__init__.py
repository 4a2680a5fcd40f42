"""What `--json` prints, as JSON Schemas: a file NAME.json for each command.

Read by the command `nodectl schema`, and by whoever reads output of the commands by a program. The number at the end of
`$id` is the version. Fields may be added without a new one, so readers pass over what they do not know; a field that
goes, or means something else, makes a new version, which NEWS.md tells.
"""
