//! Decisions about one pod: a small cluster in, a node or a message out.

use super::*;
use crate::labels::strings;
use crate::state::{Assumed, State};
use crate::view::Budget;
use rand::SeedableRng;
use serde_json::{Value, json};
use setpoint_runtime::Request;
use tokio::time::Instant;

mod claims;
mod company;
mod volumes;

/// A cluster of nodes and pods.
struct Cluster {
    state: State,
    n: usize,
}

impl Cluster {
    fn new(nodes: &[Value]) -> Self {
        let mut state = State::new(SmallRng::seed_from_u64(1));
        for node in nodes {
            let node = Node::read(node);
            state.put_node(&node.name.clone(), Some(node));
        }
        state.put_namespace("default".into(), Some(strings(&json!({"team": "a"}))));
        Self { state, n: 0 }
    }

    /// A pod on a node, or one that waits; `spec` and `labels` as in the API.
    fn pod(&mut self, node: &str, labels: Value, spec: Value) -> Pod {
        self.n += 1;
        let (name, uid) = (format!("p{}", self.n), format!("uid{}", self.n));
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "default", "uid": uid, "generation": 1, "labels": labels},
            "spec": spec,
        });
        pod["spec"]["schedulerName"] = "default-scheduler".into();
        if !node.is_empty() {
            pod["spec"]["nodeName"] = node.into();
        }
        let pod = Pod::read(&pod, None);
        self.state.put_pod(pod.clone(), "default-scheduler");
        pod
    }

    fn decide(&mut self, pod: &Pod) -> Verdict {
        let first = self.state.first.clone();
        let mut decision = Decision::new(self.state.view.clone(), pod.clone(), first);
        let mut rng = SmallRng::seed_from_u64(7);
        loop {
            if let Some(verdict) = decision.step(&mut rng) {
                self.state.first = decision.next_first();
                if let Verdict::Place(node) = &verdict {
                    let cycle = decision.into_cycle();
                    assert_eq!(self.state.assume(&cycle, node, Instant::now()), Assumed::Yes);
                }
                return verdict;
            }
        }
    }

    /// Where a new pod goes, or the message why it waits.
    fn schedule(&mut self, labels: Value, spec: Value) -> String {
        let pod = self.pod("", labels, spec);
        self.decide_text(&pod)
    }

    fn decide_text(&mut self, pod: &Pod) -> String {
        match self.decide(pod) {
            Verdict::Place(node) => node.to_string(),
            Verdict::Refuse(refused) => refused.message,
        }
    }
}

fn node(name: &str, cpu: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10", "example.com/gpu": "1"}},
    })
}

fn zoned(name: &str, zone: &str) -> Value {
    let mut node = node(name, "8");
    node["metadata"]["labels"]["zone"] = zone.into();
    node
}

fn needs(cpu: &str) -> Value {
    json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]})
}

const NO_VICTIMS: &str = "No preemption victims found for incoming pod";
const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";

#[test]
fn a_pod_that_does_not_fit_says_why() {
    let mut cluster = Cluster::new(&[node("a", "1"), node("b", "2")]);
    assert_eq!(cluster.schedule(json!({}), needs("1500m")), "b");
    assert_eq!(
        cluster.schedule(json!({}), needs("1500m")),
        format!(
            "0/2 nodes are available: 2 Insufficient cpu. {NO_CLAIMS}, preemption: 0/2 nodes are available: 1 {NO_VICTIMS}, 1 {NOT_HELPFUL}."
        )
    );
    assert_eq!(cluster.schedule(json!({}), needs("1")), "a");
    let gpu = json!({"containers": [{"resources": {"requests": {"example.com/gpu": "2"}}}]});
    assert_eq!(
        cluster.schedule(json!({}), gpu),
        format!(
            "0/2 nodes are available: 2 Insufficient example.com/gpu. {NO_CLAIMS}, preemption: 0/2 nodes are available: 2 {NOT_HELPFUL}."
        )
    );
    let mut none = Cluster::new(&[]);
    assert_eq!(none.schedule(json!({}), needs("1")), "no nodes available to schedule pods");
}

#[test]
fn selectors_taints_and_cordons_exclude_nodes() {
    let mut tainted = node("a", "4");
    tainted["spec"] = json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]});
    let mut cordoned = node("b", "4");
    cordoned["spec"] = json!({"unschedulable": true});
    let mut cluster = Cluster::new(&[tainted, cordoned, zoned("c", "z")]);
    let selected = json!({"nodeSelector": {"zone": "other"}});
    assert_eq!(
        cluster.schedule(json!({}), selected),
        format!(
            "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable. {NO_CLAIMS}, preemption: 0/3 nodes are available: 3 {NOT_HELPFUL}."
        )
    );
    let tolerant = json!({"nodeSelector": {"kubernetes.io/hostname": "a"},
        "tolerations": [{"key": "k", "operator": "Exists"}]});
    assert_eq!(cluster.schedule(json!({}), tolerant), "a");
    let daemon = json!({"nodeSelector": {"kubernetes.io/hostname": "b"},
        "tolerations": [{"operator": "Exists"}]});
    assert_eq!(cluster.schedule(json!({}), daemon), "b");
}

#[test]
fn host_ports_are_taken_once_per_node() {
    let mut cluster = Cluster::new(&[node("a", "4")]);
    let port = |ip: &str| json!({"containers": [{"ports": [{"hostPort": 80, "hostIP": ip, "protocol": "TCP"}]}]});
    assert_eq!(cluster.schedule(json!({}), port("10.0.0.1")), "a");
    assert_eq!(cluster.schedule(json!({}), port("10.0.0.2")), "a");
    let refused = cluster.schedule(json!({}), port(""));
    assert!(
        refused.contains("1 node(s) didn't have free ports for the requested pod ports"),
        "{refused}"
    );
}

#[test]
fn pods_prefer_free_nodes_and_preferred_nodes() {
    let mut cluster = Cluster::new(&[node("a", "4"), node("b", "4"), node("c", "4")]);
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..12 {
        *counts.entry(cluster.schedule(json!({}), needs("500m"))).or_insert(0) += 1;
    }
    assert_eq!(counts.into_values().collect::<Vec<_>>(), [4, 4, 4]);
    let mut cluster = Cluster::new(&[zoned("a", "x"), zoned("b", "y")]);
    let prefers = json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 10, "preference": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["y"]}]}},
    ]}}});
    assert_eq!(cluster.schedule(json!({}), prefers), "b");
}

#[test]
fn anti_affinity_holds_in_both_directions() {
    let mut cluster = Cluster::new(&[zoned("a", "x"), zoned("b", "y")]);
    let term = |selector: Value| json!([{"topologyKey": "zone", "labelSelector": selector}]);
    let anti = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        term(json!({"matchLabels": {"app": "web"}}))}}});
    let first = cluster.schedule(json!({"app": "db"}), anti.clone());
    // The pod that is there excludes the pod that comes.
    let web = cluster.schedule(json!({"app": "web"}), json!({}));
    assert_ne!(first, web);
    let refused = cluster.schedule(
        json!({"app": "web", "x": "y"}),
        json!({"nodeSelector": {"kubernetes.io/hostname": first}}),
    );
    assert!(
        refused.contains("1 node(s) didn't satisfy existing pods anti-affinity rules"),
        "{refused}"
    );
    // The pod that comes excludes the zone of the pod that is there.
    assert_eq!(cluster.schedule(json!({"app": "db"}), anti), first);
    // Affinity to a pod, and the first of a group that wants itself.
    let near = |app: &str| {
        json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        term(json!({"matchLabels": {"app": app}}))}}})
    };
    assert_eq!(cluster.schedule(json!({"app": "cache"}), near("web")), web);
    let refused = cluster.schedule(json!({"app": "one"}), near("nobody"));
    assert!(refused.contains("2 node(s) didn't match pod affinity rules"), "{refused}");
    let group = cluster.schedule(json!({"app": "group"}), near("group"));
    assert_eq!(cluster.schedule(json!({"app": "group"}), near("group")), group);
}

#[test]
fn spread_respects_skew_min_domains_and_missing_labels() {
    let spread = |domains: usize| {
        json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule", "minDomains": domains,
        "labelSelector": {"matchLabels": {"app": "web"}}}]})
    };
    let web = || json!({"app": "web"});
    let mut cluster = Cluster::new(&[zoned("a", "x"), zoned("b", "y"), node("c", "64")]);
    let mut placed: Vec<String> = (0..4).map(|_| cluster.schedule(web(), spread(1))).collect();
    placed.sort();
    assert_eq!(placed, ["a", "a", "b", "b"]);
    // Three domains are wanted and two exist: the third counts as empty.
    let mut cluster = Cluster::new(&[zoned("a", "x"), zoned("b", "y"), node("c", "64")]);
    cluster.schedule(web(), spread(3));
    cluster.schedule(web(), spread(3));
    let refused = cluster.schedule(web(), spread(3));
    assert!(refused.contains("1 node(s) didn't match pod topology spread constraints (missing required label), 2 node(s) didn't match pod topology spread constraints."), "{refused}");
}

#[test]
fn a_preferred_spread_avoids_nodes_without_the_label() {
    let spread = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone",
        "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": "web"}}}]});
    let mut cluster = Cluster::new(&[zoned("a", "x"), zoned("b", "y"), node("c", "64")]);
    let web = |cluster: &mut Cluster| cluster.schedule(json!({"app": "web"}), spread.clone());
    let mut placed: Vec<String> = (0..4).map(|_| web(&mut cluster)).collect();
    placed.sort();
    assert_eq!(placed, ["a", "a", "b", "b"]);
}

#[test]
fn preemption_takes_the_fewest_and_least_important_pods() {
    let mut cluster = Cluster::new(&[node("a", "2"), node("b", "2")]);
    let with_priority = |priority: i32, cpu: &str| {
        let mut spec = needs(cpu);
        spec["priority"] = priority.into();
        spec
    };
    cluster.pod("a", json!({"app": "x"}), with_priority(5, "1"));
    cluster.pod("a", json!({"app": "x"}), with_priority(1, "1"));
    cluster.pod("b", json!({"app": "x"}), with_priority(9, "2"));
    let pod = cluster.pod("", json!({}), with_priority(10, "1"));
    let Verdict::Refuse(refused) = cluster.decide(&pod) else { panic!("nothing is free") };
    let candidate = refused.preempted.unwrap();
    assert_eq!((&*candidate.node, candidate.victims.len()), ("a", 1));
    assert_eq!(candidate.victims[0].spec.priority, 1);
    assert_eq!(refused.message, "0/2 nodes are available: 2 Insufficient cpu.");
    // A budget that allows nothing protects the pods that it covers, if others can go.
    let budget = json!({"spec": {"selector": {"matchLabels": {"app": "x"}}}, "status": {"disruptionsAllowed": 0}});
    cluster
        .state
        .view
        .budgets
        .insert(Request::new("default", "b"), Arc::new(Budget::read(&budget)));
    let mut third = Node::read(&node("c", "1"));
    third.name = "c".into();
    cluster.state.put_node(&"c".into(), Some(third));
    cluster.pod("c", json!({"app": "y"}), with_priority(9, "1"));
    let Verdict::Refuse(refused) = cluster.decide(&pod) else { panic!("nothing is free") };
    assert_eq!(&*refused.preempted.unwrap().node, "c");
    let mut never = with_priority(10, "1");
    never["preemptionPolicy"] = "Never".into();
    let refused = cluster.schedule(json!({}), never);
    assert!(
        refused.ends_with("preemption: not eligible due to preemptionPolicy=Never."),
        "{refused}"
    );
}

#[test]
fn a_nominated_pod_keeps_its_room() {
    let mut cluster = Cluster::new(&[node("a", "2")]);
    let mut nominated = json!({
        "metadata": {"name": "n", "namespace": "default", "uid": "n", "generation": 1},
        "spec": needs("1500m"), "status": {"nominatedNodeName": "a"},
    });
    nominated["spec"]["priority"] = 10.into();
    nominated["spec"]["schedulerName"] = "default-scheduler".into();
    let nominated = Pod::read(&nominated, None);
    cluster.state.put_pod(nominated.clone(), "default-scheduler");
    let refused = cluster.schedule(json!({}), needs("1"));
    assert!(refused.starts_with("0/1 nodes are available: 1 Insufficient cpu."), "{refused}");
    assert!(matches!(cluster.decide(&nominated), Verdict::Place(node) if &*node == "a"));
}

#[test]
fn the_cursor_goes_round_once_from_anywhere() {
    let nodes: Vec<Value> = ["a", "b", "c"].map(|name| node(name, "1")).into();
    let cluster = Cluster::new(&nodes);
    for (first, order) in [("", "abc"), ("a", "bca"), ("bb", "cab"), ("c", "abc"), ("z", "abc")] {
        let mut cursor = Cursor::new(first.into());
        let mut seen = String::new();
        while let Some((node, _)) = cursor.next(&cluster.state.view) {
            seen.push_str(&node.name);
            assert!(seen.len() < 9, "{first}: {seen}");
        }
        assert_eq!(seen, order, "{first}");
    }
}

mod properties {
    use super::*;
    use proptest::prelude::*;

    /// One thing that happens to a scheduler.
    #[derive(Debug, Clone)]
    enum Step {
        Create {
            cpu: i64,
            zone_spread: bool,
        },
        /// The watch shows the n-th assumed pod as assigned.
        Confirm(usize),
        /// The server refused the n-th assumed pod.
        Forget(usize),
        Delete(usize),
        /// An event from before the binding of the n-th pod.
        Stale(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (100_i64..1500, any::<bool>())
                .prop_map(|(cpu, zone_spread)| Step::Create { cpu, zone_spread }),
            2 => (0_usize..30).prop_map(Step::Confirm),
            1 => (0_usize..30).prop_map(Step::Forget),
            1 => (0_usize..30).prop_map(Step::Delete),
            1 => (0_usize..30).prop_map(Step::Stale),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        /// Whatever the order of events, no node has more than it can take, the sums are those of
        /// its pods, and required skews hold when a pod is placed.
        #[test]
        fn no_node_is_overcommitted(steps in prop::collection::vec(step(), 1..60)) {
            let mut cluster = Cluster::new(&[zoned("a", "x"), zoned("b", "y"), zoned("c", "y")]);
            let mut pods: Vec<Pod> = Vec::new();
            for step in steps {
                match step {
                    Step::Create { cpu, zone_spread } => {
                        let mut spec = needs(&format!("{cpu}m"));
                        if zone_spread {
                            spec["topologySpreadConstraints"] = json!([{"maxSkew": 1, "topologyKey": "zone",
                                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "s"}}}]);
                        }
                        let labels = if zone_spread { json!({"app": "s"}) } else { json!({}) };
                        let pod = cluster.pod("", labels, spec);
                        if let Verdict::Place(node) = cluster.decide(&pod) {
                            if zone_spread {
                                let zone = |pod: &Pod| if &*pod.node == "a" { "x" } else { "y" };
                                let spread = |wanted: &str| cluster.state.view.nodes.values()
                                    .flat_map(|info| info.pods.values())
                                    .filter(|pod| pod.labels.contains_key("app") && zone(pod) == wanted)
                                    .count() as i64;
                                let own = zone(&pod.on(&node));
                                let other = if own == "x" { "y" } else { "x" };
                                prop_assert!(spread(own) - spread(other) <= 1);
                            }
                            pods.push(pod.on(&node));
                        }
                    }
                    Step::Confirm(n) if n < pods.len() => {
                        cluster.state.put_pod(pods[n].clone(), "default-scheduler");
                    }
                    Step::Forget(n) if n < pods.len() => {
                        let is_forgotten = cluster.state.forget(&pods[n], Instant::now()).is_some();
                        if is_forgotten {
                            pods.remove(n);
                        }
                    }
                    Step::Delete(n) if n < pods.len() => {
                        let pod = pods.remove(n);
                        cluster.state.remove_pod(&pod.key);
                    }
                    Step::Stale(n) if n < pods.len() => {
                        let key = pods[n].key.clone();
                        let is_assumed = cluster.state.job(&key).is_some();
                        if is_assumed {
                            let old = pods[n].on(&Arc::default());
                            cluster.state.put_pod(old, "default-scheduler");
                        }
                    }
                    _ => {}
                }
                for (name, info) in &cluster.state.view.nodes {
                    let node = info.node.as_ref().unwrap();
                    let cpu: i64 = info.pods.values().map(|pod| pod.spec.requests.cpu).sum();
                    prop_assert_eq!(cpu, info.requested.cpu);
                    prop_assert!(cpu <= node.allocatable.cpu, "{} has {}", name, cpu);
                    prop_assert!(info.n_pods() <= node.pods_max);
                }
                let there: usize = cluster.state.view.nodes.values().map(|info| info.pods.len()).sum();
                prop_assert_eq!(there, pods.len(), "every placed pod has its room");
            }
        }
    }
}

/// Only the resources and ports of nominated pods were counted, not their rules: a pod went to a
/// node that the pod to come excludes it from.
#[test]
fn rules_of_pods_that_preemption_makes_room_for_are_counted() {
    let anti = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}},
    ]}});
    let mut cluster = Cluster::new(&[zoned("a", "x")]);
    let nominated = |cluster: &mut Cluster, spec: Value| {
        let pod = json!({
            "metadata": {"name": "n", "namespace": "default", "uid": "n", "generation": 1,
                "labels": {"app": "db"}},
            "spec": spec, "status": {"nominatedNodeName": "a"},
        });
        cluster.state.put_pod(Pod::read(&pod, None), "default-scheduler");
    };
    nominated(&mut cluster, json!({"affinity": anti, "priority": 10}));
    let refused = cluster.schedule(json!({"app": "web"}), json!({}));
    assert!(
        refused.contains("1 node(s) didn't satisfy existing pods anti-affinity rules"),
        "{refused}"
    );
    // A more important pod does not wait for it.
    assert_eq!(cluster.schedule(json!({"app": "web"}), json!({"priority": 11})), "a");
    // A pod that may never come does not count as company.
    let mut cluster = Cluster::new(&[zoned("a", "x")]);
    nominated(&mut cluster, json!({"priority": 10}));
    let near = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}},
    ]}}});
    let refused = cluster.schedule(json!({"app": "web"}), near);
    assert!(refused.contains("1 node(s) didn't match pod affinity rules"), "{refused}");
}

/// A pod waited for room on its nominated node although the node was cordoned meanwhile.
#[test]
fn a_nominated_node_that_no_longer_fits_is_not_waited_for() {
    let mut cordoned = node("a", "1");
    cordoned["spec"] = json!({"unschedulable": true});
    let mut cluster = Cluster::new(&[cordoned, node("b", "1")]);
    let full = |name: &str, on: &str, deletion: Value| {
        let mut spec = needs("1");
        spec["nodeName"] = on.into();
        json!({
            "metadata": {"name": name, "namespace": "default", "uid": name, "generation": 1,
                "deletionTimestamp": deletion},
            "spec": spec,
        })
    };
    for pod in [full("x", "a", "2026-01-01T00:00:00Z".into()), full("y", "b", Value::Null)] {
        cluster.state.put_pod(Pod::read(&pod, None), "default-scheduler");
    }
    let mut spec = needs("1");
    spec["priority"] = 10.into();
    spec["schedulerName"] = "default-scheduler".into();
    let pod = json!({
        "metadata": {"name": "n", "namespace": "default", "uid": "n", "generation": 1},
        "spec": spec, "status": {"nominatedNodeName": "a"},
    });
    let pod = Pod::read(&pod, None);
    cluster.state.put_pod(pod.clone(), "default-scheduler");
    let Verdict::Refuse(refused) = cluster.decide(&pod) else { panic!("there is no room yet") };
    let victims = refused.preempted.expect("a victim on the other node");
    assert_eq!(&*victims.node, "b");
}

/// It waited for room that was another's, instead of preempting elsewhere.
#[test]
fn a_more_important_pod_takes_the_nomination_of_a_less_important_one() {
    let mut cluster = Cluster::new(&[node("a", "1")]);
    let of = |priority: i32| {
        let mut spec = needs("1");
        spec["priority"] = priority.into();
        spec
    };
    cluster.pod("a", json!({}), of(0));
    let mut refuse = |priority: i32| {
        let pod = cluster.pod("", json!({}), of(priority));
        let Verdict::Refuse(refused) = cluster.decide(&pod) else { panic!("there is no room") };
        assert_eq!(refused.preempted.as_ref().map(|found| &*found.node), Some("a"));
        cluster.state.refuse(pod.clone(), *refused, Instant::now());
        let nominated = cluster.state.view.nominated.get("a");
        let nominated: Vec<_> = nominated.unwrap().iter().map(|pod| pod.key.clone()).collect();
        assert_eq!(nominated, std::slice::from_ref(&pod.key));
        pod
    };
    let less = refuse(5);
    refuse(10);
    // Its status is corrected with its next refusal.
    let refused = Refused { message: "full".to_owned(), ..Refused::default() };
    cluster.state.refuse(less.clone(), refused, Instant::now());
    let job = cluster.state.job(&less.key);
    assert!(matches!(job, Some(crate::state::Job::Refuse { clears_nomination: true, .. })));
}
