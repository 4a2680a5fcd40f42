"""Texts of `nodectl trace`, `top` and `web` for the manual, as in `nodectl.cli.manual.about`."""

DESCRIPTIONS = {
    "trace": (
        "Each step is recorded while it is launched. The timeline has each call: by which process, as which user, "
        "when and for how long, and what it returned.",
    ),
}  # fmt: skip

EXAMPLES = {
    "trace": (
        ("The launch of job 7, as a timeline, and as a picture:",
         "nodectl trace 7\nnodectl trace 7 --svg launch.svg"),
        ("For ui.perfetto.dev:", "nodectl trace 7 --format=perfetto -o launch.pftrace"),
    ),
    "top": (("Every five seconds, as over a slow line:", "nodectl top -d 5"),),
}  # fmt: skip

SEE = {
    "trace": ("nodectl-plugins(1)", "nodectl-show(1)"),
    "top": ("nodectl-web(1)", "nodectl-topo(1)", "nodectl-queue(1)"),
    "web": ("nodectl-top(1)", "nodectl-report(1)"),
}  # fmt: skip
