"""Access control lists of files: a file of root's that one user may read, and no other (acl(5)).

Such a file is root's to change. A file that belonged to the user would take what the user writes into it, in no budget.
"""

import errno
import os
import struct

_NAME = "system.posix_acl_access"
_VERSION = 2
_OWNER, _USER, _GROUP, _MASK, _OTHERS = 1, 2, 4, 16, 32  # tags, as the kernel has them
_NO_ID = 0xFFFFFFFF
_READ, _WRITE, _EXECUTE = 4, 2, 1


def let_read(file: "int | str", uid: int, *, execute: bool = False) -> bool:
    """Let a user read a file of the caller's, and `execute` it. Return False where the file system has no such lists.

    Raises OSError.
    """
    rights = _READ | (_EXECUTE if execute else 0)
    owner = _READ | _WRITE | (_EXECUTE if execute else 0)
    entries = (
        (_OWNER, owner, _NO_ID), (_USER, rights, uid), (_GROUP, 0, _NO_ID), (_MASK, rights, _NO_ID),
        (_OTHERS, 0, _NO_ID),
    )  # fmt: skip
    packed = struct.pack("<I", _VERSION) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    try:
        os.setxattr(file, _NAME, packed)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        return False
    return True
