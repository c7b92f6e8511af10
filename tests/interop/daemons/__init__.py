"""The other BGP daemons of Debian, each started in a namespace with a small configuration and asked what it holds."""

from tests.interop.daemons.bird import Bird
from tests.interop.daemons.daemon import Daemon
from tests.interop.daemons.exabgp import ExaBgp
from tests.interop.daemons.frr import Frr
from tests.interop.daemons.gobgp import GoBgp
from tests.interop.daemons.openbgpd import OpenBgpd

ALL: tuple[type[Daemon], ...] = (Bird, Frr, GoBgp, OpenBgpd, ExaBgp)

__all__ = ["ALL", "Bird", "Daemon", "ExaBgp", "Frr", "GoBgp", "OpenBgpd"]
