"""The settings of the tree: width and time limits. Tests use small values."""

from typing import NamedTuple

from nodectl.cluster import tree
from nodectl.cluster.link import connection


class Settings(NamedTuple):
    """The width of the tree, and limits; times in seconds."""

    width: int = tree.WIDTH
    beat: float = 1.0  # a heartbeat, each way over each link
    silence: float = 10.0  # a link over which nothing has come for so long is cut
    grace: float = 5.0  # for a rank whose link was cut to be back
    patience: float = 5.0  # for a rank to wait for its parent's joining before it stands beneath another one
    handshake: float = connection.HANDSHAKE
    spacing: float = 0.001  # between the first calls of two ranks to the root: a handshake takes it almost as long
    rush: float = 20.0  # for a handshake with the root at the first call
    most_queued: int = connection.MOST_QUEUED
    most_strangers: int = 1024  # connections that have not proven themselves


DEFAULT = Settings()
