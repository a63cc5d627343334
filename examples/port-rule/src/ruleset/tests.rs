use super::*;
use crate::api::Ports;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// Rules as users may write them. Few ports and addresses, so that ranges often meet.
pub(crate) fn specs() -> impl Strategy<Value = PortRuleSpec> {
    let ports = (1..40_u16, 0..4_u16)
        .prop_map(|(port, more)| Ports { port, end_port: (more > 0).then(|| port + more - 1) });
    let peers = vec![
        "10.0.0.0/8",
        "10.1.0.0/16",
        "10.1.2.0/24",
        "10.1.3.0/24",
        "10.1.4.0/24",
        "10.9.9.9/32",
        "0.0.0.0/0",
        "255.255.255.255/32",
        "fd00::/8",
        "fd00::/64",
        "fd00:0:0:1::/64",
        "::1/128",
        "::/0",
    ];
    let peers = peers.into_iter().map(str::to_owned).collect::<Vec<_>>();
    (
        select(vec![Verdict::Allow, Verdict::Drop, Verdict::Reject]),
        select(vec![Direction::In, Direction::Out]),
        select(vec![Protocol::Tcp, Protocol::Udp, Protocol::Sctp]),
        prop::collection::vec(ports, 1..24),
        subsequence(peers, 0..6).prop_shuffle(),
    )
        .prop_map(|(action, direction, protocol, ports, peers)| PortRuleSpec {
            action,
            direction,
            protocol,
            ports,
            peers,
            ..PortRuleSpec::default()
        })
}

/// Some rules, in no order.
pub(crate) fn rulesets() -> impl Strategy<Value = Vec<Rule>> {
    prop::collection::vec(specs(), 0..6).prop_map(|specs| {
        let named = |(n, spec)| Rule::of(&format!("rule-{n}"), spec).unwrap();
        specs.iter().enumerate().map(named).collect()
    })
}

fn spec(ports: &[(u16, Option<u16>)], peers: &[&str]) -> PortRuleSpec {
    let ports = ports.iter().map(|(port, end_port)| Ports { port: *port, end_port: *end_port });
    let peers = peers.iter().map(|peer| (*peer).to_owned()).collect();
    PortRuleSpec { ports: ports.collect(), peers, ..PortRuleSpec::default() }
}

#[test]
fn ports_that_overlap_or_touch_are_one_range() {
    let spec =
        spec(&[(90, Some(95)), (80, None), (96, None), (81, Some(82)), (443, Some(443))], &[]);
    let ports: Vec<String> = Rule::of("web", &spec)
        .unwrap()
        .ports
        .iter()
        .map(|span| format!("{}-{}", span.first, span.last))
        .collect();
    assert_eq!(ports, ["80-82", "90-96", "443-443"]);
}

#[test]
fn what_is_no_rule_is_refused_with_the_value() {
    let refused = |spec| Rule::of("web", &spec).unwrap_err().to_string();
    assert_eq!(refused(spec(&[], &[])), "the rule has no port");
    assert_eq!(
        refused(spec(&[(0, None)], &[])),
        "the ports 0 to 0 are no range between 1 and 65535"
    );
    assert_eq!(
        refused(spec(&[(9, Some(8))], &[])),
        "the ports 9 to 8 are no range between 1 and 65535"
    );
    for text in
        ["10.0.0.1/8", "10.0.0.0", "10.0.0.0/33", "10.0.0.0/08", "fd00::1/8", "::/129", "all"]
    {
        let message = format!("{text:?} is no address range such as 10.0.0.0/8 or fd00::/8");
        assert_eq!(refused(spec(&[(80, None)], &[text])), message);
    }
    assert!(Rule::of("web", &spec(&[(80, None)], &["0.0.0.0/0", "::/0", "::1/128"])).is_ok());
}

#[test]
fn rule_with_peers_of_both_families_is_two_lines() {
    let spec = spec(&[(80, None)], &["fd00::/8", "10.0.1.0/24", "10.0.0.0/24", "10.0.0.7/32"]);
    let lines = Ruleset::of([Rule::of("web", &spec).unwrap()]).lines();
    let peers: Vec<Peers> = lines.into_iter().map(|line| line.peers).collect();
    let v4 = Span { first: "10.0.0.0".parse().unwrap(), last: "10.0.1.255".parse().unwrap() };
    let last = "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff".parse().unwrap();
    let v6 = Span { first: "fd00::".parse().unwrap(), last };
    assert_eq!(peers, [Peers::V4(vec![v4]), Peers::V6(vec![v6])]);
}

proptest! {
    #[test]
    fn order_of_rules_ports_and_peers_does_not_matter(
        rules in rulesets(),
        seed in prop::collection::vec(specs(), 1),
    ) {
        let mut reversed = rules.clone();
        reversed.reverse();
        prop_assert_eq!(Ruleset::of(rules).lines(), Ruleset::of(reversed).lines());
        let spec = &seed[0];
        let mut turned = spec.clone();
        turned.ports.reverse();
        turned.peers.reverse();
        turned.ports.push(spec.ports[0]);
        prop_assert_eq!(Rule::of("a", spec).unwrap(), Rule::of("a", &turned).unwrap());
    }

    #[test]
    fn allow_comes_first_in_each_direction(rules in rulesets()) {
        for direction in [Direction::In, Direction::Out] {
            let lines = Ruleset::of(rules.clone()).lines();
            let of: Vec<bool> = lines
                .iter()
                .filter(|line| line.direction == direction)
                .map(|line| line.verdict == Verdict::Allow)
                .collect();
            prop_assert!(of.is_sorted_by(|a, b| a >= b), "{:?}", of);
        }
    }

    #[test]
    fn line_has_exactly_the_ports_and_addresses_of_its_rule(spec in specs(), port in 1..60_u16) {
        let in_spec = spec.ports.iter().any(|ports| {
            (ports.port..=ports.end_port.unwrap_or(ports.port)).contains(&port)
        });
        let rule = Rule::of("a", &spec).unwrap();
        let within = |span: &Span<u16>| (span.first..=span.last).contains(&port);
        prop_assert_eq!(rule.ports.iter().any(within), in_spec);
        for pair in rule.ports.windows(2) {
            prop_assert!(pair[0].last + 1 < pair[1].first, "a gap is between ranges");
        }
        let count = |lines: Vec<Line>| lines.iter().map(|line| match &line.peers {
            Peers::All => 0,
            Peers::V4(spans) => spans.len(),
            Peers::V6(spans) => spans.len(),
        }).sum::<usize>();
        prop_assert!(count(Ruleset::of([rule]).lines()) <= spec.peers.len());
    }
}
