"""Steps one by one: run, stream, signal, list, look at the launch."""

import signal

from nodectl.client import DEVNULL, PIPE, Client, StepFailed

with Client() as node:
    done = node.run(["uname", "-s"], capture_output=True, check=True)
    print("it says", done.text.strip(), "in step", done.name)

    try:
        node.run(["sh", "-c", "exit 3"], check=True)
    except StepFailed as failed:
        print(failed, "->", [task.exit_code for task in failed.result.tasks])

    script = "trap 'echo asked to stop; exit' TERM; echo begun; while :; do sleep 0.1; done"
    with node.start(["sh", "-c", script], stdin=DEVNULL, stdout=PIPE, time=5, mem="64M") as step:
        assert step.stdout is not None
        print(step.stdout.readline().decode().strip(), "as", [one.name for one in node.steps()] == [step.name])
        node.signal(step.name, signal.SIGTERM)
        print(step.stdout.readline().decode().strip())
        print(step.wait().state)

    print("prepared by", {line.process for line in node.trace(step.name)} >= {"daemon", "stepd"})
