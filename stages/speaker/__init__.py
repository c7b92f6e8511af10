"""The speaker: sessions with peers, what they told us and what we told them.

Reads:   TCP connections of configured neighbors; "adj-rib-out/FAMILY" of the exporter, one for each peer group.
Writes:  TCP; "adj-rib-in/FAMILY" (RouteChanges, SessionChanges); "adj-rib-out/FAMILY/NEIGHBOR" for taps.
Owns:    sessions, Adj-RIB-In (as received), Adj-RIB-Out (as told), each for its own neighbors.
Never:   decides about a route, changes an attribute, waits for another stage.
When it dies: its sessions end and their routes go; other speakers do not notice.

| module         | its one job                                                          |
|----------------|----------------------------------------------------------------------|
| sockets.py     | TCP: listen, dial, read, write; the only one that touches a socket   |
| neighbors.py   | configured neighbors, their sessions and connections, collisions     |
| intake.py      | octets into messages, UPDATEs into the Adj-RIB-In                    |
| sources.py     | a number for each neighbor and path identifier                       |
| prefixes.py    | the prefixes by row, for all of these tables                         |
| adj_rib_in.py  | the routes received, with their journal                              |
| peer_groups.py | which sessions are told the same                                     |
| adj_rib_out.py | the routes to tell, what each session was told, UPDATEs              |
| origination.py | the prefixes this router announces as its own                        |
| taps.py        | what one neighbor is told, as a channel                              |
| metrics.py     | the metrics, read from records and tables                            |
| control.py     | the answers to questions                                             |
| stage.py       | joins all of these to the loop and the bus                           |
"""
