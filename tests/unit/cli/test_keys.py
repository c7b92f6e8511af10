"""Keys and health as commands."""

import stat

import pytest
from click.testing import CliRunner

from common.cli.main import main
from common.config import loads

ROUTER = '[router]\nasn = 65000\nrouter_id = "10.77.0.1"\n'


@pytest.fixture
def call(tmp_path):
    """Call `headrace keys ...` with a directory of its own for secrets."""

    def make(*words: str):
        return CliRunner().invoke(main, ["keys", *words])

    return make


def new(call, directory, name, *words):
    return call("new", name, "--directory", str(directory), *words)


def test_a_secret_is_for_its_owner_alone_and_the_public_key_for_the_configuration(call, tmp_path):
    """What is printed can be put into the configuration as it is, and the secret fits it."""
    result = new(call, tmp_path / "keys", "rib.0")
    assert result.exit_code == 0
    secret = tmp_path / "keys" / "rib.0.secret"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert secret.read_text().strip() not in result.output
    file = tmp_path / "headrace.toml"
    file.write_text(ROUTER + f'[keys]\ndirectory = "{tmp_path}/keys"\n' + result.stdout)
    assert loads(file.read_text()).public_keys["rib.0"].role == "rib"
    assert "rib.0: correct, rib" in call("check", str(file)).output
    secret.chmod(0o644)
    assert call("check", str(file)).exit_code == 2


def test_a_secret_is_never_replaced(call, tmp_path):
    """A second key of the same name is refused."""
    new(call, tmp_path, "rib")
    before = (tmp_path / "rib.secret").read_text()
    assert new(call, tmp_path, "rib").exit_code == 1
    assert (tmp_path / "rib.secret").read_text() == before


@pytest.mark.parametrize("name", ["rib", "rib.0"])
def test_a_stages_key_has_its_role(call, tmp_path, name):
    """A key is not made that the configuration would then refuse."""
    result = call("new", name, "--role", "operator", "--directory", str(tmp_path / "keys"))
    assert result.exit_code == 2 and "the rib stage goes by a key of that name" in result.output
    assert not (tmp_path / "keys").exists()
    assert call("new", name, "--role", "rib", "--directory", str(tmp_path / "keys")).exit_code == 0


def test_a_name_that_says_no_role_needs_one(call, tmp_path):
    """A person's key is given its role."""
    assert new(call, tmp_path, "anna").exit_code == 2
    assert 'role = "operator"' in new(call, tmp_path, "anna", "--role", "operator").output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[endpoint]]\nstage = "rib"\nbus = "tcp://10.0.0.1:7700"\ncontrol = "tcp://127.0.0.1:1"\n', "needs a key"),
        (
            '[[endpoint]]\nstage = "ribs"\nbus = "tcp://127.0.0.1:1"\ncontrol = "tcp://127.0.0.1:2"\n',
            'must be "speaker"',
        ),
        ('[[endpoint]]\nstage = "rib"\nbus = "tcp://127.0.0.1:1"\ncontrol = "tcp://127.0.0.1:1"\n', "already taken"),
        ('[[endpoint]]\nstage = "rib"\nbus = "ipc:///x"\ncontrol = "tcp://127.0.0.1:1"\n', "tcp://10.77.0.2:7700"),
        ('[[key]]\nname = "rib"\npublic = "short"\nrole = "rib"\n', "40 characters"),
        (f'[[key]]\nname = "rib"\npublic = "{"a" * 40}"\nrole = "king"\n', 'or "operator"'),
        (f'[[key]]\nname = "rib"\npublic = "{"a" * 40}"\nrole = "rib"\n' * 2, "already that of the key"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(tmp_path, text, words):
    """Endpoints and keys are checked with the rest of the configuration, each error with its line."""
    file = tmp_path / "headrace.toml"
    file.write_text(ROUTER + text)
    result = CliRunner().invoke(main, ["check", str(file)])
    assert result.exit_code == 2 and words in result.output and "line " in result.output


def test_a_stage_without_its_key_does_not_start(tmp_path):
    """The reason is one line, with the command that makes the key; exit status 2, so nobody starts it again."""
    file = tmp_path / "headrace.toml"
    key = f'[[key]]\nname = "rib"\npublic = "{"a" * 40}"\nrole = "rib"\n'
    file.write_text(ROUTER.replace("[router]", f'[router]\nrun_dir = "{tmp_path}/run"') + key)
    file.write_text(file.read_text() + f'[keys]\ndirectory = "{tmp_path}"\n')
    for command in (["stage", "rib"], ["run"]):
        result = CliRunner().invoke(main, [*command, str(file)])
        assert result.exit_code == 2 and "`headrace keys new rib` makes one" in result.output


def test_health_of_nobody(tmp_path):
    """A stage that does not answer is not healthy."""
    result = CliRunner().invoke(main, ["health", "rib", "--run-dir", str(tmp_path)])
    assert result.exit_code == 1 and "no rib answers" in result.output


@pytest.mark.parametrize("name", ["nosuch", "ribs", "supervisor"])
def test_health_of_a_stage_there_is_not(tmp_path, name):
    """A wrong name is wrong usage, and those there are are told."""
    result = CliRunner().invoke(main, ["health", name, "--run-dir", str(tmp_path)])
    assert result.exit_code == 2 and f"no stage '{name}'; there are speaker, policy, rib" in result.output
