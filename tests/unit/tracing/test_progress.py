"""What a process says of its place while another one reads it."""

import os
import signal

from nodectl.model.launch_order import HOOKS
from nodectl.plugin_host.tracing import progress
from nodectl.plugin_host.tracing.progress import Progress

_LOOKS = 20_000


def test_a_place_that_changes_while_it_is_read_is_the_old_one_or_the_new_one() -> None:
    fd = progress.make(1)
    try:
        memory = Progress(fd, 1)
    finally:
        os.close(fd)
    hook = next(hook for hook in HOOKS if hook.call == "slurm_spank_task_init")
    writer = os.fork()
    if writer == 0:
        while True:
            memory.enter(1, hook)
            memory.done(1)
    try:
        while memory.place(1)[0] is None:
            pass
        assert {memory.place(1)[0] for _ in range(_LOOKS)} <= {hook, None}
    finally:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
