"""Every option of srun 22.05 and of 25.11: known here with the same meaning, taken and without effect, or refused with
a reason.
"""

from __future__ import annotations

import pytest

from nodectl.client.command import BadOption, BadUsage
from nodectl.client.run_options import OPTIONS, Parsed, layout_options, waiting_options
from nodectl.client.srun import help as help_texts
from nodectl.client.srun import manners, names
from nodectl.client.srun.options import FURTHER, parser

# Names as in srun(1) of both releases; behind '=' a value that it takes, behind ':' its letter.
BOTH = (
    "accel-bind=g account:A=x acctg-freq=30 bb=x bbf=f bcast bcast-exclude=none begin:b=now cluster-constraint=x "
    "clusters:M=all comment=x compress constraint:C=x contiguous core-spec:S=1 cores-per-socket=1 cpu-bind=none "
    "cpu-freq=low cpus-per-gpu=1 cpus-per-task:c=1 deadline=now delay-boot=1 dependency:d=singleton chdir:D=/ "
    "disable-status:X distribution:m=block epilog=/x error:e=x exact exclude:x=n exclusive export=ALL "
    "extra-node-info:B=1 gid=0 gpu-bind=none gpu-freq=low gpus:G=1 gpus-per-node=1 gpus-per-socket=1 gpus-per-task=1 "
    "gres=gpu:1 gres-flags=enforce-binding help:h het-group=0 hint=nomultithread hold:H immediate:I input:i=none "
    "jobid=1 job-name:J=x kill-on-bad-exit:K label:l licenses:L=x mail-type=ALL mail-user=x mcs-label=x mem=1 "
    "mem-bind=local mem-per-cpu=1 mem-per-gpu=1 mincpus=1 msg-timeout=9 multi-prog network=x nice no-allocate:Z "
    "no-kill:k nodefile:F=/dev/null nodelist:w=n nodes:N=1 ntasks:n=1 ntasks-per-core=1 ntasks-per-gpu=1 "
    "ntasks-per-node=1 ntasks-per-socket=1 open-mode=append output:o=x overcommit:O overlap oversubscribe:s "
    "partition:p=x prefer=x preserve-env:E priority=1 profile=none prolog=/x propagate qos:q=x quiet:Q "
    "quit-on-interrupt reboot relative:r=0 reservation=x resv-ports send-libs signal=USR1 slurmd-debug=1 "
    "sockets-per-node=1 spread-job switches=1 task-epilog=/x task-prolog=/x test-only thread-spec=1 threads:T=32 "
    "threads-per-core=1 time:t=1 time-min=1 tmp=1 uid=0 unbuffered:u usage use-min-nodes verbose:v version:V wait:W=1 "
    "wckey=x whole x11 container=/x"
)
RELEASES = {
    "22.05": f"{BOTH} power=x cpu_bind=none mem_bind=local tasks-per-node=1 ntasks-per-tres=1 debugger-test "
    "interactive pack-group=0 cluster=x context=x",
    "25.11": f"{BOTH} async consolidate-segments container-id=x external-launcher extra=x oom-kill-step segment=1 "
    "spread-segments stepmgr tres-bind=gres/gpu:closest tres-per-task=cpu:1 autocomplete",
}
REFUSED = {"async", "container", "container-id", "context", "no-allocate"}


def listed(release: str) -> list[tuple[str, str, str]]:
    """Long name, letter, value."""
    rows = []
    for word in RELEASES[release].split():
        head, _, value = word.partition("=")
        long, _, letter = head.partition(":")
        rows.append((long, letter, value))
    return rows


EVERY = sorted({row for release in RELEASES for row in listed(release)})


@pytest.mark.parametrize(("long", "letter", "value"), EVERY, ids=[row[0] for row in EVERY])
def test_option_of_srun_is_known_or_refused_with_a_reason(long: str, letter: str, value: str) -> None:
    forms = [[f"--{long}={value}"] if value else [f"--{long}"]]
    if letter:
        forms.append([f"-{letter}{value}"])
    for words in forms:
        if long in REFUSED:
            with pytest.raises(BadOption, match=f"--{long}: ") as caught:
                parser().parse([*words, "program"])
            assert not isinstance(caught.value, BadUsage)
            continue
        parsed = parser().parse([*words, "program"])
        assert parsed.argv == ["program"]
        assert parsed.values or parsed.verbose


@pytest.mark.parametrize("long", sorted({row[0] for row in EVERY} | names.names()))
def test_no_option_of_sruns_is_taken_for_the_beginning_of_another(long: str) -> None:
    """--threads=32 set --threads-per-core, --container=DIR set --container-ns."""
    known = (*OPTIONS, *FURTHER, *waiting_options(), *layout_options())
    meant = names.ALIASES.get(long, long)
    for words in ([f"--{long}"], [f"--{long}=1"], [f"--{long}", "1"]):
        try:
            values = parser().parse([*words, "program"]).values
        except BadOption:
            continue
        assert set(values) <= {option.dest for option in known if option.long == meant} | {"ignored"}
        assert values.get("ignored", [long]) == [long]


def test_what_means_nothing_here_is_told_once_where_somebody_asks(capfd: pytest.CaptureFixture[str]) -> None:
    words = ["-p", "debug", "--switches=1", "-pdebug", "-L", "matlab:1", "-k"]
    for verbose, expected in (
        ([], ""),
        (["-v"], "nodectl: without effect on one machine: --partition, --switches, --licenses, --no-kill\n"),
    ):
        parsed = parser().parse([*verbose, *words, "program"])
        manners.of(parsed, {})
        assert capfd.readouterr().err == expected
        assert parsed.values == {}


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["--cpu_bind=cores"], {"cpu_bind": "cores"}),
        (["--tasks-per-node=2"], {"ntasks_per_node": "2"}),
        (["--open-mode=a"], {"open_append": True}),
        (["--open-mode=truncate"], {"open_append": False}),
        (["--external-launcher"], {"overlap": "1", "cpu_bind": "none"}),
        (["--exclusive=user"], {"exclusive": "1"}),
        (["--gpus=2", "--ntasks-per-gpu=3"], {"gpus": "2", "ntasks": 6}),
        (["-n6", "--ntasks-per-gpu=3"], {"gpus": "2", "ntasks": 6}),
        (["--gpus=a100:2", "--cpus-per-gpu=3", "-n2"], {"gpus": "a100:2", "ntasks": 2, "cpus_per_task": 3}),
        (["--gres=gpu:2", "--mem-per-gpu=3"], {"gres": "gpu:2", "mem": 6}),
        (["--gpus-per-task=1", "-n4", "--mem-per-gpu=1G"], {"gpus_per_task": "1", "ntasks": 4, "mem": 4096}),
        (
            ["--gpus-per-socket=2", "--sockets-per-node=2"],
            {"gpus_per_node": "4", "sockets_per_node": "2"},
        ),
        (["--tres-per-task=cpu:2,gres/gpu:1"], {"cpus_per_task": 2, "gpus_per_task": "1"}),
        (["--tres-per-task=cpu=2,gres/gpu=1"], {"cpus_per_task": 2, "gpus_per_task": "1"}),
        (["--gpus=1", "--tres-bind=gres/gpu:closest"], {"gpus": "1", "gpu_bind": "closest"}),
        (["--gpus=1", "--accel-bind=gv"], {"gpus": "1", "gpu_bind": "closest"}),
        (["--accel-bind=n"], {}),
        (["--tmp=1"], {}),
        (["--het-group=0"], {}),
    ],
)
def test_what_the_service_does_not_know_is_said_in_options_that_it_does(
    words: list[str], values: dict[str, object]
) -> None:
    parsed = parser().parse([*words, "program"])
    manners.of(parsed, {})
    assert parsed.values == values


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--cpus-per-gpu=2"], "--cpus-per-gpu wants GPUs"),
        (["--gpus-per-socket=2"], "requires --sockets-per-node"),
        (["--tres-per-task=license/x:1"], "cpu:N and gres/gpu"),
        (["--tres-bind=gres/shard:closest"], "gres/gpu:BIND"),
        (["--tmp=1000000T"], "Requested node configuration is not available"),
        (["--x11"], "No DISPLAY variable set"),
        (["-F", "/nonexistent"], "No such file or directory"),
        (["--export-file=/nonexistent"], "No such file or directory"),
    ],
)
def test_what_cannot_be_had_is_refused(words: list[str], reason: str) -> None:
    parsed = parser().parse([*words, "program"])
    with pytest.raises(BadOption, match=reason):
        manners.of(parsed, {})


def test_x11_needs_no_forwarding_where_there_is_a_display() -> None:
    parsed = parser().parse(["--x11", "program"])
    manners.of(parsed, {"DISPLAY": ":0"})
    assert parsed.values == {}


def test_help_has_each_option_in_one_group() -> None:
    text = help_texts.text((), 100)
    shown = [option.long for options in help_texts.groups().values() for option in options]
    assert len(shown) == len(set(shown))
    ignored = {long for long, _, _ in names.rows(names.IGNORED)}
    for long, _, _ in EVERY:
        assert long in shown or long in ignored or long in names.ALIASES or long in REFUSED, long
        if long not in REFUSED:
            assert f"--{long}" in text


def test_few_options_cost_nobody_else_anything() -> None:
    assert parser().parse(["-n2", "-l", "program"]).further == ()
    assert isinstance(Parsed().further, tuple)
