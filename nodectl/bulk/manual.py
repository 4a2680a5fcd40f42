"""Texts of `nodectl bulk` for the manual, as in `nodectl.cli.manual.about`."""

EXAMPLES = {
    "bulk": (
        ("One command for each value:", "nodectl bulk gzip -9 ::: *.log"),
        ("A line of stdin is a value; eight at a time:",
         "find . -name '*.wav' | nodectl bulk -n8 'flac {} -o {/.}.flac'"),
        ("What is not known to have ended:", "nodectl bulk --joblog log --resume -a commands.txt"),
        ("Python scripts, with numpy imported once:",
         "nodectl bulk --preload=numpy 'python3 solve.py {}' :::: cases"),
        ("What each command has used, as a line of JSON:", "nodectl bulk --usage-log used -a commands.txt"),
    ),
}  # fmt: skip

SEE = {
    "bulk": ("nodectl-run(1)",),
}  # fmt: skip
