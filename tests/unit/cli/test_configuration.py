"""The commands `check` and `config`."""

from click.testing import CliRunner

from common.cli.main import COMMANDS, main
from common.config.render import example


def call(*arguments):
    return CliRunner().invoke(main, arguments)


def test_check_says_it_is_correct(tmp_path):
    """A correct file ends with status 0 and one line that says so."""
    file = tmp_path / "headrace.toml"
    file.write_text(example())
    result = call("check", str(file))
    assert result.exit_code == 0
    assert "correct: AS 65000, 1 neighbor" in result.output


def test_check_says_all_errors(tmp_path):
    """A wrong file ends with status 2 and a line for each error."""
    file = tmp_path / "headrace.toml"
    file.write_text(example().replace("asn = 64601", "asn = 0").replace("enabled = true", "enable = true"))
    result = call("check", str(file))
    assert result.exit_code == 2
    assert "neighbor.transit-a.asn: must be 1 to" in result.output
    assert 'fib.enable: unknown key (did you mean "enabled"?)' in result.output
    assert "2 errors" in result.output


def test_check_says_rfc_8212(tmp_path):
    """A neighbor that gets and gives nothing is named."""
    file = tmp_path / "headrace.toml"
    file.write_text('[router]\nasn=1\nrouter_id="1.1.1.1"\n[[neighbor]]\nname="a"\naddress="10.0.0.1"\nasn=2\n')
    assert call("check", str(file)).output.count("RFC 8212") == 2


def test_config_prints_both():
    """`config example` prints the example, `config reference` the reference."""
    assert call("config", "example").output == example()
    assert call("config", "reference").output.startswith("# Configuration reference")


def test_help_lists_every_command():
    """`headrace --help` names each command without importing its module."""
    output = call("--help").output
    assert all(f"  {name} " in output for name in COMMANDS)
