"""The plugins of nodectl, one folder for each kind, loaded in the same way as a site's own plugins.

Task, proctrack and job_container plugins run in the daemon, the forkserver, a stepd and its tasks; SPANK plugins also
run in the command. Plugins import only modules below the processes of a step.
"""
