"""What the feature `lab` adds to nodectl: tools for authors of plugins."""

from nodectl.model.features import Command, Feature

FEATURE = Feature(
    (
        Command(
            "spank", "for authors of SPANK plugins: list, check, try",
            "nodectl.lab.commands.spank", after="plugins",
        ),
        Command(
            "select", "for authors of select plugins: check one, try it",
            "nodectl.lab.commands.select_plugins", after="spank",
        ),
    ),
    manual="nodectl.lab.manual",
)  # fmt: skip
