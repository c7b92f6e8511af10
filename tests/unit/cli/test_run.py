"""The commands that start stages, as far as they go before they do."""

import pytest
from click.testing import CliRunner

from common.cli.main import main
from common.config.render import example


@pytest.fixture
def file(tmp_path_factory):
    """A correct configuration whose run directory cannot be made."""
    tmp_path = tmp_path_factory.mktemp("run")  # short: sockets have short names
    (tmp_path / "blocked").write_text("")
    path = tmp_path / "headrace.toml"
    path.write_text(example().replace('# run_dir = "/run/headrace"', f'run_dir = "{tmp_path}/blocked/run"'))
    return path


def test_unknown_stage(file):
    """A stage there is not is wrong usage."""
    result = CliRunner().invoke(main, ["stage", "ribs", str(file)])
    assert result.exit_code == 2
    assert "no stage 'ribs'" in result.output


@pytest.mark.parametrize("command", [("run",), ("stage", "rib")])
def test_wrong_configuration(file, command):
    """Nothing starts with a wrong configuration: exit status 2, with each error."""
    file.write_text(file.read_text().replace("asn = 64601", "asn = 0"))
    result = CliRunner().invoke(main, [*command, str(file)])
    assert result.exit_code == 2
    assert "neighbor.transit-a.asn" in result.output


def test_run_directory_that_cannot_be_made(file):
    """What the system refuses is told in one line, with status 1."""
    result = CliRunner().invoke(main, ["run", str(file)])
    assert result.exit_code == 1
    assert "cannot run: " in result.output and "Traceback" not in result.output


def test_unknown_instance(file):
    """An instance that is not configured is refused before anything starts, with those there are."""
    file.write_text(file.read_text().replace("[rib]", "[rib]\ninstances = 2"))
    result = CliRunner().invoke(main, ["stage", "rib", str(file), "--instance", "2"])
    assert result.exit_code == 2 and "there is 0, 1" in result.output and "rib.instances" in result.output
