"""The output of `--json` as JSON Schemas: a file NAME.json for each command.

Read by the command `nodectl schema`, and by programs that read the output of commands. The number at the end of `$id`
is the version. Fields may be added without a new version, so readers ignore unknown fields; a removed field, or a
changed meaning, makes a new version, which NEWS.md names.
"""
