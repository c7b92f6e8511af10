"""The rib: holds every candidate route and chooses the best of each prefix.

Reads:   adj-rib-in/FAMILY of policy, once for each speaker; nexthops of fib, where it serves them.
Writes:  loc-rib/FAMILY (view "best", or "all" usable paths).
Owns:    the candidates and the Loc-RIB (RFC 4271 §3.2 and §9.1).
Never:   touches a socket of the world, evaluates policy, changes an attribute.

When it dies: its readers keep what they have. The next one fills from the speakers, and serves nobody before each of
them has sent its whole table, and of neighbors that promised an End-of-RIB before that has come (or the selection
deferral time has passed), so its readers, which then compare, see the true differences only.

When a speaker dies, the routes of neighbors with whom it agreed on graceful restart stay until the next speaker has
heard their End-of-RIB and what was not told again goes, or until the restart time has passed; those of others go.
"""
