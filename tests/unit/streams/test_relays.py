"""Which ends of children are those of relays."""

from nodectl.launch.streams.relay import Relays

PID, KILLED = 4242, 9


def test_a_relay_that_ends_badly_is_missed() -> None:
    relays = Relays()
    relays.add(PID, awaited=True)
    assert relays.ended(PID, KILLED) == "a process that copies its streams was ended by signal 9"


def test_a_later_child_with_the_pid_of_a_relay_is_none() -> None:
    """Tasks may leave processes behind, which become the stepd's children and end as they like."""
    relays = Relays()
    relays.add(PID, awaited=False)
    assert not relays.ended(PID, 0)
    assert not relays.ended(PID, KILLED)
    assert list(relays) == [(PID, False)]
