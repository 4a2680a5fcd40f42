"""Who may see, signal and update which step: users their own, root and the members of admin_group everybody's.

Who calls, the kernel says. To everybody else a step is not there: the caller of this refuses with NoSuchStep.
"""

import os

from nodectl.wire.framing import Peer


class Permissions:
    """`admin_gid` is the number of admin_group; None where there is no such group."""

    __slots__ = ("admin_gid",)

    def __init__(self) -> None:
        self.admin_gid: int | None = None

    def is_admin(self, peer: Peer) -> bool:
        """True for root, the members of admin_group, and whose own node it is."""
        return peer.uid in (0, os.geteuid()) or (self.admin_gid is not None and self.admin_gid in peer.groups)

    def may_see(self, peer: Peer, uid: object) -> bool:
        """True for what belongs to this user, and for an admin."""
        return peer.uid == uid or self.is_admin(peer)
