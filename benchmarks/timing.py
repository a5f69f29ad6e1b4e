"""Set one thread, and measure medians of calls that run in turn.

Import this module before NumPy and PyTorch, which read the number of threads when imported.
"""

import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def seconds(call, clock=time.process_time):
    """Return the seconds of one call; processor time is less disturbed by other processes."""
    start = clock()
    call()
    return clock() - start


def medians(runs, *calls, clock=time.process_time, warm=1):
    """Return each call's median seconds. Calls alternate, so that disturbances affect all alike."""
    rounds = [[seconds(call, clock) for call in calls] for _ in range(warm + runs)]
    return [statistics.median(times) for times in zip(*rounds[warm:], strict=True)]
