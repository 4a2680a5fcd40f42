"""The state shared by the tasks of a step: the step, its plugins and its streams.

The stepd makes it once, before the first fork, and adds the state that only the stepd needs (`stepd.run.Run`). A task
reads its own copy, which the fork has made.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from nodectl.kernel.operations import Operation
    from nodectl.launch.cgroup.tree import Group
    from nodectl.launch.streams.stdio import TaskStreams
    from nodectl.launch.task.common_words import CommonWords
    from nodectl.model.step import Step, Task
    from nodectl.plugin_host.node_plugins import NodePlugins
    from nodectl.plugin_host.tracing.progress import Progress
    from nodectl.spank.stack import Stack


class StepContext:
    """The state shared by the tasks of a step.

    `group` is the step's cgroup, None where the tracker makes none. Two descriptors: `trace` of the file that takes the
    trace, `client_streams` of the socket in which the client's streams wait (`task.client_streams`); -1 for none.
    `common_stages` holds for each stage of `task.main` the last task's operations, and the values that the stage looked
    at.
    """

    __slots__ = (
        "client_streams",
        "common_stages",
        "common_words",
        "group",
        "node",
        "progress",
        "spank",
        "step",
        "streams",
        "tasks",
        "trace",
    )

    step: "Step"
    tasks: "list[Task]"
    node: "NodePlugins"
    spank: "Stack"
    progress: "Progress"
    group: "Group | None"
    streams: "TaskStreams"
    trace: int
    client_streams: int
    common_words: "CommonWords"
    common_stages: "dict[Callable[..., object], tuple[object, list[Operation]]]"
