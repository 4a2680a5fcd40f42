"""The task of a node: writes standard input to a file, whole or not at all, and reports a failure on standard output.

Arguments: PATH MODE FORCE SIZE [ATIME MTIME], MODE in octal, FORCE 0 or 1, times in nanoseconds.
"""

import os
import signal
import sys

from nodectl.launch.forkserver.bcast import write_whole


def main() -> int:
    """Write the file and return the exit status: 0, or 1 where the file was not written."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that a partial file is removed
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
