"""What the feature `view` adds to nodectl: pictures of machine, queue and launches."""

from nodectl.model.features import Command, Feature

FEATURE = Feature(
    (
        Command(
            "trace", "print a step's flight recorder as a timeline", "nodectl.view.commands.print_trace", after="show"
        ),
        Command(
            "top", "show the machine, its steps and jobs live in a terminal", "nodectl.view.commands.top", after="node"
        ),
        Command(
            "web", "show machine, steps and jobs in a browser, to be read only", "nodectl.view.commands.web",
            after="top",
        ),
    ),
    manual="nodectl.view.manual",
)  # fmt: skip
