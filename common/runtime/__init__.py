"""What every stage runs on: the clock, the loop, log, metrics, the skeleton of a stage, and the supervisor.

All time and all input arrive through the objects made here, so the same stage runs in a process of its own under the
system's clock, or beside others in one test process under a clock turned by hand.
"""
