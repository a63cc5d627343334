//! Spreading of pods without constraints.

use super::*;
use crate::crowd::ZONE;
use crate::pod::{Owner, OwnerKind};
use setpoint_object::label::Selector;

fn zoned(name: &str, zone: &str) -> Value {
    let mut node = node(name, "32");
    node["metadata"]["labels"][ZONE] = zone.into();
    node
}

/// Four nodes in three zones.
fn cluster() -> Cluster {
    Cluster::new(&[zoned("n0", "a"), zoned("n1", "b"), zoned("n2", "c"), zoned("n3", "a")])
}

fn by_zone(placed: &[String]) -> [usize; 3] {
    let of = |nodes: &[&str]| placed.iter().filter(|node| nodes.contains(&node.as_str())).count();
    [of(&["n0", "n3"]), of(&["n1"]), of(&["n2"])]
}

#[test]
fn pods_of_a_service_prefer_zones_and_nodes_with_fewer_of_them() {
    let mut cluster = cluster();
    let service = json!({"spec": {"selector": {"app": "web"}}});
    cluster.state.view.put_service(&Request::new("default", "web"), Some(&service));
    let elsewhere = json!({"spec": {"selector": {"app": "web", "tier": "x"}}});
    cluster.state.view.put_service(&Request::new("other", "web"), Some(&elsewhere));
    // Two labels of one selection: two crowds.
    let placed: Vec<String> = (0..12)
        .map(|n| cluster.schedule(json!({"app": "web", "half": (n % 2).to_string()}), json!({})))
        .collect();
    let zones = by_zone(&placed);
    assert!(zones.iter().all(|n| (3..=5).contains(n)), "{zones:?}");
    // Another node's zone, which a selector of nodes leaves, does not count.
    let only = json!({"nodeSelector": {"kubernetes.io/hostname": "n0"}});
    assert_eq!(cluster.schedule(json!({"app": "web"}), only), "n0");
}

#[test]
fn pods_of_an_owner_prefer_zones_with_fewer_of_them_and_others_do_not() {
    let spread = |is_owned: bool| {
        let mut cluster = cluster();
        let key = Request::new("default", "rs");
        let owner = Owner { kind: OwnerKind::ReplicaSet, key };
        let selector = Selector::from_object(&json!({"matchLabels": {"app": "web"}})).unwrap();
        cluster.state.view.put_owner(owner.clone(), selector.filter(|_| is_owned));
        let placed: Vec<String> = (0..20)
            .map(|_| {
                let spec = json!({"containers": [{"name": "c"}]});
                let mut pod = cluster.pod("", json!({"app": "web"}), spec);
                pod.owner = Some(owner.clone());
                cluster.state.put_pod(pod.clone(), "default-scheduler");
                cluster.decide_text(&pod)
            })
            .collect();
        by_zone(&placed)
    };
    let owned = spread(true);
    assert!(owned.iter().max().unwrap() - owned.iter().min().unwrap() <= 3, "{owned:?}");
    // By what is requested only, each node gets the same.
    let unowned = spread(false);
    assert!(unowned[0] >= 9, "{unowned:?}");
}

mod property {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Put { pod: usize, node: usize, app: u8, is_deleting: bool },
        Remove { pod: usize },
        Zone { node: usize, zone: Option<u8> },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..6_usize, 0..3_usize, 0..3_u8, prop::bool::weighted(0.2)).prop_map(
                |(pod, node, app, is_deleting)| Step::Put { pod, node, app, is_deleting }
            ),
            1 => (0..6_usize).prop_map(|pod| Step::Remove { pod }),
            2 => (0..3_usize, prop::option::of(0..2_u8))
                .prop_map(|(node, zone)| Step::Zone { node, zone }),
        ]
    }

    proptest! {
        /// Counting crowds gives what counting pods gives, however often pods and nodes change.
        #[test]
        fn crowds_are_the_pods_that_are_there(steps in prop::collection::vec(step(), 1..60)) {
            let mut state = State::new(SmallRng::seed_from_u64(1));
            for step in steps {
                match step {
                    Step::Put { pod, node, app, is_deleting } => {
                        let mut value = json!({
                            "metadata": {"name": format!("p{pod}"), "namespace": "default",
                                "uid": format!("u{pod}"), "labels": {"app": app.to_string()}},
                            "spec": {"nodeName": format!("n{node}")},
                        });
                        if is_deleting {
                            value["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
                        }
                        state.put_pod(Pod::read(&value, None), "default-scheduler");
                    }
                    Step::Remove { pod } => {
                        state.remove_pod(&Request::new("default", format!("p{pod}")));
                    }
                    Step::Zone { node, zone } => {
                        let name = format!("n{node}");
                        let labels = zone.map(|zone| json!({ZONE: zone.to_string()}));
                        let value = json!({"metadata": {"name": name, "labels": labels}});
                        state.put_node(&name.as_str().into(), Some(Node::read(&value)));
                    }
                }
                let view = &state.view;
                let mut expected: BTreeMap<(String, String), i64> = BTreeMap::new();
                let mut zones = BTreeMap::new();
                for (name, info) in &view.nodes {
                    let zone = info.node.as_ref().and_then(|node| node.labels.get(ZONE)).cloned();
                    if let Some(zone) = &zone {
                        *zones.entry(zone.clone()).or_insert(0) += 1;
                    }
                    for pod in info.pods.values().filter(|pod| !pod.is_deleting) {
                        let app = pod.labels["app"].clone();
                        *expected.entry((app.clone(), name.to_string())).or_default() += 1;
                        if let Some(zone) = &zone {
                            *expected.entry((app, format!("zone {zone}"))).or_default() += 1;
                        }
                    }
                }
                let mut found: BTreeMap<(String, String), i64> = BTreeMap::new();
                for (labels, crowd) in view.crowds.after(&"default".into(), None) {
                    for (node, n) in &crowd.nodes {
                        found.insert((labels["app"].clone(), node.to_string()), *n);
                    }
                    for (zone, n) in &crowd.zones {
                        found.insert((labels["app"].clone(), format!("zone {zone}")), *n);
                    }
                }
                prop_assert_eq!(found, expected);
                let known: BTreeMap<String, usize> =
                    view.zones.iter().map(|(zone, n)| (zone.to_string(), *n)).collect();
                prop_assert_eq!(known, zones);
            }
        }
    }
}
