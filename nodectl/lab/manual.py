"""Texts of `nodectl spank` and `nodectl select` for the manual, as in `nodectl.cli.manual.about`."""

EXAMPLES = {
    "spank": (
        ("A plugin, in every context:", "nodectl spank try --user nobody ./nofile.so --nofile=64 -- sh -c 'ulimit -n'"),
        ("What Slurm 24.11 would make of it:", "nodectl spank check --slurm 24.11 nofile.so"),
    ),
    "select": (
        ("Ask a plugin what careless authors forget:", "nodectl select check ./first_fit.py"),
        ("The same workload against two plugins:",
         "nodectl select try ./first_fit.py select/cons_tres --nodes '4*2s:8c:2t,mem=64G' --generate 1000"),
    ),
}  # fmt: skip

SEE = {
    "spank": ("nodectl-spank(7)", "plugstack.conf(5)"),
    "select": ("nodectl-plugins(7)",),
}  # fmt: skip
