//! Rights that a writer of a role does not hold.
//!
//! Nobody may give rights that they do not have. A rule is compared whole first: one held rule
//! often covers all of it. Otherwise it is split into single rights (one verb, group, resource and
//! name, or one verb and path), and each must be covered by one held rule.

use crate::rule::{Rule, covers_path, has};
use setpoint_object::field::quote;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// The most comparisons of texts for one role: some milliseconds. An ordinary role needs a few
/// thousand.
pub const STEPS_MAX: usize = 1_000_000;

/// Why rights are not granted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// These rights are not held: one line for each, sorted, as Kubernetes writes them.
    Rights(String),
    /// There are more single rights than can be compared ([`STEPS_MAX`]).
    TooMany,
}

/// The rights of `rules` that `held` does not cover; `None` if it covers all of them.
pub fn missing<'r>(rules: impl IntoIterator<Item = &'r Rule>, held: &[&Rule]) -> Option<Missing> {
    let mut steps = 0;
    // By groups, resources, names and paths, the verbs in the order of the rules, as often as they
    // are there.
    let mut missing: BTreeMap<Right<'_>, Vec<&str>> = BTreeMap::new();
    for rule in rules {
        if held.iter().any(|held| covers_whole(held, rule)) {
            continue;
        }
        for right in rights(rule) {
            for verb in &rule.verbs {
                let is_held = held.iter().any(|held| covers(held, verb, &right, &mut steps));
                steps += 1;
                if steps > STEPS_MAX {
                    return Some(Missing::TooMany);
                }
                if !is_held {
                    missing.entry(right).or_default().push(verb);
                }
            }
        }
    }
    if missing.is_empty() {
        return None;
    }
    let mut lines = Vec::new();
    for (right, verbs) in &missing {
        match right {
            // The verbs of a path are not joined.
            Right::Path(_) => lines.extend(verbs.chunks(1).map(|verb| right.line(verb))),
            Right::Resource { .. } => lines.push(right.line(verbs)),
        }
    }
    lines.sort();
    lines.dedup();
    Some(Missing::Rights(lines.join("\n")))
}

/// The single rights of a rule that `held` does not cover, as rules. Linear in their number and in
/// `held`: for rules of the server itself.
pub fn missing_rules(rule: &Rule, held: &[&Rule]) -> Vec<Rule> {
    let mut missing = Vec::new();
    for right in rights(rule) {
        for verb in &rule.verbs {
            if !held.iter().any(|held| covers(held, verb, &right, &mut 0)) {
                missing.push(right.rule(verb));
            }
        }
    }
    missing
}

/// One right without its verb.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Right<'r> {
    Resource { group: &'r str, resource: &'r str, name: Option<&'r str> },
    Path(&'r str),
}

/// The rights of a rule, one by one.
fn rights(rule: &Rule) -> impl Iterator<Item = Right<'_>> {
    let names = match &rule.resource_names[..] {
        [] => either(None),
        names => either(Some(names)),
    };
    let resources = rule.api_groups.iter().flat_map(move |group| {
        let names = names.clone();
        rule.resources.iter().flat_map(move |resource| {
            names.clone().map(move |name| Right::Resource { group, resource, name })
        })
    });
    resources.chain(rule.non_resource_urls.iter().map(|url| Right::Path(url)))
}

/// Each name, or once no name.
fn either(names: Option<&[String]>) -> impl Iterator<Item = Option<&str>> + Clone {
    let none = names.is_none().then_some(None);
    names.into_iter().flatten().map(|name| Some(name.as_str())).chain(none)
}

fn covers(held: &Rule, verb: &str, right: &Right<'_>, steps: &mut usize) -> bool {
    *steps = steps.saturating_add(held.verbs.len());
    if *steps > STEPS_MAX || !has(&held.verbs, verb) {
        return false;
    }
    *steps = steps.saturating_add(match right {
        Right::Resource { .. } => {
            held.api_groups.len() + held.resources.len() + held.resource_names.len()
        }
        Right::Path(_) => held.non_resource_urls.len(),
    });
    match *right {
        Right::Resource { group, resource, name } => {
            has(&held.api_groups, group)
                && held.resources.iter().any(|own| covers_entry(own, resource))
                && (held.resource_names.is_empty()
                    || name.is_some_and(|name| held.resource_names.iter().any(|own| own == name)))
        }
        Right::Path(url) => held.non_resource_urls.iter().any(|own| covers_path(own, url)),
    }
}

/// Whether a resource of a held rule covers one of a new rule, which may have stars.
fn covers_entry(held: &str, new: &str) -> bool {
    let of_any = |subresource| held.strip_prefix("*/") == Some(subresource);
    held == "*"
        || held == new
        || new.split_once('/').is_some_and(|(_, subresource)| of_any(subresource))
}

/// Whether one held rule covers all of a rule; linear in both by sets.
fn covers_whole(held: &Rule, rule: &Rule) -> bool {
    let is_subset = |new: &[String], held: &[String]| {
        let held: BTreeSet<&str> = held.iter().map(String::as_str).collect();
        new.iter().all(|entry| held.contains(entry.as_str()))
    };
    let all = |held: &[String], new: &[String]| {
        held.iter().any(|entry| entry == "*") || is_subset(new, held)
    };
    let (held_names, names) = (&held.resource_names, &rule.resource_names);
    all(&held.verbs, &rule.verbs)
        && all(&held.api_groups, &rule.api_groups)
        && all(&held.resources, &rule.resources)
        && all(&held.non_resource_urls, &rule.non_resource_urls)
        && (held_names.is_empty()
            || rule.resources.is_empty()
            || !names.is_empty() && is_subset(names, held_names))
}

impl Right<'_> {
    fn rule(&self, verb: &str) -> Rule {
        let mut rule = Rule { verbs: vec![verb.to_owned()], ..Rule::default() };
        match *self {
            Right::Resource { group, resource, name } => {
                rule.api_groups.push(group.to_owned());
                rule.resources.push(resource.to_owned());
                rule.resource_names.extend(name.map(str::to_owned));
            }
            Right::Path(url) => rule.non_resource_urls.push(url.to_owned()),
        }
        rule
    }

    fn line(&self, verbs: &[&str]) -> String {
        let verbs: Vec<String> = verbs.iter().map(|verb| quote(verb)).collect();
        let mut line = match self {
            Right::Path(url) => format!("{{NonResourceURLs:[{}]", quote(url)),
            Right::Resource { group, resource, name } => {
                let (group, resource) = (quote(group), quote(resource));
                let mut line = format!("{{APIGroups:[{group}], Resources:[{resource}]");
                if let Some(name) = name {
                    // Writing to a `String` cannot fail.
                    _ = write!(line, ", ResourceNames:[{}]", quote(name));
                }
                line
            }
        };
        _ = write!(line, ", Verbs:[{}]}}", verbs.join(" "));
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::Deserialize as _;
    use serde_json::{Value, json};

    fn rules(rules: Value) -> Vec<Rule> {
        let rules = rules.as_array().unwrap().iter();
        rules.map(|rule| Rule::deserialize(rule).unwrap()).collect()
    }

    fn compare(new: Value, held: Value) -> Option<Missing> {
        let held = rules(held);
        missing(&rules(new), &held.iter().collect::<Vec<_>>())
    }

    #[test]
    fn missing_rights_are_listed_by_resource() {
        let new = json!([
            {"verbs": ["list", "get", "list"], "apiGroups": [""], "resources": ["secrets", "pods"]},
            {"verbs": ["*"], "apiGroups": ["apps"], "resources": ["deployments"], "resourceNames": ["a"]},
            {"verbs": ["get", "delete"], "nonResourceURLs": ["/metrics", "/logs"]},
        ]);
        let held = json!([
            {"verbs": ["get"], "apiGroups": ["*"], "resources": ["pods"]},
            {"verbs": ["get"], "nonResourceURLs": ["/l*"]},
        ]);
        let expected = [
            r#"{APIGroups:[""], Resources:["pods"], Verbs:["list" "list"]}"#,
            r#"{APIGroups:[""], Resources:["secrets"], Verbs:["list" "get" "list"]}"#,
            r#"{APIGroups:["apps"], Resources:["deployments"], ResourceNames:["a"], Verbs:["*"]}"#,
            r#"{NonResourceURLs:["/logs"], Verbs:["delete"]}"#,
            r#"{NonResourceURLs:["/metrics"], Verbs:["delete"]}"#,
            r#"{NonResourceURLs:["/metrics"], Verbs:["get"]}"#,
        ];
        assert_eq!(compare(new, held), Some(Missing::Rights(expected.join("\n"))));
    }

    #[test]
    fn a_star_is_covered_by_a_star_only() {
        let all = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
        assert_eq!(compare(all.clone(), all.clone()), None);
        let verbs = json!([{"verbs": ["get", "list"], "apiGroups": ["*"], "resources": ["*"]}]);
        assert!(compare(all.clone(), verbs.clone()).is_some());
        assert_eq!(compare(verbs, all.clone()), None);
        let sub = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["*/scale"]}]);
        assert_eq!(compare(sub.clone(), all.clone()), None);
        assert!(compare(all, sub.clone()).is_some());
        let one = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods/scale"]}]);
        assert_eq!(compare(one.clone(), sub.clone()), None);
        assert!(compare(sub, one).is_some());
    }

    #[test]
    fn a_named_right_does_not_cover_all_names() {
        let named = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}]);
        let every = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
        assert_eq!(compare(named.clone(), every.clone()), None);
        assert!(compare(every, named).is_some());
    }

    #[test]
    fn a_rule_of_too_many_rights_is_not_compared() {
        let many = |prefix: &str| (0..200).map(|n| format!("{prefix}{n}")).collect::<Vec<_>>();
        let new = json!([{
            "verbs": many("v"), "apiGroups": many("g"), "resources": many("r"),
            "resourceNames": many("n"),
        }]);
        assert_eq!(compare(new.clone(), json!([])), Some(Missing::TooMany));
        assert_eq!(compare(new.clone(), new), None);
    }

    fn any_rules() -> impl Strategy<Value = Vec<Rule>> {
        let words = |words: &'static [&'static str]| {
            prop::collection::vec(prop::sample::select(words).prop_map(str::to_owned), 0..3)
        };
        let rule = (
            words(&["get", "list", "*"]),
            words(&["", "apps", "*"]),
            words(&["pods", "pods/log", "*/log", "*"]),
            words(&["a", "b"]),
        );
        let rule = rule.prop_map(|(verbs, api_groups, resources, resource_names)| Rule {
            verbs,
            api_groups,
            resources,
            resource_names,
            ..Rule::default()
        });
        prop::collection::vec(rule, 0..4)
    }

    proptest! {
        /// Covered rights allow nothing that the held ones do not allow.
        #[test]
        fn covered_rules_allow_no_more(new in any_rules(), held in any_rules()) {
            let covered = missing(&new, &held.iter().collect::<Vec<_>>()).is_none();
            for verb in ["get", "list", "watch"] {
                for group in ["", "apps", "other"] {
                    for (resource, subresource) in [("pods", ""), ("pods", "log"), ("x", "log")] {
                        for name in ["", "a", "b", "c"] {
                            let request = crate::Request { verb, group, resource, subresource, name, path: None };
                            let allows = |rules: &[Rule]| rules.iter().any(|rule| rule.allows(&request));
                            prop_assert!(!covered || !allows(&new) || allows(&held), "{:?}", request);
                        }
                    }
                }
            }
        }

        #[test]
        fn everything_covers_itself(rules in any_rules()) {
            prop_assert_eq!(missing(&rules, &rules.iter().collect::<Vec<_>>()), None);
        }
    }
}
