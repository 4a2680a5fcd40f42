"""The parts of commands' pages beyond the tables of options: descriptions, exit statuses, examples.

Each feature has those of its commands in its file `manual.py`.

`tests/unit/manual/test_pages.py` checks that all commands and options named here exist.
"""

SUMMARY = "start programs on a machine that many people share, confined and accounted for"

NODECTL = (
    "nodectl runs programs on one Linux machine. It starts a program as many tasks, gives each task its own CPUs, "
    "keeps the tasks within limits of memory and devices, and reports how each of them ended. Where the machine is "
    "full, jobs wait in a queue.",
    "A `step` is one `nodectl run`; its `tasks` are the copies of the program that it starts. A `job` is what steps "
    "belong to; by default each step is a job of its own. An `allocation` is what a job holds: CPUs, memory, devices.",
    "The options are those of Slurm's `srun`, `sbatch` and `salloc` for one machine, and SPANK plugins that were "
    "compiled for Slurm run unmodified. No cluster is needed.",
    "The service listens on a local socket. Without a service, root's commands start a private node that ends with "
    "them, and `--user` is a node of one's own.",
)
ENVIRONMENT = (
    ("`NODECTL_CONFIG`", "The configuration, as `--config`."),
    ("`NODECTL_SOCKET`", "The service's socket, as `--socket`. In a job it is the job's own service."),
    ("`NO_COLOR`", "Print no colours."),
    ("`COLUMNS`", "The width of help texts."),
)
FILES = (
    ("`/etc/nodectl/nodectl.toml`", "The configuration: `nodectl.toml`(5)."),
    ("`/etc/nodectl/plugstack.conf`", "The SPANK plugins: `plugstack.conf`(5)."),
    ("`/run/nodectl/nodectl.sock`", "The service's socket: `nodectl.varlink`(7)."),
    ("`/var/lib/nodectl`", "The history, and what outlives a restart."),
)

DESCRIPTIONS = {
    "run": (
        "Runs PROGRAM as one step: `-n` tasks of it, each on CPUs of its own. Its options are those of `srun`. Within "
        "a job it is a step of that job; outside it makes a job, and waits in the queue where the machine is full.",
        "stdin, stdout and stderr are the tasks'. The first Ctrl-C tells how the tasks are, a second within a second "
        "ends them. Options of SPANK plugins are taken too: `nodectl run --help` lists those of this machine.",
        "Every option can be given by a variable as well, as for srun: `SLURM_NTASKS`, `SLURM_CPU_BIND` and so on.",
    ),
    "submit": (
        "The script is kept by the service and runs when its turn comes; its output goes to a file. Its number is "
        "printed.",
    ),
    "resubmit": (
        "The service keeps with which script, options, environment and directory a batch job was submitted, also of "
        "the latest ended jobs of each user (the key `kept_scripts_per_user`). `--failed` repeats tasks of an array "
        "whose latest run failed, and those that waited when the array was cancelled. Some tasks that `cancel` took "
        "out of a waiting array have no record: name them, as 42_3.",
    ),
    "log": (
        "Prints the file into which a batch script, or a `nodectl run --output=FILE`, writes. The service tells where "
        "it is; the command opens it with the rights of its user. With `-f` it waits for the job's turn, shows what is "
        "written at once, and ends with the job.",
    ),
    "wait": (
        "Waits for jobs as the `wait` of a shell does for its own. An array is waited for as a whole, `42_3` is one of "
        "its tasks. Each task counts with its latest run, and a job that never ran is no success. Some tasks that "
        "`cancel` took out of a waiting array have no record, and count for nothing.",
    ),
    "daemon": (
        "The service. Its unit is `nodectld.service`, which systemd restarts without harm to the steps that run: each "
        "has a process of its own that outlives the service.",
    ),
    "queue": (
        "Lists the jobs that wait and run. Of one that waits, the reason is in the last column; of your own in which a "
        "`nodectl bulk` runs, how many commands are done.",
    ),
    "bind": (
        "The layout says which task runs on which CPUs. It is computed before any process exists, so it can be asked "
        "for without one, also for a machine that is not here.",
    ),
    "login": (
        "Where the machine's owner has told PAM so, a session of a user who has a running job joins it: the newest, or "
        "the one that was chosen. The session, by ssh for instance, then has the job's CPUs, memory and devices, and "
        "ends with the job.",
        "`--pam` is for the owner's line in `/etc/pam.d/sshd`, directly after pam_systemd: `session optional "
        "pam_exec.so quiet stdout /usr/local/bin/nodectl login --pam`. The keys `login_entry` and `login_when_down` "
        "say what it does; root and members of `admin_group` are left alone. `nodectl doctor` looks at the line.",
    ),
    "fence": (
        "Programs that users start without nodectl stay in a corner of the machine: the CPUs that no job is given, an "
        "amount of memory for each user, a weight for CPU time and disks, and no device of the key `gres`. Where "
        "systemd runs, the corner are the slices of users below `user.slice`; elsewhere a cgroup of nodectl's.",
        "Root's sessions stay outside, and so do services, and the users that the key `login_outside` names. So do "
        "commands of cron and at, which services start; those that use a GPU are found. What runs by sudo in a user's "
        "session may open devices, and has the session's limits.",
        "systemd keeps the limits, also after a boot. The wall around devices stands from the start of nodectl's "
        "service on, and stays when that ends. A session that has a GPU open already keeps it.",
    ),
    "init": (
        "Asks six questions, with a default for each, and writes a configuration that several people can live with: "
        "how long a job runs that does not say, how much memory it has, what is left for logins, the most that one "
        "user has at a time, who administrates, how long history is kept. Options answer instead of the terminal.",
        "The file is checked as the service checks it, and is then put in place at once. A configuration that sets "
        "something is replaced with `--force` alone; the old file stays beside it, with the time in its name.",
    ),
    "config": (
        "Prints the configuration as the service would read it, from the file and the defaults. What it prints can be "
        "a configuration again. `nodectl.toml`(5) has all keys.",
    ),
}

EXAMPLES = {
    "nodectl": (
        ("Four tasks, each on a core of its own, with at most 2 GiB of memory together:",
         "nodectl run -n 4 --cpu-bind=cores --mem=2G ./solver"),
        ("What this machine can and cannot do:", "nodectl doctor"),
    ),
    "run": (
        ("Four tasks, each on a core of its own; each line of output begins with its task's number:",
         "nodectl run -n 4 -l --cpu-bind=cores ./solver"),
        ("At most 8 GiB, half an hour, and one GPU:", "nodectl run --mem=8G --time=30 --gpus=1 ./train"),
        ("A part of a GPU that other jobs may share:", "nodectl run --gpu-mem=20G ./infer"),
        ("A shell that can write nowhere but in the working and temporary directories:",
         "nodectl run --secure=strict --pty bash"),
    ),
    "submit": (
        ("A batch script:", "nodectl submit job.sh"),
        ("A line of shell instead of a file:", "nodectl submit --wrap 'make -j4' -c4"),
        ("100 tasks, 4 at a time, after job 7:", "nodectl submit -a 0-99%4 --dependency=afterok:7 job.sh"),
        ("A mail at the end, and at 80 % of its time limit:",
         "nodectl submit --mail-type=END,FAIL,TIME_LIMIT_80 job.sh"),
        ("After the job before it has gone well:", "nodectl submit --dependency=afterok:last job.sh"),
    ),
    "alloc": (("A shell that holds four CPUs and a GPU until it ends:", "nodectl alloc -n4 --gpus=1"),),
    "bind": (
        ("On this machine, as `nodectl run` would:", "nodectl bind -n4 --cpu-bind=cores --explain"),
        ("On a machine that is not here:", "nodectl bind --machine 2s:32c:2t:8n -n8 -c4"),
    ),
    "resubmit": (
        ("The newest job with more memory:", "nodectl resubmit last --mem=16G"),
        ("The tasks of array 7 that failed:", "nodectl resubmit 7 --failed"),
    ),
    "log": (
        ("The newest job's output, from the start to the end of the job:", "nodectl log -f last"),
        ("What task 3 of array 7 wrote last to its file for errors:", "nodectl log -e -n 20 7_3"),
        ("A further step that was started with --output:", "nodectl log 7.1"),
    ),
    "wait": (
        ("Until all tasks of an array have ended:", "nodectl submit -a 0-9 job.sh && nodectl wait last"),
        ("Which of six jobs ends first, within an hour:", "nodectl wait 7-12 --any --timeout=1h"),
    ),
    "help": (("What `nodectl submit --help` prints:", "nodectl help submit"),),
    "cancel": (
        ("A job, a task of an array, a step:", "nodectl cancel 7 8_3 9.1"),
        ("All that you have waiting:", "nodectl cancel --me --state PD"),
    ),
    "update": (
        ("A running step:", "nodectl update --cpu-max=50% --mem=2G --pids-max=100 7"),
        ("A waiting job:", "nodectl update 7 --time=0:30:00 --nice=50"),
        ("A batch job that waits, with other CPUs and another command:",
         "nodectl update 7 -n1 -c4 --command 'make -j4'"),
    ),
    "reserve": (
        ("Sixteen CPUs for a course:",
         "nodectl reserve create course --start=9:00 --duration=3:00:00 --cpus=16 --users=alice,bob"),
        ("The same each Monday at nine, until it is deleted:",
         "nodectl reserve create course --start=2026-12-07T09:00 --duration=3:00:00 --cpus=16 --users=alice,bob "
         "--repeat=weekly"),
    ),
    "fence": (
        ("Fence logins, and see what is inside:", "sudo nodectl fence on && nodectl fence status"),
    ),
    "node": (
        ("Start no more jobs; those that run go on:", "nodectl node drain new disk on Monday"),
    ),
    "enter": (("A shell among job 7's directories and namespaces:", "nodectl enter 7"),),
    "login": (
        ("The next ssh sessions go into job 7:", "nodectl login 7"),
        ("In a session, the variables of its job:", 'eval "$(nodectl login --export)"'),
    ),
    "bcast": (
        ("A file written there, as the job's user:", "nodectl bcast data.bin /tmp/data.bin --job 7"),
        ("In each of several jobs:", "nodectl bcast data.bin /tmp/data.bin --job 7-12"),
    ),
    "topo": (
        ("A picture of this machine:", "nodectl topo --svg machine.svg"),
    ),
    "init": (
        ("Without questions, as it is said here and otherwise by default:",
         "nodectl init --time=8:00:00 --user-cpus=16 --user-memory=64G --history=365"),
        ("With all defaults:", "nodectl init --yes"),
    ),
    "schema": (("Of what `nodectl queue --json` prints:", "nodectl schema queue"),),
    "completion": (("For this shell:", "source <(nodectl completion bash)"),),
    "report": (("What each user used by week, as a picture:", "nodectl report --by week --svg weeks.svg"),),
    "metrics": (
        ("For the node_exporter's textfile collector:",
         "nodectl metrics --file /var/lib/prometheus/node-exporter/nodectl.prom"),
        ("For a collector that reads a socket:",
         "nodectl metrics --listen unix:/run/nodectl-metrics.sock &\n"
         "curl --unix-socket /run/nodectl-metrics.sock http://localhost/metrics"),
    ),
}  # fmt: skip

_STEPS = ("nodectl-run(1)", "nodectl-ps(1)", "nodectl-show(1)")
_QUEUE = ("nodectl-submit(1)", "nodectl-queue(1)", "nodectl-explain(1)")
SEE = {
    "nodectl": ("nodectl-run(1)", "nodectl-doctor(1)", "nodectl.toml(5)", "plugstack.conf(5)", "nodectl-exit-status(7)",
                "nodectl-plugins(7)",
                "nodectl-spank(7)", "nodectl.varlink(7)"),
    "run": ("nodectl-bind(1)", "nodectl-bulk(1)", "nodectl-submit(1)", "nodectl-trace(1)", "nodectl.toml(5)"),
    "submit": ("nodectl-alloc(1)", "nodectl-log(1)", "nodectl-queue(1)", "nodectl-cancel(1)", "nodectl-explain(1)"),
    "resubmit": ("nodectl-submit(1)", "nodectl-requeue(1)", "nodectl-log(1)"),
    "log": ("nodectl-submit(1)", "nodectl-attach(1)", "nodectl-wait(1)"),
    "wait": ("nodectl-submit(1)", "nodectl-log(1)"),
    "help": ("nodectl(1)",),
    "alloc": _QUEUE,
    "queue": ("nodectl-explain(1)", "nodectl-cancel(1)", "nodectl-acct(1)"),
    "cancel": ("nodectl-queue(1)", "nodectl-signal(1)"),
    "hold": ("nodectl-release(1)",),
    "release": ("nodectl-hold(1)",),
    "requeue": _QUEUE,
    "bind": ("nodectl-run(1)", "nodectl-topo(1)"),
    "explain": ("nodectl-queue(1)", "nodectl-bind(1)"),
    "ps": ("nodectl-show(1)", "nodectl-queue(1)"),
    "show": ("nodectl-ps(1)", "nodectl-acct(1)", "nodectl-trace(1)"),
    "signal": ("nodectl-cancel(1)",),
    "attach": _STEPS,
    "enter": ("nodectl-bcast(1)", *_STEPS),
    "login": ("nodectl-enter(1)", "nodectl-doctor(1)", "nodectl.toml(5)"),
    "bcast": ("nodectl-enter(1)",),
    "suspend": ("nodectl-resume(1)",),
    "resume": ("nodectl-suspend(1)",),
    "update": ("nodectl-show(1)",),
    "reserve": _QUEUE,
    "fence": ("nodectl-node(1)", "nodectl-doctor(1)", "nodectl.toml(5)"),
    "node": ("nodectl-topo(1)",),
    "topo": ("nodectl-top(1)", "nodectl-bind(1)", "nodectl-ps(1)"),
    "schema": ("nodectl.varlink(7)",),
    "completion": ("nodectl-config(1)",),
    "plugins": ("nodectl-plugins(7)", "nodectl-spank(1)"),
    "acct": ("nodectl-report(1)", "nodectl-show(1)"),
    "report": ("nodectl-acct(1)",),
    "metrics": ("nodectl-node(1)", "nodectl-report(1)"),
    "init": ("nodectl-config(1)", "nodectl.toml(5)"),
    "config": ("nodectl-init(1)", "nodectl.toml(5)", "nodectl-doctor(1)"),
    "doctor": ("nodectl-config(1)", "nodectl.toml(5)"),
    "daemon": ("nodectl.toml(5)", "nodectl-log(7)", "nodectl.varlink(7)"),
}  # fmt: skip
