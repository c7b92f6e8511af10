"""The command `reload` where the configuration is wrong, with stages that answer as the real ones do."""

import pytest
from click.testing import CliRunner

from common.bus.question import ControlError
from common.cli.asking import NoAnswer, Router
from common.cli.main import main

ERRORS = ["h.toml: line 2: router.asn: must be 1", "h.toml: line 3: router.router_id: must be an IPv4 address"]


@pytest.mark.parametrize("askable", ["supervisor", "policy"])
@pytest.mark.parametrize(
    ("errors", "status", "told"),
    [
        (ERRORS, 2, [*ERRORS, "2 errors: not reloaded, nothing has changed"]),
        (ERRORS[:1], 2, [*ERRORS[:1], "1 error: not reloaded, nothing has changed"]),
        ([], 1, ["headrace: not reloaded: there is no file"]),
    ],
)
def test_a_refusal(tmp_path, monkeypatch, askable, errors, status, told):
    """Errors of the configuration come one a line with status 2, any other reason with status 1; stages alone too."""
    (tmp_path / f"{askable}.0.control").touch()
    asked = []

    def answer(self, stage, question, instance="0", **arguments):
        asked.append((stage, question))
        return NoAnswer(ControlError("not reloaded: there is no file", errors))

    monkeypatch.setattr(Router, "ask_or_error", answer)
    result = CliRunner().invoke(main, ["reload", "--run-dir", str(tmp_path)])
    assert result.exit_code == status and result.output.splitlines() == told
    assert asked == [(askable, "reload")]
