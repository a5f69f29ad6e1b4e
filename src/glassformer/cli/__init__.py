"""The command line: one command per file, parsing and printing only.

Exit status: 0 the result holds; 1 it does not (wrong outputs, a claim that differs); 2 a wrong call
or a failure; 128 + n after signal n: 130 for Ctrl-C, 143 for SIGTERM, 141 for a closed pipe.
"""

import signal


def main() -> None:
    """Run the `glassformer` command in its own process.

    The imports below take most of a short run. Until entry.py has installed its handlers, and again
    while the interpreter shuts down, a signal ends the process at once, without a traceback.
    """
    # SIGINT is not ignored (nohup ignores it)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .entry import main as run

    run()
