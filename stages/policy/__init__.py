"""Import policy: decides which received routes the decision process may see, and with which attributes.

Reads:  adj-rib-in/FAMILY of a speaker (parameter `speaker`: its instance, default "0").
Writes: adj-rib-in/FAMILY, the same after import policy; a refused route is "gone", with the reason.
Owns:   nothing. Each reader's position is handed on to the speaker; the version of what is evaluated with is part of
        the epoch a reader sees, so another configuration cannot go unnoticed.
Never:  keeps a route, looks at a route more than once, changes one octet of a set that no rule changes.
When it dies: its readers wait, and go on where they were when it is back.

RFC 4271 §9.1.1, RFC 8212. Order for an attribute set: what the neighbor's block says of everything, next hop, path,
loops between reflectors; then communities are removed and added and LOCAL_PREF is set. A prefix is looked at last.
"""
