"""The numbers of steps, and the words for special numbers. Pure; in every process.

A job of `nodectl run` begins with its step 0. A batch job begins with the step that runs its script, a job of `nodectl
alloc` with a step that only holds the allocation; their other steps count from 0.
"""

BATCH = 0xFFFFFFFB
"""The step that runs a job's script: "7.batch". Slurm's SLURM_BATCH_SCRIPT."""
EXTERN = 0xFFFFFFFC
"""The step that holds an allocation: "7.extern". Slurm's SLURM_EXTERN_CONT."""
FIRST = 0xFFFFFFFF
"""In a call, and in no step: the first step of the job, whichever number that has."""
FIRST_STEPS = (0, BATCH, EXTERN)
"""The numbers that a job's first step may have."""

_WORDS = {BATCH: "batch", EXTERN: "extern"}
_NUMBERS = {word: number for number, word in _WORDS.items()}
_MOST_DIGITS = 10


def step_word(number: int) -> str:
    """Return a step's number as a word for files, cgroups and people: "0", "batch"."""
    return _WORDS.get(number) or str(number)


def step_name(job: object, step: object) -> str:
    """Return a step's name for people: "42.0", "42.batch"; "42" for the job's first step."""
    number = int(str(step))
    return str(job) if number == FIRST else f"{job}.{step_word(number)}"


def step_number(word: str) -> int | None:
    """Return the number of a word of `step_word`; None for any unknown word."""
    if word.isascii() and word.isdecimal() and len(word) <= _MOST_DIGITS:
        return int(word)
    return _NUMBERS.get(word)


def environment_number(number: int) -> str:
    """Return a step's number for SLURM_STEP_ID. As in Slurm special numbers are negative: -5 for the script's step."""
    return str(number - (1 << 32) if number in _WORDS else number)
