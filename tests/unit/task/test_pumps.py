"""Which ends of children are those of pumps."""

from nodectl.task.pump import Pumps

PID, KILLED = 4242, 9


def test_a_pump_that_ends_badly_is_missed() -> None:
    pumps = Pumps()
    pumps.add(PID, awaited=True)
    assert pumps.ended(PID, KILLED) == "a process that copies its streams was ended by signal 9"


def test_a_later_child_with_the_pid_of_a_pump_is_none() -> None:
    """Tasks may leave processes behind, which become the stepd's children and end as they like."""
    pumps = Pumps()
    pumps.add(PID, awaited=False)
    assert not pumps.ended(PID, 0)
    assert not pumps.ended(PID, KILLED)
    assert list(pumps) == [(PID, False)]
