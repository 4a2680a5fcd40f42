"""What the recordings' commands find: programs, batch scripts and files by their names there."""

SCRIPTS = {
    # Batch scripts; their texts are not recorded, and follow from what the recordings have of their output and hooks.
    "./two.sh": (
        "#!/bin/sh\n#SBATCH -n2 -O\necho batch-script-begin procid=$SLURM_PROCID stepid=$SLURM_STEP_ID\n"
        "srun -n1 @/jobs/mark\nsrun -n2 -O --label @/jobs/mark\necho batch-script-end\n"
    ),
    "./exit5batch.sh": "#!/bin/sh\necho hello\nexit 5\n",
    "./dir.sh": (
        "#!/bin/sh\n#SBATCH -n1 --trace-opt=directive\nenv | grep ^SLURM_SPANK\nsrun sh -c 'env | grep ^SLURM_SPANK'\n"
        "srun --trace-opt=inner true\n"
    ),
    "./noshebang": "echo never\n",
    "../plugin/probe": (
        "#!/usr/bin/python3 -IS\nimport json, os, resource\n"
        "os.umask(umask := os.umask(0))\n"
        "names = 'CORE', 'NOFILE', 'NPROC', 'STACK'\n"
        "limits = {name: resource.getrlimit(getattr(resource, 'RLIMIT_' + name))[0] for name in names}\n"
        "env = sorted(f'{name}={value}' for name, value in os.environ.items())\n"
        "told = {'probe': 1, 'env': env, 'uid': os.getuid(), 'umask': f'{umask:04o}', 'cwd': os.getcwd()}\n"
        "print(json.dumps({**told, 'nice': os.nice(0), 'limits': limits}))\n"
    ),
    "./trap.sh": (
        "#!/bin/sh\ntrap 'echo got USR1 $SLURM_PROCID; got=1' USR1\necho ready $SLURM_PROCID\n"
        'until [ "$got" ]; do sleep 0.02; done\necho done $SLURM_PROCID\n'
    ),
    "mark": "#!/bin/sh\necho TASK RAN procid=$SLURM_PROCID localid=$SLURM_LOCALID\n",
    "usertaskprolog": "#!/bin/sh\necho print hello from user taskprolog\n",
    "usertaskepilog": "#!/bin/sh\n",
    "taskprolog": (
        "#!/bin/sh\necho print hello from taskprolog $SLURM_PROCID\necho export A=1\necho unset B\n"
        "echo export NEWVAR=new value with spaces\n"
    ),
    "taskepilog": "#!/bin/sh\necho taskepilog stderr >&2\n",
    "taskprolog_slow": "#!/bin/sh\nsleep 0.2\n",
    "prolog_slow": "#!/bin/sh\nsleep 0.2\n",
    "prolog_raw": "#!/bin/sh\nenv\n",
    "prolog": "#!/bin/sh\necho prolog stdout\necho export P=1\necho prolog stderr >&2\n",
    "epilog": "#!/bin/sh\necho epilog stdout\n",
    "taskprolog_fail": "#!/bin/sh\nexit 3\n",
    "./noexec.sh": "#!/bin/sh\n",
    # Task 2 ends when the others are there. A signal to the whole step may reach a shell's child first: the shell lives
    # until it has its own.
    "./one3.sh": (
        "#!/bin/sh\nup=up.$SLURM_JOB_ID\nif [ $SLURM_PROCID = 2 ]; then\n"
        "until [ -e $up.0 ] && [ -e $up.1 ] && [ -e $up.3 ]; do sleep 0.02; done; exit 3; fi\n"
        ": >$up.$SLURM_PROCID\nsleep $1 || sleep 9\necho survived $SLURM_PROCID\n"
    ),
    "./sig.sh": "#!/bin/sh\nulimit -c 0\nkill -$1 $$\n",
    "./oe.sh": "#!/bin/sh\necho out-$SLURM_PROCID\necho err-$SLURM_PROCID >&2\n",
    "./slowp.sh": (
        "#!/bin/sh\nprintf 'part1-%s ' $SLURM_PROCID\nsleep 0.3\necho part2-$SLURM_PROCID\nsleep 0.3\n"
        "printf noeol-%s $SLURM_PROCID\n"
    ),
}
FILES = {"in.txt": "line1\nline2\n", "in_0.txt": "zero\n", "in_1.txt": "one\n"}
INCLUDES = {
    "plugstack.d/30-n.conf": "include more/31-inner.conf\n",
    "plugstack.d/more/31-inner.conf": "required @/plugin/traceb.so\n",
    "plugstack.d/40-bad.conf": "required /nonexistent.so\n",
    "plugstack.d/noperm.conf": "# only for root\n",
}
