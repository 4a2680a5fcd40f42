"""`--export`: which variables of the command's environment its tasks get. Pure; lean, as `nodectl run` is."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def exported(choice: str, environment: "Mapping[str, str]") -> dict[str, str]:
    """What of `environment` the tasks get by --export: ALL, NONE, or a list; SLURM_* and SPANK_* always go along."""
    words = _split(choice)
    always = {name: value for name, value in environment.items() if name.startswith(("SLURM_", "SPANK_"))}
    if any(word.upper() == "ALL" for word in words):
        chosen = dict(environment)
    else:
        named = [] if choice.upper() in ("NONE", "NIL") else words
        chosen = {word: environment[word] for word in named if word in environment} | always
    for word in words:
        name, equals, value = word.partition("=")
        if equals and name:
            chosen[name] = value
    return chosen


def _split(choice: str) -> list[str]:
    """Words between commas; a value in quotes may hold commas."""
    words = []
    letters: list[str] = []
    quote = ""
    for letter in choice:
        if quote:
            if letter == quote:
                quote = ""
            else:
                letters.append(letter)
        elif letter in "'\"":
            quote = letter
        elif letter == ",":
            words.append("".join(letters))
            letters.clear()
        else:
            letters.append(letter)
    return [*words, "".join(letters)]
