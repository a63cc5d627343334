use super::*;
use crate::ruleset::tests::rulesets;
use expect_test::expect;
use proptest::prelude::*;

/// What `nft` lists after a script: its objects, without the commands.
fn listed(script: &Value) -> Value {
    let commands = script["nftables"].as_array().unwrap();
    let objects = commands.iter().skip(2).map(|command| command["add"].clone());
    let metainfo = json!({"metainfo": {"version": "1.0.6"}});
    json!({"nftables": std::iter::once(metainfo).chain(objects).collect::<Vec<_>>()})
}

fn rule(verdict: Verdict, peers: &[&str]) -> Rule {
    let ports = vec![crate::api::Ports { port: 80, end_port: None }];
    let peers = peers.iter().map(|peer| (*peer).to_owned()).collect();
    let spec = crate::api::PortRuleSpec { action: verdict, ports, peers, ..Default::default() };
    Rule::of("web", &spec).unwrap()
}

#[test]
fn script_replaces_the_table_in_one_transaction() {
    let script = script(&Ruleset::of([rule(Verdict::Drop, &["10.0.0.0/8"])]));
    let commands: Vec<String> =
        script["nftables"].as_array().unwrap().iter().map(Value::to_string).collect();
    expect![[r#"
        {"add":{"table":{"family":"inet","name":"port_rule"}}}
        {"delete":{"table":{"family":"inet","name":"port_rule"}}}
        {"add":{"table":{"family":"inet","name":"port_rule"}}}
        {"add":{"chain":{"family":"inet","hook":"input","name":"in","policy":"accept","prio":0,"table":"port_rule","type":"filter"}}}
        {"add":{"rule":{"chain":"in","expr":[{"match":{"left":{"meta":{"key":"iifname"}},"op":"==","right":"lo"}},{"accept":null}],"family":"inet","table":"port_rule"}}}
        {"add":{"rule":{"chain":"in","comment":"web","expr":[{"match":{"left":{"ct":{"key":"direction"}},"op":"==","right":"original"}},{"match":{"left":{"payload":{"field":"saddr","protocol":"ip"}},"op":"==","right":{"range":["10.0.0.0","10.255.255.255"]}}},{"match":{"left":{"payload":{"field":"dport","protocol":"tcp"}},"op":"==","right":80}},{"drop":null}],"family":"inet","table":"port_rule"}}}
        {"add":{"chain":{"family":"inet","hook":"output","name":"out","policy":"accept","prio":0,"table":"port_rule","type":"filter"}}}
        {"add":{"rule":{"chain":"out","expr":[{"match":{"left":{"meta":{"key":"oifname"}},"op":"==","right":"lo"}},{"accept":null}],"family":"inet","table":"port_rule"}}}"#]]
    .assert_eq(&commands.join("\n"));
}

#[test]
fn no_rules_are_no_table() {
    let script = script(&Ruleset::default());
    let commands = script["nftables"].as_array().unwrap();
    assert_eq!(commands.len(), 2);
    assert!(commands[1].get("delete").is_some());
}

#[test]
fn range_is_read_however_it_is_written() {
    let ruleset = Ruleset::of([rule(Verdict::Drop, &["10.0.0.0/8"])]);
    let text = listed(&script(&ruleset)).to_string();
    let range = r#"{"range":["10.0.0.0","10.255.255.255"]}"#;
    let prefix = r#"{"prefix":{"addr":"10.0.0.0","len":8}}"#;
    let set =
        r#"{"set":[{"range":["10.0.0.0","10.9.0.0"]},{"range":["10.9.0.1","10.255.255.255"]}]}"#;
    assert!(text.contains(range));
    for other in [prefix, set] {
        let listing: Value = serde_json::from_str(&text.replace(range, other)).unwrap();
        assert_eq!(read(&listing), Some(ruleset.lines()), "{other}");
    }
}

#[test]
fn table_that_somebody_changed_is_none_of_ours() {
    let ruleset = Ruleset::of([rule(Verdict::Reject, &[])]);
    let text = listed(&script(&ruleset)).to_string();
    assert_eq!(read(&serde_json::from_str(&text).unwrap()), Some(ruleset.lines()));
    for (what, by) in [
        (r#""policy":"accept""#, r#""policy":"drop""#),
        (r#""prio":0"#, r#""prio":10"#),
        (r#""right":"lo""#, r#""right":"eth0""#),
        (r#""right":"original""#, r#""right":"reply""#),
        (r#"{"name":"port_rule"}"#, r#"{"flags":["dormant"],"name":"port_rule"}"#),
        (r#""type":"tcp reset""#, r#""type":"icmp""#),
        (r#""op":"==","right":80"#, r#""op":"!=","right":80"#),
        (r#""field":"dport""#, r#""field":"sport""#),
    ] {
        let what = what.replace(r#"{"name""#, r#"{"family":"inet","name""#);
        assert!(text.contains(&what), "{what} in {text}");
        let by = by.replace(r#"{"flags""#, r#"{"family":"inet","flags""#);
        let listing: Value = serde_json::from_str(&text.replace(&what, &by)).unwrap();
        assert_eq!(read(&listing), None, "{by}");
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(rules in rulesets()) {
        let ruleset = Ruleset::of(rules);
        prop_assume!(!ruleset.is_empty());
        let script = script(&ruleset);
        prop_assert_eq!(read(&listed(&script)), Some(ruleset.lines()));
        prop_assert_eq!(self::script(&ruleset), script, "the same each time");
    }

    #[test]
    fn line_that_is_missing_doubled_or_moved_is_seen(rules in rulesets(), at in 0..1000_usize) {
        let ruleset = Ruleset::of(rules);
        prop_assume!(!ruleset.is_empty());
        let mut listing = listed(&script(&ruleset));
        let items = listing["nftables"].as_array_mut().unwrap();
        let lines: Vec<usize> =
            (0..items.len()).filter(|n| items[*n]["rule"].get("comment").is_some()).collect();
        let line = lines[at % lines.len()];
        if at % 2 == 0 {
            items.remove(line);
        } else {
            let line = items[line].clone();
            items.push(line);
        }
        prop_assert_ne!(read(&listing), Some(ruleset.lines()));
    }
}
