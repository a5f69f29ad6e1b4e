"""One thread, and medians of what is measured in turn. To be imported before NumPy and PyTorch,
which read how many.
"""

import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def seconds(way, clock=time.process_time):
    """How long one call takes. Processor time is disturbed less by other work on the machine
    than the clock.
    """
    start = clock()
    way()
    return clock() - start


def medians(runs, *ways, clock=time.process_time, warm=1):
    """The median seconds of each way. In turn, round by round: what disturbs one, disturbs all."""
    rounds = [[seconds(way, clock) for way in ways] for _ in range(warm + runs)]
    return [statistics.median(times) for times in zip(*rounds[warm:], strict=True)]
