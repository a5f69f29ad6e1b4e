"""The one table of (ref, input, output) that unit, command-line, bridge and browser tests read."""

CASES: list[tuple[str, str, str]] = [
    # hello-world, repeat-last, reverse, modular-addition
    # lookup, search
    # min, max, sort
    # add-digit, add-mod
    # addition, multiplication
    # text programs
]
