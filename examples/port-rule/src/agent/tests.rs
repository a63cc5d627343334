use super::*;
use crate::api::{PortRuleSpec, Ports};
use crate::backend::Unsupported;
use futures::future::BoxFuture;

/// A firewall without zones that is never asked for more.
struct NoZones;

impl Backend for NoZones {
    fn name(&self) -> &'static str {
        "none"
    }

    fn check(&self, rule: &Rule) -> Result<(), Unsupported> {
        let refused = Unsupported { backend: "none", what: "zones" };
        if rule.zone.is_some() { Err(refused) } else { Ok(()) }
    }

    fn holds<'a>(&'a self, _: &'a Ruleset) -> BoxFuture<'a, Result<bool, BackendError>> {
        Box::pin(async { Ok(true) })
    }

    fn replace<'a>(&'a self, _: &'a Ruleset) -> BoxFuture<'a, Result<(), BackendError>> {
        Box::pin(async { Ok(()) })
    }
}

fn rule(name: &str) -> PortRule {
    let ports = vec![Ports { port: 80, end_port: None }];
    let mut rule = PortRule::new(name, PortRuleSpec { ports, ..PortRuleSpec::default() });
    rule.metadata.uid = Some(format!("uid of {name}"));
    rule.metadata.generation = Some(1);
    rule.metadata.finalizers = Some(vec![FINALIZER.to_owned()]);
    rule
}

fn shown(reports: &[RuleReport]) -> Vec<String> {
    reports.iter().map(|report| format!("{} {:?}", report.name, report.state)).collect()
}

#[test]
fn rules_without_finalizer_or_being_deleted_are_not_applied() {
    let (mut new, mut old, mut zoned) = (rule("new"), rule("old"), rule("zoned"));
    new.metadata.finalizers = None;
    old.metadata.deletion_timestamp =
        serde_json::from_value(serde_json::json!("2026-01-01T00:00:00Z")).unwrap();
    zoned.spec.zone = Some("dmz".into());
    let plan = Plan::of([&rule("web"), &new, &old, &zoned].into_iter(), &NoZones);
    assert_eq!(shown(&plan.reports), ["web Applied", "zoned Refused"]);
    let names: Vec<&str> = plan.ruleset.rules().iter().map(|rule| &*rule.name).collect();
    assert_eq!(names, ["web"]);
}

#[test]
fn report_names_a_rule_before_it_is_applied_and_until_it_is_removed() {
    let before = Plan::of([&rule("a"), &rule("b")].into_iter(), &NoZones);
    let after = Plan::of([&rule("b"), &rule("c")].into_iter(), &NoZones);
    let announced = after.announced(&before.reports);
    assert_eq!(shown(&announced), ["a Applied", "b Applied", "c Pending"]);
    assert_eq!(after.announced(&announced), announced, "a crash here changes nothing");
}

#[test]
fn after_a_failure_the_report_names_what_may_be_in_the_firewall() {
    let before = Plan::of([&rule("a"), &rule("b")].into_iter(), &NoZones);
    let after = Plan::of([&rule("b"), &rule("c")].into_iter(), &NoZones);
    let failed = after.failed(&before.reports, "it is locked");
    assert_eq!(shown(&failed), ["a Applied", "b Failed", "c Failed"]);
    assert!(failed.iter().skip(1).all(|report| report.message == "it is locked"));
}

#[test]
fn rule_that_was_made_again_is_another_rule() {
    let before = Plan::of([&rule("a")].into_iter(), &NoZones);
    let mut again = rule("a");
    again.metadata.uid = Some("another".into());
    let after = Plan::of([&again].into_iter(), &NoZones);
    assert_eq!(shown(&after.announced(&before.reports)), ["a Pending", "a Applied"]);
}

#[test]
fn all_labels_of_a_selector_are_needed() {
    let labels = |pairs: &[(&str, &str)]| {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let mut rule = rule("a");
    assert!(selects(&rule, &labels(&[])));
    rule.spec.node_selector = labels(&[("role", "db"), ("zone", "a")]);
    assert!(selects(&rule, &labels(&[("role", "db"), ("zone", "a"), ("more", "x")])));
    assert!(!selects(&rule, &labels(&[("role", "db")])));
    assert!(!selects(&rule, &labels(&[("role", "db"), ("zone", "b")])));
}
