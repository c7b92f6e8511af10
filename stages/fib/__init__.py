"""The fib: puts the chosen routes into the kernel, and tells which next hops can be reached.

Reads:   loc-rib/FAMILY of the rib (view "best"); the kernel's links, routes and nexthop objects, by notification.
Writes:  routes of protocol 186 and nexthop objects into one table of the kernel; nexthops (NextHopChanges).
Owns:    the plan for the kernel, its nexthop objects, the resolution of BGP next hops.
Never:   reads BGP, touches a route of another protocol, dumps a table while routes change.

When it dies: the kernel goes on forwarding. The next one dumps its own routes once, takes them as unconfirmed, and
when the rib's snapshot has ended has changed the differences only.

The kernel is the slowest reader. Credit for batches goes back to the rib only while the queue is short.
"""
