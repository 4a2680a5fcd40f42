"""Permissions to see, signal and update steps: a user has the user's own, root and members of admin_group have all.

The kernel names the caller. For all other users a step does not exist: the code that asks here refuses with NoSuchStep.
"""

import os

from nodectl.model.wire.framing import Peer


class Permissions:
    """The node's permissions. `admin_gid` is the number of admin_group, or None if the group does not exist."""

    __slots__ = ("admin_gid",)

    def __init__(self) -> None:
        self.admin_gid: int | None = None

    def is_admin(self, peer: Peer) -> bool:
        """Return True for root, the members of admin_group, and the owner of a user's own node."""
        return peer.uid in (0, os.geteuid()) or (self.admin_gid is not None and self.admin_gid in peer.groups)

    def may_see(self, peer: Peer, uid: object) -> bool:
        """Return True for a step or job of this user, and for an admin."""
        return peer.uid == uid or self.is_admin(peer)
