"""The configuration's schema: every section and key, each declared once.

A section is a frozen dataclass, a key is a field of it made by `key()`: kind, default, limits, unit and a sentence.
Validation (load.py), the example and the reference (render.py) are derived from these declarations.

What the stages find in the fields: addresses are text in canonical form, prefixes are `ipaddress` networks,
communities are tuples of integers, (None stands for "*" in a pattern), families are labels such as "ipv4-unicast",
lists are tuples. A key that is not set and has no default is None.

Never: reads a file, or reports an error.
"""

from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from pathlib import Path

from common.config import keys
from common.config.keys import key, list_of

STAGES = ("speaker", "policy", "rib", "exporter", "fib", "status")
ROLES = (*STAGES, "tap", "monitor", "operator")
FAMILIES = ("ipv4-unicast", "ipv6-unicast")

# What can be forwarded for nobody, wherever it is announced: this host, loopback, link-local, multicast, reserved.
MARTIANS = [
    *("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4"),
    *("::/96", "::ffff:0:0/96", "100::/64", "fe80::/10", "fec0::/10", "ff00::/8"),
]
# What else has no place in the Internet's table, though it may have one inside a network: what IANA's registries of
# special-purpose addresses (RFC 6890) call not globally reachable.
BOGONS = [
    *MARTIANS,
    *("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16"),  # RFC 1918, RFC 6598
    *("192.0.0.0/24", "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),  # RFC 6890, 5737, 2544
    *("64:ff9b:1::/48", "2001:2::/48", "2001:10::/28"),  # RFC 8215, RFC 5180, RFC 4843
    *("2001:db8::/32", "3fff::/20", "5f00::/16", "fc00::/7"),  # RFC 3849, RFC 9637, RFC 9602, RFC 4193
]

Prefix = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """What this router is, and where its processes meet."""

    asn: int = key(
        keys.ASN, "Number of the autonomous system this router belongs to.", example=65000, change=keys.SESSION
    )
    router_id: str = key(
        keys.ROUTER_ID, "BGP identifier, unique within the AS (RFC 6286).", example="10.77.0.1", change=keys.SESSION
    )
    run_dir: Path = key(
        keys.DIRECTORY,
        "Directory of the ipc sockets and the pid file, made with mode 0700. Its owner, and its group if that may "
        "search it, may connect to the stages.",
        default="/run/headrace",
        change=keys.RESTART,
    )
    user: str | None = key(
        keys.NAME,
        "User the stages become when root starts them; not set: they stay root, without the rights they do not need.",
        default=None,
        example="headrace",
        change=keys.RESTART,
    )
    listen: tuple[str, ...] = key(
        list_of(keys.ADDRESS, is_set=True),
        "Addresses on which connections of peers are accepted; none: all addresses.",
        default=[],
        example=["10.77.0.1"],
    )
    port: int = key(keys.integer(1, 65535), "TCP port on which connections are accepted.", default=179)
    originate: tuple[Prefix, ...] = key(
        list_of(keys.PREFIX, is_set=True),
        "Prefixes announced as this router's own.",
        default=[],
        example=["192.0.2.0/24"],
    )
    next_hop_ipv4: str | None = key(
        keys.ADDRESS_IPV4,
        "Own address told as next hop of IPv4 routes where the session's own address is of another family.",
        default=None,
        example="10.77.0.1",
        change=keys.EVALUATE,
    )
    next_hop_ipv6: str | None = key(
        keys.ADDRESS_IPV6,
        "Own address told as next hop of IPv6 routes where the session's own address is of another family.",
        default=None,
        example="2001:db8:77::1",
        change=keys.EVALUATE,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """The speakers, which share out the neighbors: each names its own (`neighbor.speaker`)."""

    instances: tuple[str, ...] | None = key(
        keys.INSTANCES,
        "How many there are, or their names; the first announces `router.originate`. Not set: those that neighbors "
        'name, and "0".',
        default=None,
        example=["0", "edge"],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rib:
    """The ribs, which share out the prefixes: neighboring ones stay together, for they often share attributes."""

    instances: tuple[str, ...] = key(
        keys.INSTANCES, "How many there are, or their names.", default=1, change=keys.SHARE
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """The exporters, which share out the groups of neighbors; they keep nothing."""

    instances: tuple[str, ...] = key(keys.INSTANCES, "How many there are, or their names.", default=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fib:
    """Whether and where chosen routes are put into the kernel."""

    enabled: bool = key(
        keys.BOOLEAN,
        "Put chosen routes into the kernel; false for a route server.",
        default=False,
        example=True,
        change=keys.RESTART,
    )
    table: int = key(
        keys.integer(1, 4294967295),
        "Number of the kernel's routing table; 254 is main.",
        default=254,
        change=keys.RESTART,
    )
    metric: int = key(
        keys.integer(1, 4294967295), "Metric (priority) of the kernel routes.", default=20, change=keys.RESTART
    )
    nexthop_objects: bool = key(
        keys.BOOLEAN,
        "Let routes refer to one nexthop object for each next hop; false: each route names its gateway.",
        default=True,
        change=keys.RESTART,
    )
    on_exit: str = key(
        keys.choice("keep", "remove"),
        "What becomes of the kernel routes when Headrace stops.",
        default="keep",
        change=keys.RESTART,
    )
    protocol: int = key(
        keys.integer(5, 255),
        "Protocol number of the kernel routes and nexthop objects: those of this number are ours, and no others. "
        "The default is the kernel's `bgp`, which FRR's bgpd has too, with metric 20: beside it choose another.",
        default=186,
        change=keys.RESTART,
    )
    families: tuple[str, ...] = key(
        list_of(keys.choice(*FAMILIES), minimum=1, is_set=True),
        "Address families put into the kernel.",
        default=list(FAMILIES),
        change=keys.RESTART,
    )
    prefixes: tuple[Prefix, ...] = key(
        list_of(keys.PREFIX, is_set=True),
        "Only routes to these prefixes and to what is within them are put into the kernel; none: all.",
        default=[],
        example=["10.0.0.0/8"],
        change=keys.RESTART,
    )
    namespace: str = key(
        keys.LINE,
        "Network namespace, by its name for ip-netns(8), whose kernel table it is; not set: that of the process.",
        default="",
        change=keys.RESTART,
    )
    preferred_source_ipv4: str | None = key(
        keys.ADDRESS_IPV4,
        "Source address of what this machine itself sends over IPv4 routes; not set: as the kernel chooses.",
        default=None,
        example="10.77.0.1",
        change=keys.RESTART,
    )
    preferred_source_ipv6: str | None = key(
        keys.ADDRESS_IPV6,
        "Source address of what this machine itself sends over IPv6 routes; not set: as the kernel chooses.",
        default=None,
        example="2001:db8:77::1",
        change=keys.RESTART,
    )
    maximum_paths: int = key(
        keys.integer(1, 64),
        "How many equally good paths of external neighbors share the traffic of a prefix.",
        default=1,
        unit="paths",
        change=keys.RESTART,
    )
    maximum_paths_internal: int = key(
        keys.integer(1, 64),
        "How many equally good paths of internal neighbors share the traffic of a prefix.",
        default=1,
        unit="paths",
        change=keys.RESTART,
    )
    resolve_over_bgp: bool = key(
        keys.BOOLEAN,
        "Let a next hop be reached over a BGP route of our own, too, where that is the longest match.",
        default=False,
        change=keys.RESTART,
    )
    nexthop_compat: str = key(
        keys.choice("keep", "off"),
        "Set net.ipv4.nexthop_compat_mode to 0 at the start: then a next hop moves in 0.1 ms instead of 1 ms a "
        "thousand routes, but programs that know no nexthop objects see the routes without their gateways.",
        default="keep",
        change=keys.RESTART,
    )
    name: str = key(
        keys.INSTANCE,
        "Name of an instance ([[fib.instance]]), which has its own table and takes what it does not set from [fib]. "
        "Each finds its own ways to next hops; which can be reached, the decision process learns from [fib] itself.",
        default="0",
        change=keys.RESTART,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status page, its JSON and the metrics of all stages."""

    enabled: bool = key(keys.BOOLEAN, "Run the status stage.", default=True, change=keys.RESTART)
    listen: str = key(
        keys.SOCKET_ADDRESS, "Where the page is served over HTTP.", default="127.0.0.1:8179", change=keys.RESTART
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The log, one line an event, on standard error."""

    level: str = key(
        keys.choice("debug", "info", "warning", "error"), "Least important level that is written.", default="info"
    )
    format: str = key(
        keys.choice("text", "json"),
        "How a line is written. To the systemd journal, which has the time itself, text tells the priority instead.",
        default="text",
        change=keys.RESTART,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Checks on all routes received, whatever a neighbor's `import` says."""

    martians: tuple[Prefix, ...] = key(
        keys.prefixes({"martians": MARTIANS, "bogons": BOGONS}),
        'Prefixes nobody may announce, nor anything more specific; internal neighbors neither. "martians" stands for '
        'the default, "bogons" for that and private, documentation and other addresses that do not belong into the '
        "Internet's table.",
        default=MARTIANS,
        change=keys.EVALUATE,
    )
    maximum_length_ipv4: int = key(
        keys.integer(0, 32), "Longest IPv4 prefix accepted.", default=32, unit="bits", change=keys.EVALUATE
    )
    maximum_length_ipv6: int = key(
        keys.integer(0, 128), "Longest IPv6 prefix accepted.", default=128, unit="bits", change=keys.EVALUATE
    )
    enforce_first_as: bool = key(
        keys.BOOLEAN,
        "Refuse routes of an external neighbor whose AS path does not start with its AS (RFC 4271 §6.3); "
        "a neighbor may set its own.",
        default=True,
        change=keys.EVALUATE,
    )
    as_set: str = key(
        keys.choice("treat-as-withdraw", "accept"),
        "What is done with routes whose AS path has an AS_SET or AS_CONFED_SET (RFC 9774).",
        default="treat-as-withdraw",
    )
    instances: tuple[str, ...] = key(
        keys.INSTANCES,
        "How many policy stages there are, or their names; they share out the streams of routes, and keep nothing.",
        default=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GracefulRestart:
    """How routes outlive a session, on both sides (RFC 4724, RFC 8538)."""

    enabled: bool = key(keys.BOOLEAN, "Offer it to neighbors; a neighbor may have its own.", default=True)
    restart_time_s: int = key(
        keys.integer(1, 4095),
        "How long neighbors are asked to keep this router's routes, and it keeps theirs, when the speaker is away.",
        default=120,
        unit="s",
    )
    stale_time_s: int = key(
        keys.integer(1, 86400),
        "How long a neighbor's stale routes are kept at most once its session is back, if no End-of-RIB comes.",
        default=300,
        unit="s",
    )
    selection_deferral_s: int = key(
        keys.integer(1, 86400),
        "How long, after a start, nothing is passed on before the End-of-RIB of those that promised one.",
        default=120,
        unit="s",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Supervisor:
    """How `headrace run` looks after the stages."""

    restart_delay_s: float = key(
        keys.number(0.01, 60),
        "Pause before a stage that died is started again; doubles each time it fails by itself.",
        default=0.02,
        unit="s",
    )
    restart_delay_maximum_s: float = key(
        keys.number(0.1, 3600), "The pause grows no longer than this.", default=10.0, unit="s"
    )
    restart_reset_s: float = key(
        keys.number(1, 86400), "A stage that ran so long starts with the first pause again.", default=30.0, unit="s"
    )
    hang_time_s: float = key(
        keys.number(1, 3600, also=(0,)),
        "A stage whose loop has not turned for so long is killed and started again; 0: never. "
        "While a stage starts it may take six times as long.",
        default=10.0,
        unit="s",
    )
    quarantine_failures: int = key(
        keys.integer(2, 1000, also=(0,)),
        "A neighbor whose routes a stage was handling each of the last so many times it failed is stopped; 0: never.",
        default=3,
    )
    stop_time_s: float = key(
        keys.number(1, 600), "How long a stage may take to stop in order before it is killed.", default=10.0, unit="s"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPolicy:
    """What is done with routes received from a neighbor; without the block an external neighbor's are refused."""

    default: str = key(
        keys.choice("accept", "reject"), "What becomes of a route.", default="accept", change=keys.EVALUATE
    )
    local_pref: int | None = key(
        keys.integer(0, 4294967295),
        "LOCAL_PREF set on each route; not set: 100 for external neighbors, as received for internal ones.",
        default=None,
        example=120,
        change=keys.EVALUATE,
    )
    add_communities: tuple[tuple[int, int], ...] = key(
        list_of(keys.COMMUNITY),
        "Communities added to each route.",
        default=[],
        example=["65000:100"],
        change=keys.EVALUATE,
    )
    add_large_communities: tuple[tuple[int, int, int], ...] = key(
        list_of(keys.LARGE_COMMUNITY),
        "Large communities added to each route.",
        default=[],
        example=["65000:1:1"],
        change=keys.EVALUATE,
    )
    remove_communities: tuple[tuple[int | None, int | None], ...] = key(
        list_of(keys.COMMUNITY_PATTERN),
        "Communities removed from each route, before any are added.",
        default=[],
        example=["65000:*"],
        change=keys.EVALUATE,
    )
    remove_large_communities: tuple[tuple[int | None, int | None, int | None], ...] = key(
        list_of(keys.LARGE_COMMUNITY_PATTERN),
        "Large communities removed from each route, before any are added.",
        default=[],
        change=keys.EVALUATE,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportPolicy:
    """What is told to a neighbor; without the block an external neighbor is told nothing."""

    default: str = key(
        keys.choice("accept", "reject"), "What becomes of a route.", default="accept", change=keys.EVALUATE
    )
    learned_routes: bool = key(
        keys.BOOLEAN, "Tell routes learned from other neighbors.", default=True, change=keys.EVALUATE
    )
    originated_routes: bool = key(
        keys.BOOLEAN, "Tell the prefixes of `router.originate`.", default=True, change=keys.EVALUATE
    )
    as_path_prepend: int = key(
        keys.integer(0, 16), "How many times more the own AS is put before the path.", default=0, change=keys.EVALUATE
    )
    next_hop_self: bool = key(
        keys.BOOLEAN,
        "Tell internal neighbors this router as next hop; external ones are always told it.",
        default=False,
        change=keys.EVALUATE,
    )
    add_communities: tuple[tuple[int, int], ...] = key(
        list_of(keys.COMMUNITY), "Communities added to each route.", default=[], change=keys.EVALUATE
    )
    remove_communities: tuple[tuple[int | None, int | None], ...] = key(
        list_of(keys.COMMUNITY_PATTERN),
        "Communities removed from each route, before any are added.",
        default=[],
        change=keys.EVALUATE,
    )
    add_large_communities: tuple[tuple[int, int, int], ...] = key(
        list_of(keys.LARGE_COMMUNITY), "Large communities added to each route.", default=[], change=keys.EVALUATE
    )
    remove_large_communities: tuple[tuple[int | None, int | None, int | None], ...] = key(
        list_of(keys.LARGE_COMMUNITY_PATTERN),
        "Large communities removed from each route, before any are added.",
        default=[],
        change=keys.EVALUATE,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbor:
    """A router with which this one has a session."""

    name: str = key(keys.NAME, "What the neighbor is called in logs, metrics and commands.", example="transit-a")
    description: str = key(keys.LINE, "A remark for people.", default="")
    address: str = key(keys.ADDRESS, "The neighbor's address.", example="10.77.0.10", change=keys.SESSION)
    port: int = key(keys.integer(1, 65535), "TCP port that is dialled.", default=179)
    local_address: str | None = key(
        keys.ADDRESS,
        "Own address of the session; not set: as the kernel chooses.",
        default=None,
        example="10.77.0.1",
        change=keys.SESSION,
    )
    asn: int = key(
        keys.ASN,
        "The neighbor's AS; the router's own makes it an internal neighbor.",
        example=64601,
        change=keys.SESSION,
    )
    passive: bool = key(keys.BOOLEAN, "Wait to be called; false: dial, with back-off.", default=False)
    families: tuple[str, ...] = key(
        list_of(keys.choice(*FAMILIES), minimum=1, is_set=True),
        "Address families offered (RFC 4760).",
        default=list(FAMILIES),
        change=keys.SESSION,
    )
    hold_time_s: int = key(
        keys.integer(3, 65535, also=(0,)),
        "Hold time proposed; the lower of both sides' counts; 0: no keepalives.",
        default=90,
        unit="s",
        change=keys.SESSION,
    )
    open_hold_time_s: int = key(
        keys.integer(3, 3600),
        "How long a connection may stand before the neighbor's OPEN has come (RFC 4271 suggests 240).",
        default=60,
        unit="s",
    )
    connect_retry_s: int = key(
        keys.integer(1, 3600),
        "Pause between attempts to connect; grows to eight times that while they fail.",
        default=5,
        unit="s",
    )
    expected_routes: int = key(
        keys.integer(0, 100_000_000),
        "How many routes to expect: sizes the tables beforehand.",
        default=0,
        unit="routes",
    )
    maximum_prefixes: int | None = key(
        keys.integer(1, 100_000_000),
        "The session ends with a Cease when the neighbor announces more; not set: no limit.",
        default=None,
        unit="prefixes",
        example=2_000_000,
    )
    maximum_attribute_octets: int | None = key(
        keys.integer(1 << 24, 1 << 34, also=(0,)),
        "The session ends with a Cease when the distinct attribute sets of the neighbor's routes have more octets; not "
        "set: 256 for each of `maximum_prefixes`, else for twice the `expected_routes`, at least for two millions; "
        "never less than 64 MiB; 0: no limit.",
        default=None,
        unit="octets",
        example=512_000_000,
    )
    maximum_prefixes_warning_percent: int = key(
        keys.integer(1, 100),
        "Share of `maximum_prefixes`, and of `maximum_attribute_octets`, from which on there is a warning.",
        default=80,
        unit="%",
    )
    maximum_prefixes_restart_s: int = key(
        keys.integer(0, 86400),
        "When a session that ended so may come up again; 0: when a limit is changed in the configuration.",
        default=300,
        unit="s",
    )
    enforce_first_as: bool | None = key(
        keys.BOOLEAN,
        "As `policy.enforce_first_as`, for this neighbor.",
        default=None,
        example=True,
        change=keys.EVALUATE,
    )
    next_hop_ipv4: str | None = key(
        keys.ADDRESS_IPV4,
        "As `router.next_hop_ipv4`, for this neighbor.",
        default=None,
        example="10.77.0.1",
        change=keys.EVALUATE,
    )
    next_hop_ipv6: str | None = key(
        keys.ADDRESS_IPV6,
        "As `router.next_hop_ipv6`, for this neighbor.",
        default=None,
        example="2001:db8:77::1",
        change=keys.EVALUATE,
    )
    graceful_restart: bool | None = key(
        keys.BOOLEAN, "As `graceful_restart.enabled`, for this neighbor.", default=None, example=True
    )
    send_hold_time_s: int | None = key(
        keys.integer(10, 65535),
        "The session ends when the neighbor has taken nothing for so long (RFC 9687); not set: 480, or twice the hold "
        "time if that is more.",
        default=None,
        unit="s",
        example=480,
    )
    announce_after_install: bool = key(
        keys.BOOLEAN,
        "Tell a route only when it is in the kernel (of the fib instance of [fib]); routes that are not put there by "
        "its filters are not told.",
        default=False,
        change=keys.EVALUATE,
    )
    speaker: str = key(
        keys.SPEAKER, "Instance of the speaker stage that holds the session.", default="0", change=keys.SESSION
    )
    import_: ImportPolicy | None = field(default=None, metadata={"section": "import"})
    export: ExportPolicy | None = field(default=None, metadata={"section": "export"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """Where this machine's secret keys are, for a bus between machines."""

    directory: Path = key(
        keys.DIRECTORY,
        "Directory of the secret keys, one file NAME.secret each, readable by its owner alone.",
        default="/etc/headrace/keys",
        change=keys.RESTART,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a stage can be reached from other machines, beside its ipc sockets; beyond loopback only with keys."""

    stage: str = key(keys.choice(*STAGES), "The stage.", example="rib", change=keys.RESTART)
    instance: str = key(keys.INSTANCE, "Which instance of it.", default="0", change=keys.RESTART)
    bus: str = key(
        keys.TCP_ENDPOINT,
        "Where it serves its channels; with a host's name it listens at all addresses.",
        example="tcp://127.0.0.1:7700",
        change=keys.RESTART,
    )
    control: str = key(
        keys.TCP_ENDPOINT, "Where it answers questions.", example="tcp://127.0.0.1:7701", change=keys.RESTART
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    """A key that is accepted, and what its owner may do. That of a stage is named STAGE or STAGE.INSTANCE."""

    name: str = key(
        keys.NAME, "What it is called in logs, and its secret in files.", example="rib", change=keys.RESTART
    )
    public: str = key(
        keys.PUBLIC_KEY,
        "The public key, as `headrace keys new NAME` writes it.",
        example="Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID",
        change=keys.RESTART,
    )
    role: str = key(
        keys.choice(*ROLES),
        "What it may do: a stage's role follows what that stage reads; `tap` follows anything and holds up nothing; "
        "`monitor` and `status` put questions that change nothing; `operator` does what `tap` does and puts any.",
        example="rib",
        change=keys.RESTART,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration, as the stages are given it."""

    router: Router
    neighbors: dict[str, Neighbor] = field(default_factory=dict, metadata={"section": "neighbor"})
    policy: Policy = field(default_factory=Policy)
    speaker: Speaker = field(default_factory=Speaker)
    rib: Rib = field(default_factory=Rib)
    exporter: Exporter = field(default_factory=Exporter)
    fib: Fib = field(default_factory=Fib)
    fibs: dict[str, Fib] = field(default_factory=dict)  # by instance, with that of [fib], "0", first
    status: Status = field(default_factory=Status)
    log: Log = field(default_factory=Log)
    graceful_restart: GracefulRestart = field(default_factory=GracefulRestart)
    supervisor: Supervisor = field(default_factory=Supervisor)
    keys: Keys = field(default_factory=Keys)
    endpoints: dict[tuple[str, str], Endpoint] = field(default_factory=dict, metadata={"section": "endpoint"})
    public_keys: dict[str, PublicKey] = field(default_factory=dict, metadata={"section": "key"})
    path: Path | None = None

    def instances(self, stage: str) -> tuple[str, ...]:
        """Return the names of the instances of a stage, in the order in which they share its work out."""
        if stage == "fib":
            return tuple(self.fibs)
        if stage == "speaker" and self.speaker.instances is None:
            return ("0", *sorted({neighbor.speaker for neighbor in self.neighbors.values()} - {"0"}))
        section = getattr(self, stage, None)
        return getattr(section, "instances", ("0",))

    def fib_of(self, instance: str) -> Fib:
        """Return what an instance of the fib stage goes by."""
        return self.fibs.get(instance, self.fib)

    def is_external(self, neighbor: Neighbor) -> bool:
        """Tell whether a session with `neighbor` is external (its AS is not ours)."""
        return neighbor.asn != self.router.asn

    def tells_nothing(self, neighbor: Neighbor) -> bool:
        """Tell whether export policy refuses every route to `neighbor`: it says so, or there is none (RFC 8212 §2)."""
        if neighbor.export is None:
            return self.is_external(neighbor)
        return neighbor.export.default == "reject"


SECTIONS: dict[str, type] = {
    "router": Router,
    "neighbor": Neighbor,
    "policy": Policy,
    "speaker": Speaker,
    "rib": Rib,
    "exporter": Exporter,
    "fib": Fib,
    "status": Status,
    "log": Log,
    "graceful_restart": GracefulRestart,
    "supervisor": Supervisor,
    "keys": Keys,
    "endpoint": Endpoint,
    "key": PublicKey,
}
LISTS = ("neighbor", "endpoint", "key")
"""Sections that are written [[name]], once for each."""
BLOCKS: dict[str, type] = {"import": ImportPolicy, "export": ExportPolicy}
