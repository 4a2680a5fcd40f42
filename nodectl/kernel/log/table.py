"""Every kind of line in the service's log: name, MESSAGE_ID, priority, meaning, remedy.

Names and numbers never change, since people search for them: NODECTL_MESSAGE=node-drained. The log's journal reads the
table in the service's processes; the manual makes a page of it.
"""

ERROR, WARNING, INFO = 3, 4, 6  # syslog(3)

# name, MESSAGE_ID, PRIORITY, meaning, remedy
MESSAGES = (
    (
        "step-ended", "041a10486d604bed8557321e380b4a09", INFO,
        "A step has ended: who ran it, how it ended, when. The key `log_ended_steps` turns this off.",
        "",
    ),
    (
        "cannot-start", "651ac308063045f4b6c1efc497bee569", ERROR,
        "The service does not start; the line says why.",
        "Mend what is named, then `systemctl start nodectld`. `nodectl doctor` tells what the machine lacks.",
    ),
    (
        "not-enforced", "9c3ca51ca53542fbb8609f64fd2d0999", WARNING,
        "A limit of the configuration is not enforced, since the machine lacks what it needs.",
        "`nodectl doctor` says what is missing. Set the key to `yes` if the service is not to start without "
        "it, to `no` if it is not needed.",
    ),
    (
        "state-can-fill", "5a83ff5ab9074bb292144e4e25eaf4f9", WARNING,
        "Jobs' private directories are stored on the file system of the service's state, and nothing bounds them: a "
        "user who fills it stops the queue for all.",
        "Set `container_base_path` to a directory of another file system, or give each directory of `container_dirs` "
        "a size as a tmpfs has.",
    ),
    (
        "reload-failed", "2a1be10022a94ed09b0c933f858373cf", ERROR,
        "The configuration was to be read again, and makes no sense; what was read before is kept.",
        "Mend the key that is named, then `systemctl reload nodectld`.",
    ),
    (
        "manager-not-told", "8940d0df8a7f4ec3a2db1e9851126b51", WARNING,
        "systemd could not be told how the service is.",
        "Look at systemd's own messages: it may restart the service for this.",
    ),
    (
        "step-end-late", "c403b3bba5374cdeafc7d12d36af6036", WARNING,
        "The end of a step could not be noted yet; this is tried again.",
        "The reason is the system's: descriptors or memory are short.",
    ),
    (
        "clock-set", "5dae963a6efe4f65b5b840a8a5c1cbdd", INFO,
        "The machine's clock was set while the service ran. The times of running jobs were corrected.",
        "",
    ),
    (
        "job-cannot-begin", "f10a2abe112f44009b9a54d883050201", ERROR,
        "A job whose turn had come cannot begin, and has failed.",
        "The reason names what refused: often its script, its directory or its user.",
    ),
    (
        "job-not-suspended", "b00eda526bb44af4a50267eac8e4ede6", ERROR,
        "A job that was to make room for another one could not be suspended.",
        "`nodectl show` tells the state of its steps; `nodectl cancel` ends it.",
    ),
    (
        "job-not-resumed", "6b224e5c335d410a8d31a0488cb7178c", ERROR,
        "A suspended job that has its CPUs again could not go on.",
        "`nodectl resume` tries again, `nodectl cancel` ends it.",
    ),
    (
        "job-keeps-cpus", "5eca5778eb844f2c969d11d7f80131d5", WARNING,
        "A job that was to be suspended keeps its CPUs, since the select plugin refused, and goes on.",
        "Where it stands still all the same, `nodectl resume` or `nodectl cancel`. The plugin's author wants to know.",
    ),
    (
        "job-does-not-grow", "49e1250ccef54203ba5678da88af3acc", WARNING,
        "A job that was given more could not use it yet; this is tried again.",
        "The reason names the file of the cgroup that refused.",
    ),
    (
        "node-drained", "493b93fba1f5477fa69c9cdbf68793bd", WARNING,
        "No job starts any more, since a prolog or an epilog has failed (key `drain_on_failure`).",
        "Mend the script, then `nodectl node resume`.",
    ),
    (
        "script-failed", "c19ada0159024560b2b97f370d10908f", ERROR,
        "A prolog or an epilog of a job, or a SPANK hook around it, has failed.",
        "The line names the script or the hook, and how it ended.",
    ),
    (
        "record-not-written", "50e0e40ec57a47e68d6802360fa8dcca", ERROR,
        "What is known of a job could not be written before its epilog.",
        "Make room where `runtime_dir` lies.",
    ),
    (
        "history-not-written", "80be7c08024a4cd99bbb8a62fbc64300", ERROR,
        "The history, the file `history.db`, could not be written. Nothing is lost as long as the service "
        "runs: it tries again.",
        "Make room where `state_dir` lies, or mend its permissions.",
    ),
    (
        "internal-error", "b48c0f6047704416bacb075857edca82", ERROR,
        "Something in the service failed that should not: the lines that follow say where. The call or the connection "
        "that it served has failed; all others go on.",
        "Where descriptors or memory are short, the last line says so. Else report it with these lines.",
    ),
    (
        "listener-unheard", "8384972653ab448d96c37c9efae7d2c7", ERROR,
        "The service could not tell the process that accepts connections what to do: another one is started.",
        "The reason is the system's: memory is short.",
    ),
    (
        "session-not-opened", "cd8aa1b1608b47fda5f2e50752edc0a5", ERROR,
        "The service could not serve the process that reads a user's connections. Those connections end with an "
        "error, and the user's next command gets a new process.",
        "The reason is the system's, most often too few descriptors: LimitNOFILE of the unit, or `ulimit -n`.",
    ),
    (
        "history-locked", "260603233c1c4e168d702641570e5741", ERROR,
        "Another process has locked the history, the file `history.db`. Until it is free, steps and jobs go on, what "
        "is known can be read, and new jobs are refused after a few seconds; what has ended is written later.",
        "`fuser -v` on the file names the process. `sqlite3 FILE '.backup COPY'` copies the file and locks nothing.",
    ),
    (
        "history-free", "1288aac11bfa48f7a4e5f6cb2bcba2e5", INFO,
        "The process that had locked the history has let go of it.",
        "",
    ),
    (
        "history-damaged", "e3ef69d6f67e41e3a7c3ea1b5f4aaf71", ERROR,
        "The history, the file `history.db`, or a row of it, is damaged: the disk, or a program that wrote into it.",
        "The line names the row, or says how to save what can be read, and how to begin a new history.",
    ),
    (
        "queue-not-written", "891a062fe3444b39a62a5e1c5a74a49a", ERROR,
        "Changes of jobs could not be written. They are tried again; what must be on the disk first waits.",
        "Make room where `state_dir` lies.",
    ),
    (
        "files-stay", "267d0d792075429fb8ef9716383f8ace", ERROR,
        "The files of a step that has ended could not be removed; this is tried again.",
        "The reason names the file.",
    ),
    (
        "cgroup-stays", "19d083a8ff5a49f09cae12b106588338", ERROR,
        "Processes of a step do not die, so its cgroup stays: they hang in the kernel, often in a file system "
        "that does not answer.",
        "Look at their stacks in /proc/PID/stack. Only what they wait for, or a reset, ends them.",
    ),
    (
        "container-failed", "51ed3a649710443189351cafea978421", ERROR,
        "A container of a job could not be made anew, removed or reconfigured.",
        "The reason names the plugin or the directory.",
    ),
    (
        "container-not-noted", "ac344605fc4a4f9ab87a20539b02cae5", ERROR,
        "Where containers lie could not be noted in the history: a later service may leave theirs behind.",
        "Make room where `state_dir` lies.",
    ),
    (
        "listener-ended", "fa041f8650a44f5eacba14cbbbb099b7", ERROR,
        "The process that accepts connections has ended, and another one is started. Connections of that "
        "moment are lost.",
        "If this comes again and again, its last words are in the log before this line.",
    ),
    (
        "listener-not-started", "b307cfd9e3b343ffb0fddd2827660649", ERROR,
        "The process that accepts connections could not be started; this is tried again.",
        "The reason is the system's: memory or processes are short.",
    ),
    (
        "slurmd-context", "31768238d18448319a8e41043e694de7", ERROR,
        "A SPANK plugin's hook for the node's own start or end (slurmd_init, slurmd_exit) has failed.",
        "The line names the plugin and the hook.",
    ),
    (
        "plugin-late", "e830d7e2e7d746608607a8f2bf413034", ERROR,
        "A plugin's function did not return in time, and nothing could interrupt it: its process ends.",
        "Tell the plugin's author; `spank_hook_timeout` is the time.",
    ),
    (
        "plugin-failed", "5a4e3b170a6b46afbdb4d1b5820b1ad7", ERROR,
        "A task plugin's call in the service has failed.",
        "The line names the plugin, the call and the job.",
    ),
    (
        "plugins-left-out", "3cc4792276074a73a6724cfcbbc797d6", INFO,
        "A node of an ordinary user does not call these plugins, which are root's.",
        "",
    ),
    (
        "plugin-warning", "22b38020cd94470bba4011b37ade6827", WARNING,
        "A plugin's file has a function that looks like a hook, and is none.",
        "Compare its name with `nodectl plugins --hooks`.",
    ),
    (
        "plugin-end-failed", "100b3d9a44d647a5b6b58446521822cb", WARNING,
        "A plugin's fini() has failed. This costs nothing.",
        "Tell the plugin's author.",
    ),
    (
        "plugin-said", "30f616341b544763a6e64095cf3a0a2c", INFO,
        "A plugin has said this by slurm_error, slurm_info or the like.",
        "",
    ),
    (
        "plugin-output", "2d39ac51bf1d417ca9d7cc72023d4f26", INFO,
        "A plugin's hook has written this to stderr.",
        "",
    ),
    (
        "select-said", "1fbe6c20e9214cabb5c5c8db96813b80", ERROR,
        "The select plugin has failed, answered what cannot be, or said something.",
        "`nodectl select check` examines a plugin of your own.",
    ),
    (
        "forkserver-cannot-start", "3c00451745c4420cb36de0682d652d54", ERROR,
        "The process that forks step runners cannot start.",
        "The reason names the plugin that refused.",
    ),
    (
        "runner-cannot-begin", "e6040c00400541b88562c1daefeb61d7", ERROR,
        "A step's runner could not enter its cgroup; the step has failed.",
        "The reason is the kernel's.",
    ),
    (
        "runner-said", "74558f4635794531904b77ae1f8bd395", INFO,
        "A step's runner has said this after its step had ended.",
        "",
    ),
    (
        "fence-fails", "6f3c1f0f6f7c4f7b9be0d6f1a52c8a17", ERROR,
        "The fence around login sessions is on, and could not be renewed.",
        "The line names what refused; `nodectl fence on` tries again, `nodectl fence status` tells what is there.",
    ),
    (
        "device-used-outside", "0b9d3fd2a3c64c3f8f0d3cb5d8f0a2e6", WARNING,
        "A user's program outside of all jobs has a device of the key `gres` open.",
        "Ask its user to run it as a job. `nodectl fence on` keeps login sessions from devices.",
    ),
    (
        "job-idle", "b69690f814e140e3b7bd64ba9e7b5968", INFO,
        "A job that did nothing for longer than `idle_after` and `idle_grace` is ended.",
        "",
    ),
    (
        "login-joined", "6ba36929cd0f41358a9ffb8cacc6cfd8", INFO,
        "A login session has joined a job of its user, by `nodectl login --pam` (key `login_entry`).",
        "",
    ),
    (
        "notice-failed", "3fbf3379a1e94c57a1a24539ccf6f433", WARNING,
        "An event of a job could not be told by mail or by `notify_command`, and is not tried again.",
        "The reason is the program's exit code: its own log may say more. `nodectl doctor` looks for sendmail.",
    ),
    (
        "notice-late", "2629e8d8056d43e4b8ca1ac9da5b227a", WARNING,
        "Nothing can be told of a user's jobs for now; this is tried again.",
        "The reason is the system's: processes, descriptors or disk space are short.",
    ),
    (
        "notice-lost", "23f54e91728a4d40ba394d4de4ce3c42", WARNING,
        "An event of a job is not told, because too many of its user wait to be told.",
        "The key `max_notices_per_user` is the bound; a program that hangs may hold them up.",
    ),
    (
        "log-lost", "c92ad0db05ec4ca7886f528492715e2a", WARNING,
        "The journal did not take so many lines, and they are lost: the service does not wait for it.",
        "Look at systemd-journald: it hangs, or its disk does.",
    ),
)  # fmt: skip
BY_NAME = {row[0]: row for row in MESSAGES}
