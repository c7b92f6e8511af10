"""The bus: batches of absolute state between stages, by journal positions and credit.

    owner's table ── Source.read(position) ──▶ Server ═══ transport ═══▶ Follower ──▶ handle(batch)
                         ▲                       │ credit, position         │
                         └───────────────────────┴──────────────────────────┘

| channel                        | who writes       | who reads              | when a reader is slow             |
|--------------------------------|------------------|------------------------|-----------------------------------|
| adj-rib-in/FAMILY              | speaker          | policy, taps           | position lags; speaker stops TCP  |
| adj-rib-in/FAMILY              | policy (relay)   | rib, taps              | credit is not passed to speaker   |
| loc-rib/FAMILY                 | rib              | exporter, fib, taps    | position lags; changes merge      |
| adj-rib-out/FAMILY             | exporter (relay) | speaker                | credit is not passed to the rib   |
| adj-rib-out/FAMILY/NEIGHBOR    | speaker          | taps                   | position lags, gap, new snapshot  |
| nexthops                       | fib              | rib                    | position lags; changes merge      |
| vrps                           | rpki             | policy                 | position lags; changes merge      |

A stage sees `bus.Bus` only: `serve`, `follow`, `relay`, `control`. Everything but `zmq_transport.py` is free of ZeroMQ,
so the same code runs over `memory_transport.py` in tests. Nothing here grows without bound: a reader costs one record,
what is in flight is bounded by credit, and garbage on any socket is counted, logged and dropped.
"""
