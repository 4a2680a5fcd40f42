"""The plugins that come with nodectl, one folder for each kind. They are loaded as a site's own files are.

Task, proctrack and job_container plugins run in the daemon, the forkserver, a stepd and its tasks; SPANK plugins also
in the command. They import what stands below the processes of a step.
"""
