"""The task of one node: writes its standard input to a file, whole or not at all, and says on its standard output why
it could not.

arguments: PATH MODE FORCE SIZE [ATIME MTIME], MODE in octal, FORCE 0 or 1, times in nanoseconds.
"""

import os
import signal
import sys

from nodectl.forkserver.bcast import write_whole


def main() -> int:
    """The whole process: 0, or 1 where there is no such file now."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that a partial file which has a name is removed
    path, mode, force, size, *times = sys.argv[1:]
    try:
        write_whole(
            0,
            os.path.abspath(path),
            mode=int(mode, 8),
            force=force == "1",
            size=int(size),
            times=tuple(map(int, times)),
        )
    except OSError as error:
        print(os.environ.get("SLURMD_NODENAME", "-"), error.strerror, flush=True)
        return 1
    return 0
