"""Whether the kernel still has the routes that an earlier run put there: what RFC 4724 calls the forwarding state.

Owns one small file in the run directory, written by the fib and read by the speaker. It names the boot and the network
namespace, because with these the kernel's routes go. RFC 4724 §3 (Forwarding State bit).
"""

import os
from pathlib import Path

from common.config.schema import Config

FILE = "forwarding"


class Forwarding:
    """The note on the kernel's routes."""

    def __init__(self, config: Config):
        self._is_ours = config.fib.enabled
        self._path = Path(config.router.run_dir) / FILE
        self._is_noted = False

    @property
    def is_kept(self) -> bool:
        """Whether packets are forwarded as before; where no fib runs, whoever forwards them is not concerned by us."""
        if not self._is_ours:
            return True
        try:
            return self._path.read_text() == _place()
        except OSError:
            return False

    def note(self) -> None:
        """Note that the kernel has our routes from now on."""
        if self._is_noted:
            return
        try:
            self._path.write_text(_place())
            self._is_noted = True
        except OSError:
            pass  # then peers are told that nothing was kept, which is the safe side

    def forget(self) -> None:
        """Note that the kernel's routes have been taken away."""
        self._is_noted = False
        try:
            self._path.unlink(missing_ok=True)
        except OSError:
            pass


def _place() -> str:
    """Return what tells this boot and network namespace from any other."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.stat('/proc/self/ns/net').st_ino}\n"
    except OSError:
        return ""
