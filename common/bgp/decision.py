"""The steps of the decision process, as data: why a path was chosen and why each other lost.

Owns the numbers (they travel on the bus as `path_reason`) and their words. Decides nothing: that is
common/kernels/decide.py. RFC 4271 §9.1.1 and §9.1.2, RFC 4456 §9.
"""

from enum import IntEnum

DEFAULT_LOCAL_PREF = 100
UNREACHABLE = 0xFFFFFFFF  # as a metric: there is no way to the next hop


class Step(IntEnum):
    """The step that left one path (its reason), or that removed a path (why it lost), in the order they are taken."""

    NONE = 0
    ONLY = 1
    ORIGINATED = 2
    LOCAL_PREF = 3
    AS_PATH = 4
    ORIGIN = 5
    MED = 6
    EXTERNAL = 7
    METRIC = 8
    ROUTER_ID = 9
    CLUSTER_LIST = 10
    ADDRESS = 11
    PATH_ID = 12
    UNREACHABLE = 13


CHOSEN_WORDS = {
    Step.NONE: "no path is usable",
    Step.ONLY: "the only usable path",
    Step.ORIGINATED: "originated here",
    Step.LOCAL_PREF: "higher degree of preference (LOCAL_PREF)",
    Step.AS_PATH: "shorter AS path",
    Step.ORIGIN: "lower ORIGIN",
    Step.MED: "lower MULTI_EXIT_DISC from the same neighboring AS",
    Step.EXTERNAL: "external over internal",
    Step.METRIC: "lower metric to the next hop",
    Step.ROUTER_ID: "lower router identifier",
    Step.CLUSTER_LIST: "shorter CLUSTER_LIST",
    Step.ADDRESS: "lower peer address",
    Step.PATH_ID: "lower path identifier",
}

LOST_WORDS = {
    Step.NONE: "",
    Step.ORIGINATED: "another path is originated here",
    Step.LOCAL_PREF: "lower degree of preference (LOCAL_PREF)",
    Step.AS_PATH: "longer AS path",
    Step.ORIGIN: "higher ORIGIN",
    Step.MED: "higher MULTI_EXIT_DISC than another path from the same neighboring AS",
    Step.EXTERNAL: "internal, another path is external",
    Step.METRIC: "higher metric to the next hop",
    Step.ROUTER_ID: "higher router identifier",
    Step.CLUSTER_LIST: "longer CLUSTER_LIST",
    Step.ADDRESS: "higher peer address",
    Step.PATH_ID: "higher path identifier",
    Step.UNREACHABLE: "next hop unreachable",
}
