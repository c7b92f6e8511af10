"""The commands `show ...`: what the stages know, as tables for people or as JSON for programs.

Owns: the columns shown. Never: computes what a stage can tell, nor asks for more than it shows.
"""

from common.cli.show import fib, neighbors, routes, stages
from common.cli.show.frame import show

__all__ = ["fib", "neighbors", "routes", "show", "stages"]
