"""The cgroups left by an earlier daemon, as a tree. Only the daemon's sweep imports this, if cgroups are left."""

import os

from cgroupspy.nodes import Node as CgroupNode

from nodectl.launch.cgroup import tree


class Cgroup2Node(CgroupNode):  # type: ignore[misc]  # cgroupspy has no types
    """A cgroupspy node of the v2 hierarchy, a single tree in which every node has the core files."""

    def _get_controller(self) -> tree.Core:
        return tree.Core(self)

    def grow(self) -> "Cgroup2Node":
        """Read the children below this node from the file system. Return this node."""
        try:
            names = [entry.name for entry in os.scandir(self.full_path) if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            names = []
        self.children = [Cgroup2Node(name, parent=self).grow() for name in names]
        return self
