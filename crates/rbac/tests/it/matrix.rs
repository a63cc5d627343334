//! Generated decisions: subjects, verbs, resources, names, paths, bindings, aggregated roles.
//!
//! `RBAC_DECISIONS=10000000 cargo test -p setpoint-rbac --test it` decides more of them.

use crate::reference::{Cluster, Question, rules_of};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};
use setpoint_rbac::{Index, Request, Subject};

/// The number of decisions without `RBAC_DECISIONS`.
const DECISIONS: usize = 1_000_000;
/// Decisions in one cluster.
const PER_CLUSTER: usize = 250;

const NAMESPACES: [&str; 3] = ["a", "b", "system"];
const ROLES: [&str; 6] = ["r0", "r1", "r2", "r3", "all-x", "all-y"];
const VERBS: [&str; 6] = ["get", "list", "create", "delete", "deletecollection", "GET"];
const GROUPS: [&str; 3] = ["", "apps", "x.example.com"];
const RESOURCES: [&str; 3] = ["pods", "deployments", "secrets"];
const SUBRESOURCES: [&str; 4] = ["", "", "status", "log"];
const NAMES: [&str; 4] = ["", "one", "two", "*"];
const PATHS: [&str; 8] =
    ["/", "/apis", "/apis/", "/apis/apps", "/healthz", "/healthz/", "/HEALTHZ", "/metrics"];
const USERS: [&str; 6] = [
    "jane",
    "bob",
    "*",
    "system:serviceaccount:a:jane",
    "system:serviceaccount:b:jane",
    "system:serviceaccount:a:bob",
];
const TEAMS: [&str; 4] = ["devs", "ops", "jane", "*"];

fn some(list: &'static [&'static str]) -> impl Strategy<Value = Vec<&'static str>> {
    vec(select(list), 1..3)
}

fn rule() -> impl Strategy<Value = Value> {
    let resources = some(&[
        "pods",
        "deployments",
        "secrets",
        "*",
        "*",
        "pods/status",
        "pods/log",
        "*/status",
        "*/",
        "pods/*",
        "*/*",
    ]);
    let names = prop_oneof![2 => Just(Vec::new()), 1 => some(&["one", "two", "*", ""])];
    let of_resources = (
        some(&["get", "list", "create", "deletecollection", "*", "*"]),
        some(&["", "apps", "*", "*"]),
        resources,
        names,
    )
        .prop_map(|(verbs, groups, resources, names)| {
            let mut rule = json!({"verbs": verbs, "apiGroups": groups, "resources": resources});
            if !names.is_empty() {
                rule["resourceNames"] = names.into();
            }
            rule
        });
    let urls = some(&["/", "/apis", "/apis/*", "/healthz*", "*", "/metrics", "/a*b"]);
    let of_paths = (some(&["get", "*", "list"]), urls)
        .prop_map(|(verbs, urls)| json!({"verbs": verbs, "nonResourceURLs": urls}));
    prop_oneof![4 => of_resources, 1 => of_paths]
}

fn role() -> impl Strategy<Value = (String, String, Value)> {
    let home = select(vec!["", "", "a", "b"]);
    let label = select(vec!["x", "y", "z"]);
    (home, select(&ROLES[..]), vec(rule(), 0..4), label).prop_map(|(home, name, rules, label)| {
        let aggregates = name.strip_prefix("all-").filter(|_| home.is_empty());
        let role = json!({"rules": rules, "label": label, "aggregates": aggregates});
        (home.to_owned(), name.to_owned(), role)
    })
}

fn binding() -> impl Strategy<Value = (String, String, Value)> {
    let subject = prop_oneof![
        select(&USERS[..]).prop_map(|name| json!({"kind": "User", "name": name})),
        select(&TEAMS[..]).prop_map(|name| json!({"kind": "Group", "name": name})),
        (select(vec!["jane", "bob"]), select(vec!["a", "b"])).prop_map(
            |(name, own)| json!({"kind": "ServiceAccount", "name": name, "namespace": own})
        ),
    ];
    let home = select(vec!["", "a", "b"]);
    let name = select(vec!["b0", "b1", "b2", "b3", "b4", "b5", "b6"]);
    let kind = select(vec!["Role", "ClusterRole"]);
    (home, name, kind, select(&ROLES[..]), vec(subject, 1..5)).prop_map(
        |(home, name, kind, role, subjects)| {
            let kind = if home.is_empty() { "ClusterRole" } else { kind };
            let role = json!({"kind": kind, "name": role});
            let binding = json!({"roleRef": role, "subjects": subjects});
            (home.to_owned(), name.to_owned(), binding)
        },
    )
}

fn question() -> impl Strategy<Value = Question> {
    let subject = (select(&USERS[..]), vec(select(&TEAMS[..]), 0..3));
    let what = (select(&GROUPS[..]), select(&RESOURCES[..]), select(&SUBRESOURCES[..]));
    let path = prop_oneof![4 => Just(""), 1 => select(&PATHS[..])];
    let namespace = select(vec!["", NAMESPACES[0], NAMESPACES[1], NAMESPACES[2]]);
    (subject, namespace, select(&VERBS[..]), what, select(&NAMES[..]), path).prop_map(
        |((user, groups), namespace, verb, (group, resource, subresource), name, path)| {
            let of_resource =
                |text: &str| if path.is_empty() { text.to_owned() } else { String::new() };
            Question {
                user: user.to_owned(),
                groups: groups.into_iter().map(str::to_owned).collect(),
                namespace: of_resource(namespace),
                verb: verb.to_owned(),
                group: of_resource(group),
                resource: of_resource(resource),
                subresource: of_resource(subresource),
                name: of_resource(name),
                path: path.to_owned(),
            }
        },
    )
}

/// Puts objects into the index one after the other; some replace others, and some are deleted.
fn fill(
    index: &mut Index,
    roles: &[((String, String, Value), bool)],
    bindings: &[((String, String, Value), bool)],
) -> Cluster {
    let mut cluster = Cluster::default();
    for ((home, name, role), stays) in roles {
        cluster.roles.retain(|(own, other, _)| (own, other) != (home, name));
        index.put_role(home, name, role);
        match stays {
            true => cluster.roles.push((home.clone(), name.clone(), role.clone())),
            false => index.delete_role(home, name),
        }
    }
    for ((home, name, binding), stays) in bindings {
        cluster.bindings.retain(|(own, other, _)| (own, other) != (home, name));
        index.put_binding(home, name, binding);
        match stays {
            true => cluster.bindings.push((home.clone(), name.clone(), binding.clone())),
            false => index.delete_binding(home, name),
        }
    }
    // What the controller of aggregated roles does.
    for (home, name, role) in &cluster.roles {
        let Some(label) = role["aggregates"].as_str() else { continue };
        let sources = cluster.roles.iter().filter(|(own, _, source)| {
            own.is_empty() && source["aggregates"].is_null() && source["label"] == label
        });
        let rules: Vec<Value> = sources.flat_map(|(_, _, source)| rules_of(source)).collect();
        index.put_role(home, name, &json!({"rules": rules}));
    }
    cluster
}

#[test]
fn the_index_decides_as_the_reference() {
    let n = std::env::var("RBAC_DECISIONS").ok().map_or(DECISIONS, |n| n.parse().unwrap());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[13; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let cluster = (
        vec((role(), proptest::bool::weighted(0.9)), 4..24),
        vec((binding(), proptest::bool::weighted(0.9)), 2..20),
    );
    let questions = vec(question(), PER_CLUSTER);
    let (mut n_decided, mut n_allowed) = (0, 0);
    while n_decided < n {
        let (roles, bindings) = cluster.new_tree(&mut runner).unwrap().current();
        let mut index = Index::default();
        let cluster = fill(&mut index, &roles, &bindings);
        for question in questions.new_tree(&mut runner).unwrap().current() {
            let groups: Vec<&str> = question.groups.iter().map(String::as_str).collect();
            let subject = Subject { user: &question.user, groups: &groups };
            let request = Request {
                verb: &question.verb,
                group: &question.group,
                resource: &question.resource,
                subresource: &question.subresource,
                name: &question.name,
                path: question.resource.is_empty().then_some(&*question.path),
            };
            let verdict = index.decide(&subject, &question.namespace, &request);
            let expected = cluster.allows(&question);
            assert_eq!(verdict.allowed.is_some(), expected, "{question:#?} in {cluster:#?}");
            let held = index.rules(&subject, &question.namespace);
            let by_rules =
                held.iter().flat_map(|rules| rules.iter()).any(|rule| rule.allows(&request));
            assert_eq!(by_rules, expected, "the rules of {question:#?} in {cluster:#?}");
            n_decided += 1;
            n_allowed += usize::from(expected);
        }
    }
    // Decisions that are nearly all alike would show little.
    let share = n_allowed as f64 / n_decided as f64;
    assert!((0.02..0.9).contains(&share), "{n_allowed} of {n_decided} are allowed");
}
