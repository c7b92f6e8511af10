"""The speaker's metrics, read from its records and tables when somebody asks.

Owns the names. Never counts anything itself.
"""

from common.bgp.constants import MessageType


def export_metrics(speaker) -> None:
    """Register the metrics of a speaker stage."""
    metrics = speaker.context.metrics
    state = metrics.gauge("session_state", "State of a session, 1 (Idle) to 6 (Established).", ["neighbor"])
    received = metrics.gauge("received_routes", "Routes held from a neighbor.", ["neighbor"])
    advertised = metrics.gauge("advertised_routes", "Prefixes a neighbor holds from us.", ["neighbor"])
    octets = metrics.gauge(
        "received_attribute_octets", "Octets of attribute sets held from a neighbor, at most.", ["neighbor"]
    )
    queued = metrics.gauge("queued_octets", "Octets that wait for a connection to take them.", ["neighbor"])
    messages = metrics.gauge("session_messages", "Messages since start.", ["neighbor", "direction", "type"])
    prefixes = metrics.gauge("table_prefixes", "Prefixes of the Adj-RIB-In.", ["family"])
    routes = metrics.gauge("table_routes", "Routes of the Adj-RIB-In.", ["family"])
    sets = metrics.gauge("table_attribute_sets", "Attribute sets of the Adj-RIB-In.", ["family"])
    backlog = metrics.gauge("backlog_changes", "Changes that the slowest reader has yet to get.")
    pauses = metrics.gauge("reading_pauses", "How often reading was paused because the bus was behind.")

    def refresh() -> None:
        for gauge in (state, received, advertised, octets, queued, messages):
            gauge.clear()
        for neighbor in speaker.neighbors:
            name, record = neighbor.name, neighbor.peering.session.record
            connection = neighbor.peering.connection
            state.labels(name).set(int(record.state))
            received.labels(name).set(speaker.limits.n_routes(neighbor))
            octets.labels(name).set(neighbor.n_attribute_octets)
            advertised.labels(name).set(speaker.n_advertised(neighbor))
            queued.labels(name).set(connection.n_queued if connection is not None else 0)
            for direction, counts in (("received", record.received), ("sent", record.sent)):
                for kind in MessageType:
                    messages.labels(name, direction, kind.name.lower()).set(counts[kind])
        for family, table in speaker.tables.items():
            prefixes.labels(family.label).set(table.prefixes.n_prefixes)
            routes.labels(family.label).set(table.routes.n_live)
            sets.labels(family.label).set(table.attributes.n_sets)
        backlog.set(speaker.backlog())
        pauses.set(speaker.n_pauses)

    metrics.before_scrape(refresh)
