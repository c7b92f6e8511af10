"""The fib: puts the chosen routes into the kernel, and tells which next hops can be reached.

Reads:   loc-rib/FAMILY of the rib (view "best" or "multipath"), nexthops/wanted; the kernel's links, routes and
         nexthop objects, by notification.
Writes:  routes of its protocol number and nexthop objects into one table of the kernel; nexthops (NextHopChanges),
         installed/FAMILY (InstalledChanges).
Owns:    the plan for the kernel, its nexthop objects, the resolution of BGP next hops.
Never:   reads BGP, touches a route of another protocol, dumps a table while routes change.

When it dies: the kernel goes on forwarding. The next one dumps its own routes once, takes them as unconfirmed, and
when the rib's snapshot has ended has changed the differences only. Without nexthop objects a route says its gateway,
but not the next hop that led there: those with a next hop behind another route are then written once more, in place.

What others do to our routes is noticed and repaired, but never at the cost of a route of theirs: where one stands in
the way, ours is counted as failed, with the reason, until there is room.

The kernel is the slowest reader. It works through batches in threads of their own, one a family (`sender.py`), while
the next are planned; only plans and queues change before it has answered. Credit for batches goes back to the rib only
while the queue is short.
"""
