"""Reading a configuration: what loads, and how errors are told."""

from ipaddress import ip_address, ip_network

import pytest

from common.config import ConfigErrors, load, loads, notices
from common.config.keys import Kind, Unfit, list_of
from common.config.schema import BOGONS, MARTIANS

TWENTY_LINES = """\
[router]
asn = 65000
router_id = "10.77.0.1"
run_dir = "/run/headrace"          # ipc sockets, mode 0700
listen = ["10.77.0.1"]             # default: all addresses; port 179
originate = ["192.0.2.0/24"]

[fib]
enabled = true                     # false: no kernel, e.g. a route server
table = 254
metric = 20

[status]
listen = "127.0.0.1:8179"

[[neighbor]]
name = "transit-a"
address = "10.77.0.10"
local_address = "10.77.0.1"
asn = 64601
passive = true                     # false: dial, with back-off
families = ["ipv4-unicast", "ipv6-unicast"]
hold_time_s = 90
expected_routes = 1230000          # sizes tables beforehand
maximum_prefixes = 2000000
import = { default = "accept", local_pref = 120, add_communities = ["65000:100"], \
add_large_communities = ["65000:1:1"], remove_communities = ["65000:*"] }
export = { default = "reject" }

[[neighbor]]
name = "listener"
address = "10.77.0.20"
asn = 64700
export = { learned_routes = true, as_path_prepend = 0, add_communities = [], remove_communities = [] }
"""


def errors_of(text: str) -> list[tuple[str, int, str]]:
    with pytest.raises(ConfigErrors) as caught:
        loads(text)
    return [(error.path, error.line, error.nearest) for error in caught.value.errors]


def test_twenty_lines_load():
    """The configuration of the README's kind loads, and its values arrive in the form the stages use."""
    config = loads(TWENTY_LINES)
    transit = config.neighbors["transit-a"]
    assert list(config.neighbors) == ["transit-a", "listener"]
    assert config.router.originate == (ip_network("192.0.2.0/24"),)
    assert transit.import_.local_pref == 120
    assert transit.import_.remove_communities == ((65000, None),)
    assert transit.import_.add_large_communities == ((65000, 1, 1),)
    assert transit.export.default == "reject"
    assert config.neighbors["listener"].import_ is None
    assert config.neighbors["listener"].export.learned_routes


def test_defaults():
    """A neighbor needs a name, an address and an AS; all else has a default."""
    config = loads('[router]\nasn=1\nrouter_id="1.1.1.1"\n[[neighbor]]\nname="a"\naddress="2001:db8::1"\nasn=2\n')
    neighbor = config.neighbors["a"]
    assert (neighbor.hold_time_s, neighbor.passive, neighbor.maximum_prefixes) == (90, False, None)
    assert neighbor.families == ("ipv4-unicast", "ipv6-unicast")
    assert not config.fib.enabled and config.status.enabled and config.log.format == "text"


def test_all_errors_at_once():
    """Every error is told in one go, each with its path, its line and the nearest known name."""
    text = TWENTY_LINES
    for right, wrong in (
        ("[fib]", "[fibb]"),
        ("hold_time_s", "hold_tme_s"),
        ('"65000:100"', '"65000x100"'),
        ('name = "listener"', 'name = "transit-a"'),
        ("asn = 64700", "asn = 23456"),
    ):
        text = text.replace(right, wrong)
    assert errors_of(text) == [
        ("fibb", 8, "fib"),
        ("neighbor.transit-a.hold_tme_s", 23, "hold_time_s"),
        ("neighbor.transit-a.import.add_communities[0]", 26, ""),
        ("neighbor.transit-a.name", 30, ""),
        ("neighbor.transit-a.asn", 32, ""),
    ]


@pytest.mark.parametrize(
    ("written", "inside", "outside"),
    [
        ('["martians"]', ["127.0.0.0/8", "fe80::/10"], ["10.0.0.0/8", "2001:db8::/32"]),
        ('["bogons"]', ["127.0.0.0/8", "10.0.0.0/8", "203.0.113.0/24", "2001:db8::/32", "fc00::/7"], ["192.0.0.0/8"]),
        ('["martians", "10.0.0.0/8", "127.0.0.0/8"]', ["127.0.0.0/8", "10.0.0.0/8"], ["172.16.0.0/12"]),
        ('["10.0.0.0/8"]', ["10.0.0.0/8"], ["127.0.0.0/8"]),
        ("[]", [], ["127.0.0.0/8"]),
    ],
)
def test_martians_by_name(written, inside, outside):
    """The name of a list stands for its prefixes, beside others; no prefix is there twice."""
    martians = loads(f'[router]\nasn=1\nrouter_id="1.1.1.1"\n[policy]\nmartians = {written}\n').policy.martians
    assert set(map(ip_network, inside)) <= set(martians) and not set(map(ip_network, outside)) & set(martians)
    assert len(set(martians)) == len(martians)


def test_nothing_that_is_routed_is_a_bogon():
    """The lists have no prefix within another, and leave alone what is given to the world."""
    for names in (MARTIANS, BOGONS):
        found = [ip_network(each) for each in names]
        assert not [(a, b) for a in found for b in found if a is not b and a.version == b.version and a.subnet_of(b)]
        assert not [
            each
            for each in found
            if any(ip in each for ip in map(ip_address, ("8.8.8.8", "2001:4860::8", "64:ff9b::1")))
        ]


@pytest.mark.parametrize("between", [", ", ",\n"])
def test_errors_stand_in_the_order_of_the_file(between):
    """Sorted by line, each value of a list at its own, and on one line in the order in which they are written."""
    text = TWENTY_LINES.replace('["192.0.2.0/24"]', f"[{between.join(['3'] * 12)}]").replace("asn = 64700", "asn = 0")
    errors = errors_of(text)
    assert [path for path, _, _ in errors[:-1]] == [f"router.originate[{place}]" for place in range(12)]
    is_on_lines = "\n" in between
    assert [line for _, line, _ in errors[:-1]] == [6 + place * is_on_lines for place in range(12)]
    assert errors[-1][0] == "neighbor.listener.asn"


@pytest.mark.parametrize(
    ("right", "wrong", "path", "places"),
    [
        ('"65000:100"', '"65000:100000", "65000:1", "foo"', "neighbor.transit-a.import.add_communities", (0, 2)),
        ('["192.0.2.0/24"]', '["x", "192.0.2.1/24", 3]', "router.originate", (0, 1, 2)),
        ('["192.0.2.0/24"]', '["192.0.2.0/24", "192.0.2.0/24", "x"]', "router.originate", (1, 2)),
    ],
)
def test_every_wrong_value_of_a_list_is_told(right, wrong, path, places):
    """Each at its own place, not the first alone."""
    assert right in TWENTY_LINES
    told = [path for path, _, _ in errors_of(TWENTY_LINES.replace(right, wrong))]
    assert told == [f"{path}[{place}]" for place in places]


@pytest.mark.parametrize(
    ("right", "wrong", "path"),
    [
        ("asn = 65000", "", "router.asn"),
        ("asn = 65000", "asn = true", "router.asn"),
        ("asn = 65000", 'asn = "65000"', "router.asn"),
        ('"10.77.0.1"\nrun', '"::1"\nrun', "router.router_id"),
        ('"/run/headrace"', '"run"', "router.run_dir"),
        ('["192.0.2.0/24"]', '["192.0.2.1/24"]', "router.originate[0]"),
        ('["192.0.2.0/24"]', '["192.0.2.0"]', "router.originate[0]"),
        ('["192.0.2.0/24"]', '["192.0.2.0/24", "192.0.2.0/24"]', "router.originate[1]"),
        ("table = 254", "table = 0", "fib.table"),
        ('"127.0.0.1:8179"', '"127.0.0.1"', "status.listen"),
        ("hold_time_s = 90", "hold_time_s = 2", "neighbor.transit-a.hold_time_s"),
        ('"ipv6-unicast"]', '"ipv6-multicast"]', "neighbor.transit-a.families[1]"),
        ('["ipv4-unicast", "ipv6-unicast"]', "[]", "neighbor.transit-a.families"),
        ('"10.77.0.20"', '"10.77.0.10"', "neighbor.listener.address"),
        ('"10.77.0.20"', '"10.77.0.1"', "neighbor.listener.address"),
        ('"10.77.0.20"', '"224.0.0.1"', "neighbor.listener.address"),
        ('"10.77.0.20"', '"fe80::1"', "neighbor.listener.address"),
        ('"10.77.0.20"', '"fe80::1%2"', "neighbor.listener.address"),
        ('"10.77.0.20"', '"::ffff:10.77.0.20"', "neighbor.listener.address"),
        ('"10.77.0.20"', '"255.255.255.255"', "neighbor.listener.address"),
        ('"/run/headrace"', '"/run/\\u0000headrace"', "router.run_dir"),
        ('local_address = "10.77.0.1"', 'local_address = "10.77.0.2"', "neighbor.transit-a.local_address"),
        ('local_address = "10.77.0.1"', 'local_address = "2001:db8::1"', "neighbor.transit-a.local_address"),
        ('default = "accept"', 'default = "maybe"', "neighbor.transit-a.import.default"),
        ('["65000:*"]', '["65000"]', "neighbor.transit-a.import.remove_communities[0]"),
        ("as_path_prepend = 0", "as_path_prepend = -1", "neighbor.listener.export.as_path_prepend"),
        ("[status]", "[status]\n[neighbour]", "neighbour"),
    ],
)
def test_each_limit(right, wrong, path):
    """A value outside its limits is an error at its path."""
    assert right in TWENTY_LINES
    assert path in [found for found, _, _ in errors_of(TWENTY_LINES.replace(right, wrong, 1))]


def test_not_toml_tells_the_line():
    """A file that is not TOML is one error with its line."""
    assert errors_of("[router]\nasn = \n") == [("", 2, "")]


@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_endless_brackets_are_an_error(brackets):
    """Brackets within brackets, however many, are an error of the file, not a traceback."""
    left = brackets[0] if brackets == "[]" else "{a = "
    text = f"[router]\nasn = {left * 20000}{brackets[1] * 20000}\n"
    assert errors_of(text) == [("", 0, "")]


def test_a_byte_order_mark_is_no_error(tmp_path):
    """A file written by an editor that puts a byte order mark in front is read as any other."""
    (tmp_path / "file.toml").write_text("\ufeff" + TWENTY_LINES, encoding="utf-8")
    assert load(tmp_path / "file.toml").router.asn == 65000


def test_unreadable_file(tmp_path):
    """A file that is not there is a configuration error, not a traceback."""
    with pytest.raises(ConfigErrors, match="No such file"):
        load(tmp_path / "none.toml")


def test_rfc_8212_is_said():
    """An external neighbor without a block is noticed, an internal one is not."""
    said = notices(loads(TWENTY_LINES.replace("asn = 64601", "asn = 65000").replace("import = {", "#")))
    assert said == ["neighbor listener: no import block: nothing is accepted from it (RFC 8212)"]


def test_neighbor_inherits():
    """Next hops and enforce_first_as come from `router` and `policy` where a neighbor has none of its own."""
    text = TWENTY_LINES.replace("[fib]", 'next_hop_ipv6 = "2001:db8::1"\n[policy]\nenforce_first_as = false\n[fib]')
    config = loads(text.replace("asn = 64700", "asn = 64700\nenforce_first_as = true"))
    assert {item.next_hop_ipv6 for item in config.neighbors.values()} == {"2001:db8::1"}
    assert [item.enforce_first_as for item in config.neighbors.values()] == [False, True]


def test_long_list_is_read_in_a_moment():
    """That no value stands in a list twice is found without comparing each with all others."""
    n_compared = 0

    class Value(int):
        __hash__ = int.__hash__

        def __eq__(self, other):
            nonlocal n_compared
            n_compared += 1
            return int(self) == int(other)

    kind = list_of(Kind("value", Value, "any"), is_set=True)
    assert len(kind.parse(list(range(1000)))) == 1000
    assert n_compared < 1000
    with pytest.raises(Unfit, match="twice"):
        kind.parse([1, 2, 1])
