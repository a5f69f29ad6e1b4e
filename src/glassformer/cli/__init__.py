"""The command line: one command a file, named after it; parsing and printing only.

Exit status: 0 it holds, 1 it does not (wrong outputs, a claim that differs), 2 the call was wrong
or something failed, and 128 with the number of a signal: 130 for Ctrl-C, 143 for a polite kill, 141
where the reader of a pipe had enough.
"""

from .entry import main as main
