"""How many may see a step's streams at one time."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from nodectl.launch.streams.viewers import Viewers
from nodectl.model.wire import terminal_packets as packets

MOST = 16


@pytest.mark.parametrize("has_client", [True, False])
def test_sixteen_attach_and_the_next_is_told_that_nobody_more_can(tmp_path: Path, has_client: bool) -> None:
    at = str(tmp_path / "view")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(at)
    listener.listen()
    client, other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    viewers = Viewers(client.detach() if has_client else -1, listener.detach())
    attached = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(MOST + 1)]
    for viewer in attached:
        viewer.connect(at)
        assert not list(viewers.serve())
    viewers.show(packets.OUT, b"shown")
    kinds = [packets.split(viewer.recv(packets.LONGEST))[0] for viewer in attached]
    assert kinds == [packets.OUT] * MOST + [packets.NOTE]
    assert attached[-1].recv(1) == b"", "it is not waited for"
    for end in (*attached, other_end, client):
        end.close()
