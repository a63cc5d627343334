use super::*;
use crate::api::{PortRuleSpec, Ports};
use crate::ruleset::tests::rulesets;
use expect_test::expect;
use proptest::prelude::*;

/// A table without anything of ours, as `iptables-save` writes it.
const EMPTY: &str = "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n-A INPUT -p icmp -j ACCEPT\nCOMMIT\n";

/// What is in the table after a script: declarations, then rules.
fn restored(saved: &str, script: &str) -> String {
    let mut chains: Vec<String> =
        saved.lines().filter(|line| line.starts_with(':')).map(str::to_owned).collect();
    let mut rules: Vec<String> =
        saved.lines().filter(|line| line.starts_with("-A")).map(str::to_owned).collect();
    for line in script.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[0] {
            chain if chain.starts_with(':') => {
                chains.retain(|known| !known.starts_with(&format!("{chain} ")));
                chains.push(line.to_owned());
                rules.retain(|rule| !rule.starts_with(&format!("-A {} ", &chain[1..])));
            }
            "-A" => rules.push(line.to_owned()),
            "-I" => rules.insert(0, format!("-A {} {}", words[1], words[3..].join(" "))),
            "-D" => {
                let rule = format!("-A {}", words[1..].join(" "));
                let at = rules.iter().position(|known| *known == rule).unwrap();
                rules.remove(at);
            }
            "-X" => {
                let is_called =
                    rules.iter().any(|rule| rule.ends_with(&format!("-j {}", words[1])));
                assert!(!is_called, "a chain that is called cannot be deleted");
                chains.retain(|known| !known.starts_with(&format!(":{} ", words[1])));
            }
            _ => {}
        }
    }
    format!("*filter\n{}\n{}\nCOMMIT\n", chains.join("\n"), rules.join("\n"))
}

#[test]
fn script_fills_both_chains_and_calls_them() {
    let ports = vec![Ports { port: 80, end_port: None }, Ports { port: 90, end_port: Some(95) }];
    let peers = vec!["10.0.0.0/8".to_owned(), "fd00::/8".to_owned()];
    let spec = PortRuleSpec { action: Verdict::Drop, ports, peers, ..PortRuleSpec::default() };
    let ruleset = Ruleset::of([Rule::of("web", &spec).unwrap()]);
    expect![[r#"
        *filter
        :PORT-RULE-IN - [0:0]
        :PORT-RULE-OUT - [0:0]
        -A PORT-RULE-IN -i lo -j RETURN
        -A PORT-RULE-IN -p tcp -m conntrack --ctdir ORIGINAL -m iprange --src-range 10.0.0.0-10.255.255.255 -m multiport --dports 80,90:95 -m comment --comment web -j DROP
        -I INPUT 1 -j PORT-RULE-IN
        -A PORT-RULE-OUT -o lo -j RETURN
        -I OUTPUT 1 -j PORT-RULE-OUT
        COMMIT
    "#]]
    .assert_eq(&script(&ruleset, Family::V4, EMPTY));
}

#[test]
fn many_ports_are_several_lines() {
    let spans: Vec<Span<u16>> =
        (0..20).map(|n| Span { first: n * 10 + 1, last: n * 10 + 2 }).collect();
    let lists: Vec<usize> = ports(&spans).iter().map(|list| list.split(',').count()).collect();
    assert_eq!(lists, [7, 7, 6]);
}

proptest! {
    #[test]
    fn table_matches_after_its_script_and_only_then(
        before in rulesets(),
        after in rulesets(),
        n_calls in 0..3_usize,
    ) {
        let (before, after) = (Ruleset::of(before), Ruleset::of(after));
        for family in [Family::V4, Family::V6] {
            let mut saved = restored(EMPTY, &script(&before, family, EMPTY));
            prop_assert!(matches(&saved, &before, family));
            if !before.is_empty() {
                // Somebody added calls.
                let call = "-A INPUT -j PORT-RULE-IN\n";
                saved = saved.replace("COMMIT", &format!("{}COMMIT", call.repeat(n_calls)));
                prop_assert_eq!(matches(&saved, &before, family), n_calls == 0);
            }
            let saved = restored(&saved, &script(&after, family, &saved));
            prop_assert!(matches(&saved, &after, family), "{}", saved);
            prop_assert!(saved.contains("-A INPUT -p icmp -j ACCEPT"), "others' rules stay");
            let gone = restored(&saved, &script(&Ruleset::default(), family, &saved));
            prop_assert!(!gone.contains("PORT-RULE"), "{}", gone);
        }
    }
}
