"""What each alert has to tell apart."""

from histories import HOUR, Burn, Case, beside, counter, level, share, slower

CORE, EDGE = 'namespace="rooms",job="core",instance="c1"', 'namespace="rooms",job="edge",instance="e1"'


def core(name, labels=""):
    return f"presence_core_{name}{{{CORE}{labels and ',' + labels}}}"


def edge(name, labels=""):
    return f"presence_edge_{name}{{{EDGE}{labels and ',' + labels}}}"


def labelled(of, name, label, *values):
    return [of(name, f'{label}="{value}"') for value in values]


def held(series, quiet, loud, hold, calm=()):
    """An alert on a level: `loud` has to last; levels of `calm` never fire."""
    phases = [(600, quiet)]
    cases = [
        Case("long enough", {series: level(*phases, (hold * 1.5, loud))}, 590 + hold * 1.5, True),
        Case("not for long", {series: level(*phases, (hold * 0.7, loud))}, 590 + hold * 0.7, False),
    ]
    return cases + [
        Case(f"never above {value}", {series: level((3600, value))}, 3590, False) for value in calm
    ]


def still(series):
    """An alert on what stands still over two minutes, for one."""
    return [
        Case("stands still", {series: counter((HOUR, 5), (210, 0))}, HOUR + 210, True),
        Case("stood still a moment", {series: counter((HOUR, 5), (150, 0))}, HOUR + 150, False),
        Case("goes on slowly", {series: counter((HOUR, 0.01))}, HOUR, False),
        # One step in a hundred seconds, the last of them eighty seconds ago.
        Case("goes on in steps", {series: counter((HOUR, 5), *[(90, 0), (10, 1)] * 5, (90, 0))}, HOUR + 590, False),
    ]


def increase(series, least, other=None):
    """An alert on more than `least` within fifteen minutes."""
    noise = {} if other is None else {other: counter((5 * HOUR, 10))}

    def grown(name, by, after, fires):
        return Case(name, {series: counter((4 * HOUR, 0), (10, by / 10), (after, 0)), **noise}, 4 * HOUR + 10 + after, fires)

    return [
        grown("more within the window", (least or 1) * 1.15, 700, True),
        grown("more, but before", (least or 1) * 3, 960, False),
        grown("just not more", least * 0.9, 300, False),
    ]


def absent(series, hold):
    gone = f"0+1x60 _x{round(hold / 10 * 1.5) + 30}"
    return [
        Case("gone", {series: gone}, 600 + hold * 1.5 + 300, True),
        Case("gone for a moment", {series: gone}, 600 + 300 + hold * 0.7, False),
        Case("there", {series: counter((HOUR, 1))}, HOUR, False),
    ]


def per_minute(limit, floor, bad, whole, others=(), short=300, long=HOUR):
    """An alert on what happens to a share of `whole`, a gauge, each minute."""
    return Burn(limit, floor, beside(bad, whole, others, per_minute=True), short, long, moves=False).cases()


def endings(limit, floor, bad, others):
    reasons = [labelled(core, "transitions_total", "reason", *each) for each in (bad, others)]
    return per_minute(limit, floor, reasons[0], edge("leases"), reasons[1])


def handshakes(of):
    name = "tls_handshakes_total"
    bad = labelled(of, name, "outcome", "failed", "crowded", "late", "plain", "tls")
    # Probes that only connect are no handshakes.
    gone = labelled(of, name, "outcome", "gone")
    return Burn(0.25, 0.2, share(bad, of(name, 'outcome="done"'), gone)).cases()


def insecure():
    both = []
    for of in core, edge:
        both += held(of("insecure"), 0, 1, 900)
    return both


def no_edge():
    one, two = edge("link_up"), edge("link_up").replace("e1", "e2")
    some = Case("one of two is linked", {one: level((HOUR, 0)), two: level((HOUR, 1))}, HOUR - 10, False)
    return [*held(one, 1, 0, 60), *absent(one, 60), some]


def full():
    most = edge("connections_max")
    return [
        Case(case.name, {**case.series, most: level((2 * HOUR, 1000))}, case.seconds, case.fires)
        for case in held(edge("connections"), 100, 900, 300, calm=(840,))
    ]


STORE = "store_seconds_count"
ACCEPTED = edge("accepts_total", 'outcome="accepted"')
FAULTS = ("unavailable", "unsettled", "unknown", "half_done", "read_only")


def store_fails(limit, floor, short, long):
    bad = labelled(core, STORE, "outcome", *FAULTS)
    return Burn(limit, floor, share(bad, core(STORE, 'outcome="ok"')), short, long).cases()


def joins_shed():
    bad = labelled(core, "joins_shed_total", "reason", "rate", "waiting", "slow")
    others = labelled(core, "transitions_total", "kind", "updated", "ended")
    return Burn(0.17, 0.5, beside(bad, core("transitions_total", 'kind="joined"'), others)).cases()


def store_slow():
    bucket, ok, failed = "store_seconds_bucket", 'op="renew",outcome="ok"', 'op="renew",outcome="unavailable"'
    # Faults say nothing of it, in whichever bucket, nor do reads that wait for something to read.
    others = [core(STORE, failed), core(bucket, f'{failed},le="0.1"'), core(bucket, f'{ok},le="1"')]
    others += [core(STORE, 'op="tail",outcome="ok"'), core(bucket, 'op="tail",outcome="ok",le="0.1"')]
    # The floor is under all answers, one a second.
    floor = 1.15 * 0.05
    return Burn(0.05, floor, slower(core(bucket, f'{ok},le="0.1"'), core(STORE, ok), others)).cases()


def link_flaps():
    links, up = edge("links_total"), edge("link_up")
    linked = [Case(case.name, {**case.series, up: level((6 * HOUR, 1))}, case.seconds, case.fires) for case in increase(links, 10)]
    often = counter((HOUR, 0.1))
    return [
        *linked,
        Case("until a moment ago", {links: often, up: level((HOUR - 150, 1), (160, 0))}, HOUR, True),
        Case("no link at all", {links: often, up: level((HOUR - 400, 1), (410, 0))}, HOUR, False),
    ]


def tokens_refused():
    bad = labelled(edge, "token_refusals_total", "reason", "unknown_key", "signature", "algorithm")
    # Who is turned away has brought no token.
    others = labelled(edge, "token_refusals_total", "reason", "expired") + labelled(edge, "accepts_total", "outcome", "rate")
    return Burn(0.2, 0.1, beside(bad, ACCEPTED, others)).cases()


def turned_away():
    bad = labelled(edge, "accepts_total", "outcome", "full", "address", "rate", "tokens")
    return Burn(0.144, 1, share(bad, ACCEPTED)).cases()


def certificate(days):
    series = 'presence_tls_certificate_ends_seconds{instance="e1",shown_to="clients"}'
    return [
        Case("ends soon", {series: level((HOUR, HOUR + days * 0.95 * 86400))}, HOUR - 10, True),
        Case("ends later", {series: level((HOUR, HOUR + days * 1.05 * 86400))}, HOUR - 10, False),
    ]


ENDINGS = ("left", "evicted", "superseded", "token_expired", "token_revoked")
CASES = {
    "PresenceGhosts": held(core("oldest_overdue_seconds"), 0, 5.5, 30, calm=(4.5,)),
    "PresenceAuditorSilent": still(core("audit_pages_total")),
    "PresenceEndedBySilence": endings(0.01, 0.1, ("lease_expired", "edge_lost", "region_lost"), (*ENDINGS, "connection_lost")),
    "PresenceFlapping": endings(0.5, 0.2, ("connection_lost", "lease_expired", "edge_lost"), ENDINGS),
    "PresenceAuditMended": increase(
        core("audit_findings_total", 'outcome="mended"'), 0, core("audit_findings_total", 'outcome="found"')
    ),
    "PresenceCopiesDiffer": increase(edge("resyncs_total", 'cause="digest"'), 0, edge("resyncs_total", 'cause="client"')),
    "PresenceRevisionGaps": increase(edge("revision_gaps_total"), 10),
    "PresenceNoEdge": no_edge(),
    "PresenceLinkDown": held(edge("link_up"), 1, 0, 60),
    "PresenceRegionLag": held(core("region_lag_seconds", 'peer="there"'), 1, 11, 60, calm=(0, 9)),
    "PresencePeerRefused": [
        case
        for kind in ("refused", "room")
        for case in increase(
            core("peer_failures_total", f'peer="there",kind="{kind}"'),
            0,
            core("peer_failures_total", 'peer="there",kind="unreachable"'),
        )
    ],
    "PresenceLinkFlaps": link_flaps(),
    "PresenceRenewalsRepeated": per_minute(0.2, 0.5, [edge("renewals_repeated_total")], edge("leases")),
    "PresenceUnknownLeases": per_minute(0.01, 0.1, [edge("unknown_leases_total")], edge("leases")),
    "PresenceEdgeFull": full(),
    "PresenceStorm": per_minute(
        0.5, 20, [ACCEPTED], edge("connections"), labelled(edge, "accepts_total", "outcome", "full", "late"), 60, 300
    ),
    "PresenceTurnedAway": turned_away(),
    "PresenceSlowReceivers": per_minute(0.01, 0.1, [edge("slow_total", 'action="shed"')], edge("connections")),
    "PresenceFrozen": increase(edge("freezes_total"), 2),
    "PresenceTokensRefused": tokens_refused(),
    "PresenceEdgeHandshakesFail": handshakes(edge),
    "PresenceNoCore": absent(core("audit_pages_total"), 120),
    "PresenceJoinsShed": joins_shed(),
    "PresenceCoreHandshakesFail": handshakes(core),
    "PresenceCertificateEnds": certificate(7),
    "PresenceInsecure": insecure(),
    "PresenceStoreUnreachable": [
        Case(
            case.name,
            {**case.series, core(STORE, 'outcome="unavailable"'): counter((2 * HOUR, 3))},
            case.seconds, case.fires,
        )
        for case in still(core(STORE, 'outcome="ok"'))
    ],
    "PresenceStoreFails": store_fails(0.0144, 0.1, 300, HOUR),
    "PresenceStoreFailsSlowly": store_fails(0.006, 0.01, HOUR / 2, 6 * HOUR),
    "PresenceStoreSlow": store_slow(),
}  # fmt: skip
