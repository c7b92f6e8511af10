"""The note that says whether the kernel still has our routes."""

from dataclasses import replace

from common.config import loads
from common.runtime.forwarding import FILE, Forwarding

CONFIG = """
[router]
asn = 65000
router_id = "10.77.0.1"
run_dir = "{}"
[fib]
enabled = {}
"""


def test_kept_only_while_noted(tmp_path):
    """Nothing is kept before the fib has said so, nor after it has taken its routes away."""
    config = loads(CONFIG.format(tmp_path, "true"))
    fib, speaker = Forwarding(config), Forwarding(config)
    assert not speaker.is_kept
    fib.note()
    assert speaker.is_kept and Forwarding(config).is_kept
    fib.forget()
    assert not speaker.is_kept


def test_a_note_of_another_boot_says_nothing(tmp_path):
    """After a reboot the kernel is empty, whatever lies in the run directory."""
    (tmp_path / FILE).write_text("another-boot 1\n")
    assert not Forwarding(loads(CONFIG.format(tmp_path, "true"))).is_kept


def test_without_a_fib_nothing_is_lost(tmp_path):
    """Where others forward, a restart of ours does not concern them."""
    assert Forwarding(loads(CONFIG.format(tmp_path, "false"))).is_kept


def test_a_directory_that_is_not_there_harms_nothing(tmp_path):
    """The note is only an offer: where it cannot be written peers are told that nothing was kept."""
    config = loads(CONFIG.format(tmp_path, "true"))
    gone = Forwarding(replace(config, router=replace(config.router, run_dir=tmp_path / "gone")))
    gone.note()
    assert not gone.is_kept
