"""Job ids that are reserved."""

from __future__ import annotations

import os

from nodectl import wire
from rootful import raw
from rootful.node import NOBODY, Node

AT_A_TIME = 50


def test_nobody_takes_away_what_others_have_reserved_by_reserving_much(node: Node) -> None:
    job = node.call("Reserve")["job"]
    pid = os.fork()
    if pid == 0:
        try:
            os.setgid(NOBODY.pw_gid)
            os.setuid(NOBODY.pw_uid)
            with raw.connect(node) as sock:
                inbox = wire.Inbox(1 << 20)
                for _ in range(10_050 // AT_A_TIME):
                    sock.sendall(raw.call("org.nodectl.Reserve") * AT_A_TIME)
                    for _ in range(AT_A_TIME):
                        wire.receive(sock, inbox)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    assert node.call("Launch", request={**raw.REQUEST, "job": job}) == {"job": job, "step": 0}
    node.call("Wait", job=job, step=0)
    assert int(str(node.call("Reserve")["job"])) < 2000  # ids that were not used are not used up
