"""How many runners a forkserver keeps, and for whom; their ends of the links are here."""

import socket

from nodectl.forkserver.runners import Runners
from nodectl.stepd.orders import WAITS

USER, ELSE = 1000, 1001


def kept(runners: Runners, uid: int, secure: str = "none", *, waits: bool = True) -> socket.socket:
    """The end of one that is kept now."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    runners.add(1, (uid, secure), ours)
    if waits:
        theirs.send(WAITS)
    theirs.settimeout(10)
    return theirs


def test_a_runner_that_has_ended_while_it_waited_takes_no_place() -> None:
    runners = Runners(2)
    waited = kept(runners, USER, "none")
    assert runners.has_room(ELSE), "it is seen to wait"
    waited.close()
    assert runners.has_room(USER)


def test_a_users_runner_that_waits_makes_room_for_one_that_is_confined_otherwise() -> None:
    runners = Runners(4)
    ends = [kept(runners, USER, "none"), kept(runners, USER, "none")]
    assert not runners.serve(b"{}", [], (USER, "strict"))
    assert runners.has_room(USER)
    assert ends[0].recv(1) == b"", "it is told to end"
    confined = kept(runners, USER, "strict", waits=False)
    ends[1].settimeout(0)
    assert runners.serve(b"{}", [], (USER, "none")), "the other one still waits"
    for end in (*ends, confined):
        end.close()


def test_who_has_as_many_runners_as_one_may_have_gets_no_other_ones_place() -> None:
    runners = Runners(4)
    ends = [kept(runners, USER, waits=False), kept(runners, USER, waits=False), kept(runners, ELSE)]
    assert not runners.has_room(USER)
    assert runners.serve(b"{}", [], (ELSE, "none")), "it was left alone"
    for end in ends:
        end.close()
