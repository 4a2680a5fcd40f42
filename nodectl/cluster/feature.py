"""What the feature `cluster` adds to nodectl: several nodes as one."""

from nodectl.model.features import Command, Feature

FEATURE = Feature(
    (
        Command(
            "cluster", "join several nodes into one: start, status, stop",
            "nodectl.cluster.command", after="reserve",
        ),
    ),
    manual="nodectl.cluster.manual",
    several_nodes="nodectl.cluster.several_nodes",
)  # fmt: skip
