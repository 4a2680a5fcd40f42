"""What the feature `bulk` adds to nodectl: many short commands in one step."""

from nodectl.model.features import Command, Feature

FEATURE = Feature(
    (
        Command(
            "bulk", "run thousands of short commands in one step, as GNU parallel",
            "nodectl.bulk.command", after="run", parser="nodectl.bulk.options",
        ),
    ),
    manual="nodectl.bulk.manual",
    step="nodectl.bulk.runner.loop",
)  # fmt: skip
