"""The kinds of plugins: a table with a line for each kind, for loading, listing and calling.

To add a kind, add a line to `KINDS` and a folder of its name with its plugins to plugins/. Each function that a launch
calls also needs a row in `nodectl.model.launch_order` and a call of that row at its place; a kind whose plugins the
configuration names needs a key. docs/recipes.md has the whole recipe.

Values only: used by the daemon, the forkserver and commands.
"""

from nodectl.model.launch_order import ROWS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from nodectl.model.config import Config

NODE = "node"
"""Hosted by the node: named by type in a key, loaded once when the service starts, in the daemon and the forkserver."""
DAEMON = "daemon"
"""Hosted by the daemon alone: named by type in a key, loaded once when the service starts. What such a plugin imports,
no process of a step pays for.
"""
STEP = "step"
"""Hosted by each step: named by path in plugstack.conf. A Python file is executed anew in each process that loads the
stack, in a stepd after its fork."""

FULL, RELEASE = 3, 2
"""How many numbers of a plugin's version must be ours: all, or those of the release, where bug fixes change nothing."""


class Kind:
    """A kind of plugins.

    `prefix`: the start of the names of its functions. `functions`: the functions that a plugin may define, each with
    its number of parameters: the rows of a launch, and `uncalled`, which no launch calls. `required`: functions that
    have no harmless stub. `key`: the key that names its plugins, "" for none. `versioned`: False where the documents
    let a plugin leave plugin_version out. `interface`: the version of the kind's own interface, which a plugin may
    state instead. `compiled`: its plugins may be shared objects (`compiled.py`). `api`: the module for plugins; a
    function that a plugin of any kind imports from there is no hook, whatever its name is.
    """

    __slots__ = (
        "api", "compared", "compiled", "functions", "hosted", "interface", "key", "name", "prefix", "required", "title",
        "uncalled", "versioned",
    )  # fmt: skip

    def __init__(
        self, name: str, prefix: str, title: str, key: str = "", *, hosted: str = NODE, required: str = "",
        uncalled: "Mapping[str, int] | None" = None, versioned: bool = True, interface: int = 0, compared: int = FULL,
        api: str = "nodectl.plugin_api", compiled: bool = False,
    ) -> None:  # fmt: skip
        self.name = name
        self.prefix = prefix
        self.title = title  # of its list in `nodectl plugins`
        self.key = key
        self.hosted = hosted
        self.required = tuple(prefix + word for word in required.split())
        self.uncalled = {prefix + word: arity for word, arity in (uncalled or {}).items()}
        rows = {row.call: row.arity for row in ROWS.values() if row.kind == name and row.call.startswith(prefix)}
        self.functions: Mapping[str, int] = {**rows, **self.uncalled}
        self.versioned = versioned
        self.interface = interface
        self.compared = compared
        self.api = api
        self.compiled = compiled


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "task", "task_p_", "task plugins, in calling order", "task_plugin", versioned=False,
            uncalled={"add_pid": 1, "update_mem_limit": 2, "pre_launch_priv_plan": 2, "pre_launch_plan": 2},
        ),
        Kind(
            "proctrack", "proctrack_p_", "process tracking", "proctrack_type",
            required="create add signal destroy wait get_pids has_pid find",
            uncalled={"find": 1, "has_pid": 2, "get_pids": 1},
        ),
        Kind(
            "job_container", "container_p_", "job containers", "job_container_type", interface=101, compiled=True,
            uncalled={"reconfig": 0, "restore": 0, "add_pid_plan": 2},
        ),
        Kind("mpi", "mpi_p_", "MPI plugins, of which a step has at most one", "mpi_plugin"),
        Kind(
            "spank", "slurm_spank_", "SPANK plugins", hosted=STEP, compared=RELEASE, api="nodectl.spank",
            uncalled={"local_user_init": 3, "slurmd_init": 3, "slurmd_exit": 3},
        ),
        Kind(
            "select", "select_p_", "node selection", "select_type", hosted=DAEMON, required="job_test", versioned=False,
            uncalled={
                "state_save": 1, "state_restore": 1, "node_init": 2, "job_init": 1, "reconfigure": 0,
                "select_nodeinfo_alloc": 0, "select_nodeinfo_pack": 3, "select_nodeinfo_unpack": 3,
                "select_nodeinfo_free": 1, "select_nodeinfo_set": 1, "select_nodeinfo_set_all": 0,
                "select_nodeinfo_get": 4, "update_node_config": 1, "node_ranking": 2, "update_node_state": 1,
                "select_jobinfo_alloc": 0, "select_jobinfo_copy": 1, "select_jobinfo_free": 1,
                "select_jobinfo_pack": 3, "select_jobinfo_unpack": 3, "select_jobinfo_get": 3,
                "select_jobinfo_set": 3, "select_jobinfo_sprint": 4, "select_jobinfo_xstrdup": 2,
                "job_test": 9, "job_begin": 1, "job_ready": 1, "job_fini": 1, "job_signal": 2, "job_mem_confirm": 1,
                "job_suspend": 2, "job_resume": 2, "job_expand_allow": 0, "job_expand": 2, "job_resized": 2,
                "step_pick_nodes": 3, "step_finish": 2, "resv_test": 4, "get_info_from_plugin": 3,
                "ba_init": 2, "ba_get_dims": 0,
            },
        ),
    )
}  # fmt: skip
"""By name, in the order in which they are loaded and listed."""


def configured(config: "Config", *hosts: str) -> "dict[str, tuple[str, ...]]":
    """Return the configured plugin types by kind, in calling order.

    With `hosts`, only the kinds hosted there.
    """
    asked = [kind for kind in KINDS.values() if kind.key and (not hosts or kind.hosted in hosts)]
    values = {kind.name: getattr(config, kind.key) for kind in asked}
    return {name: (value,) if isinstance(value, str) else value for name, value in values.items()}
