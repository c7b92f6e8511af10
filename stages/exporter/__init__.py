"""Exporter: decides which chosen routes a group of neighbors is told, and dresses their attributes for it.

Reads:  loc-rib/FAMILY of the rib (parameter `rib`: its instance, default "0").
Writes: adj-rib-out/FAMILY, for the group in the parameters; sets as the group's sessions encode them.
Owns:   nothing. Each reader's position is handed on to the rib; the version of what is evaluated with is part of the
        epoch a reader sees, so another configuration cannot go unnoticed.
Never:  keeps a route; looks at a set more than once a batch; knows which member a route came from (the speaker does
        not tell a member its own routes: column `source`).
When it dies: its readers wait, and go on where they were when it is back.

RFC 4271 §5.1, §9.1.3 and §9.2, RFC 1997, RFC 4456, RFC 6793 §4.2.2, RFC 8212 §2.
"""
