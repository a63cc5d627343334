use super::*;
use crate::api::{PortRuleSpec, Ports};
use crate::ruleset::tests::rulesets;
use expect_test::expect;
use proptest::prelude::*;

#[test]
fn rule_is_a_rich_rule_per_peer_and_range_in_its_zone() {
    let ports = vec![Ports { port: 80, end_port: None }, Ports { port: 90, end_port: Some(95) }];
    let closed = PortRuleSpec { action: Verdict::Drop, ports, ..PortRuleSpec::default() };
    let open = PortRuleSpec {
        action: Verdict::Allow,
        peers: vec!["10.0.0.0/8".into(), "fd00::/8".into()],
        ports: vec![Ports { port: 80, end_port: None }],
        zone: Some("dmz".into()),
        ..PortRuleSpec::default()
    };
    let rules = [Rule::of("closed", &closed).unwrap(), Rule::of("open", &open).unwrap()];
    let zones = rich_rules(&Ruleset::of(rules), "public");
    let lines = zones
        .iter()
        .flat_map(|(zone, rules)| rules.iter().map(move |rule| format!("{zone}: {rule}")));
    expect![[r#"
        dmz: rule priority="-14218" family="ipv4" source address="10.0.0.0/8" port port="80" protocol="tcp" accept
        dmz: rule priority="-14218" family="ipv6" source address="fd00::/8" port port="80" protocol="tcp" accept
        public: rule priority="-14217" port port="80" protocol="tcp" drop
        public: rule priority="-14217" port port="90-95" protocol="tcp" drop"#]]
    .assert_eq(&lines.collect::<Vec<_>>().join("\n"));
}

#[test]
fn rules_of_others_are_not_ours() {
    assert!(is_ours(r#"rule priority="-14217" port port="80" protocol="tcp" drop"#));
    assert!(!is_ours(r#"rule priority="-1421" port port="80" protocol="tcp" drop"#));
    assert!(!is_ours(r#"rule family="ipv4" port port="80" protocol="tcp" drop"#));
}

proptest! {
    #[test]
    fn differences_make_one_state_the_other(before in rulesets(), after in rulesets()) {
        let (before, after) = (Ruleset::of(before), Ruleset::of(after));
        let (present, desired) = (rich_rules(&before, "public"), rich_rules(&after, "public"));
        let mut zones = present.clone();
        for (zone, rule) in missing(&desired, &present) {
            zones.entry(zone.to_owned()).or_default().insert(rule.to_owned());
        }
        for (zone, rule) in missing(&present, &desired) {
            zones.get_mut(zone).unwrap().remove(rule);
        }
        zones.retain(|_, rules| !rules.is_empty());
        prop_assert_eq!(zones, desired);
    }
}
