"""The command line: one command a file, named after it; parsing and printing only.

Exit status: 0 it holds, 1 it does not (wrong outputs, a claim that differs), 2 the call was wrong
or something failed, and 128 with the number of a signal: 130 for Ctrl-C, 143 for a polite kill, 141
where the reader of a pipe had enough.
"""

import signal


def main() -> None:
    """Run the `glassformer` command in a process of its own.

    The imports below take most of a short run. Until entry.py has installed its handlers, and again
    while the interpreter shuts down, a signal ends the process at once, without a traceback.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not ignored, as by nohup
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .entry import main as run

    run()
