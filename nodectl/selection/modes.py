"""Constants of the select interface, by the names of its document.

Values only, in every process; plugin files import them from `nodectl.selection`.
"""

from nodectl.model.states import COMPLETING, ENDED, PENDING, RUNNING, SUSPENDED  # noqa: F401  # for plugins

SELECT_MODE_RUN_NOW = 0
SELECT_MODE_TEST_ONLY = 1
SELECT_MODE_WILL_RUN = 2

# enum select_nodedata_type
SELECT_NODEDATA_SUBCNT = 2
SELECT_NODEDATA_PTR = 5
SELECT_NODEDATA_MEM_ALLOC = 8
SELECT_NODEDATA_TRES_ALLOC_FMT_STR = 9
SELECT_NODEDATA_TRES_ALLOC_WEIGHTED = 10

# enum select_jobdata_type
SELECT_JOBDATA_PTR = 17
SELECT_JOBDATA_NETWORK = 24

# enum select_print_mode
SELECT_PRINT_HEAD = 0
SELECT_PRINT_DATA = 1
SELECT_PRINT_MIXED = 2

# enum select_plugindata_info
SELECT_CR_PLUGIN = 0
SELECT_BITMAP = 1
SELECT_CONFIG_INFO = 5

# enum node_states
NODE_STATE_UNKNOWN = 0
NODE_STATE_DOWN = 1
NODE_STATE_IDLE = 2
NODE_STATE_ALLOCATED = 3
NODE_STATE_ERROR = 4
NODE_STATE_MIXED = 5
NODE_STATE_DRAIN = 0x200  # a flag beside the base state
