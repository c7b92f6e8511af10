"""Where the stages of a router meet, as the configuration says it: endpoints, keys, ports and socket paths."""

import pytest

from common.config import ConfigErrors, loads

ROUTER = '[router]\nasn = 65000\nrouter_id = "10.77.0.1"\n'
KEY = '[[key]]\nname = "{}"\npublic = "' + "a" * 40 + '"\nrole = "{}"\n'


def endpoint(bus: str, control: str = "tcp://127.0.0.1:7799", stage: str = "rib") -> str:
    return f'[[endpoint]]\nstage = "{stage}"\nbus = "{bus}"\ncontrol = "{control}"\n'


def errors_of(text: str) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        loads(ROUTER + text)
    return [str(error) for error in caught.value.errors]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("tcp://127.0.0.1:07700", "tcp://127.0.0.1:7700"),
        ("tcp://[0:0:0:0:0:0:0:1]:7700", "tcp://[::1]:7700"),
        ("tcp://Rib-0.Example:7700", "tcp://rib-0.example:7700"),
        ("tcp://[FE80::1%eth0]:7700", "tcp://[fe80::1%eth0]:7700"),
    ],
)
def test_an_endpoint_has_one_spelling(written, meant):
    """However it is written, a place is the same for who serves there, who calls, and who looks whether it is taken."""
    config = loads(ROUTER + endpoint(written) + KEY.format("rib", "rib"))
    assert config.endpoints["rib", "0"].bus == meant
    (error,) = errors_of(endpoint(written, meant) + KEY.format("rib", "rib"))
    assert error == f"line 7: endpoint.#1.control: {meant} is already taken on line 6"


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("tcp://0.0.0.0:7700", "must be the address of one host"),
        ("tcp://[::]:7700", "must be the address of one host"),
        ("tcp://224.0.0.1:7700", "must be the address of one host"),
        ("tcp://[::ffff:10.0.0.1]:7700", "write 10.0.0.1"),
        ("tcp://[fe80::1]:7700", "on which interface"),
        *((place, "must be like") for place in ("tcp://::1:7700", "tcp://[10.0.0.1]:7700", "tcp://rib:0", "tcp://rib")),
        *((place, "must be like") for place in ("tcp://-rib:7700", "tcp://a..b:7700", "tcp://:7700", "udp://rib:7700")),
        *((place, "must be like") for place in ("tcp://rib:70000", "tcp://rib:77x", "tcp://rib:²", "tcp://*:7700")),
    ],
)
def test_where_nobody_can_call(written, words):
    """An endpoint is an address or a name by which others reach a stage, so not "any"."""
    (error,) = errors_of(endpoint(written) + KEY.format("rib", "rib"))
    assert error.startswith("line 6: endpoint.#1.bus: ") and words in error


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (endpoint("tcp://127.0.0.1:8179"), "endpoint.#1.bus: 127.0.0.1:8179 is the page's (status.listen)"),
        ('[status]\nlisten = "0.0.0.0:7700"\n' + endpoint("tcp://127.0.0.1:7700"), "is the page's (status.listen)"),
        (endpoint("tcp://127.0.0.1:179"), "endpoint.#1.bus: 127.0.0.1:179 is BGP's (router.port)"),
        ('[status]\nlisten = "[::1]:179"\n', "status.listen: [::1]:179 is BGP's (router.port)"),
        (
            endpoint("tcp://127.0.0.1:1", stage="policy") + endpoint("tcp://127.0.0.1:1", "tcp://[::1]:2"),
            "taken on line",
        ),
    ],
)
def test_one_port_for_two(text, words):
    """Whoever came second would not start; it is said before."""
    (error,) = errors_of(text)
    assert words in error


@pytest.mark.parametrize(
    "text",
    [
        'listen = ["10.0.0.1"]\n[status]\nlisten = "127.0.0.1:179"\n',
        "[status]\nenabled = false\n" + endpoint("tcp://127.0.0.1:8179"),
        endpoint("tcp://rib.example:8179") + KEY.format("rib", "rib"),
        '[status]\nlisten = "[::1]:7700"\n' + endpoint("tcp://127.0.0.1:7700"),
    ],
)
def test_one_port_at_two_places(text):
    """Other addresses, another family, a name, or nobody there: no conflict."""
    assert loads(ROUTER + text)


@pytest.mark.parametrize("name", ["rib", "rib.0", "rib.west"])
def test_a_stage_whose_key_has_another_role(name):
    """It would be refused by all whom it asks."""
    (error,) = errors_of(KEY.format(name, "policy"))
    assert "key.#1.role: the rib stage goes by a key of this name" in error and 'its role is "rib"' in error
    assert loads(ROUTER + KEY.format("ribs", "policy") + KEY.format("ops", "operator").replace("a" * 40, "b" * 40))


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('[rib]\ninstances = ["0", "{name}"]\n', "rib.instances"),
        ('[[neighbor]]\nname = "n"\naddress = "10.0.0.2"\nasn = 64601\nspeaker = "{name}"\n', "router.run_dir"),
    ],
)
def test_names_too_long_for_a_socket(text, path):
    """What the kernel would refuse when the stage starts is an error of the configuration."""
    run_dir = f'run_dir = "/{"r" * 60}"\n'
    (error,) = errors_of(run_dir + text.format(name="x" * 64))
    assert f" {path}: the socket /rrr" in error and "of which there may be 107" in error
    assert loads(ROUTER + run_dir + text.format(name="x" * 20))


@pytest.mark.parametrize("name", ["größe", "a/b", "a b", "a@b", "", "x" * 65, "٣"])
def test_names_of_instances(name):
    """They are part of the names of sockets, units and pods."""
    assert errors_of(f'[policy]\ninstances = ["{name}"]\n')
    assert errors_of(f'[[neighbor]]\nname = "n"\naddress = "10.0.0.2"\nasn = 64601\nspeaker = "{name}"\n')


def test_a_neighbor_given_to_two_speakers_is_one_error():
    """Nothing is said of a speaker that nobody has written."""
    neighbor = '[[neighbor]]\nname = "n"\naddress = "10.0.0.2"\nasn = 64601\nspeaker = ["a", "b"]\n'
    (error,) = errors_of('[speaker]\ninstances = ["a", "b"]\n' + neighbor)
    assert "held by one speaker" in error
