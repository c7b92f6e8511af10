"""What this process asks of the kernel and the C library."""

import subprocess
import sys

# Run by itself: how the C library deals with memory is a matter of the whole process.
COUNT_FIRST_TOUCHES = """
import resource
import numpy as np
from common.runtime.processes import keep_freed_memory

def handle_batch():
    return [np.ones(1 << 17, np.uint64) for _ in range(4)]

keep_freed_memory()
handle_batch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    handle_batch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_what_batches_took_is_taken_again():
    """A megabyte that a batch has freed is there for the next one, and no page of it is touched for the first time."""
    run = subprocess.run([sys.executable, "-c", COUNT_FIRST_TOUCHES], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 500
