//! Decisions about one pod: a small cluster in, a node or a message out.

use super::*;
use crate::labels::strings;
use crate::state::{Assumed, State};
use crate::view::{Budget, Claim, LateClass, Volume};
use rand::SeedableRng;
use serde_json::{Value, json};
use setpoint_runtime::Request;
use tokio::time::Instant;

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
        match self.decide(&pod) {
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
            "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 1 {NO_VICTIMS}, 1 {NOT_HELPFUL}."
        )
    );
    assert_eq!(cluster.schedule(json!({}), needs("1")), "a");
    let gpu = json!({"containers": [{"resources": {"requests": {"example.com/gpu": "2"}}}]});
    assert_eq!(
        cluster.schedule(json!({}), gpu),
        format!(
            "0/2 nodes are available: 2 Insufficient example.com/gpu. preemption: 0/2 nodes are available: 2 {NOT_HELPFUL}."
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
            "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable. preemption: 0/3 nodes are available: 3 {NOT_HELPFUL}."
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

/// A claim of this size in a class.
fn claim(class: &str, size: &str, more: Value) -> Value {
    let mut claim = json!({"metadata": {"annotations": {}}, "spec": {
        "storageClassName": class, "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
    }});
    for (member, value) in more.as_object().into_iter().flatten() {
        claim[member] = value.clone();
    }
    claim
}

/// A free volume of this size on a host.
fn local(size: &str, host: &str) -> Value {
    let host = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [host]});
    json!({"status": {"phase": "Available"}, "spec": {
        "storageClassName": "local", "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": size},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}},
    }})
}

impl Cluster {
    /// Two nodes with local volumes, and a class of volumes that are made for nodes in zone x.
    fn with_volumes() -> Self {
        let mut cluster = Self::new(&[zoned("a", "x"), zoned("b", "y")]);
        let view = &mut cluster.state.view;
        for (name, volume) in
            [("a", local("5Gi", "a")), ("b1", local("3Gi", "b")), ("b2", local("9Gi", "b"))]
        {
            view.put_volume(&name.into(), Some(Volume::read(&volume)));
        }
        let zone = json!([{"matchLabelExpressions": [{"key": "zone", "values": ["x"]}]}]);
        let late = "WaitForFirstConsumer";
        let local = json!({
            "volumeBindingMode": late, "provisioner": "kubernetes.io/no-provisioner",
        });
        let made = json!({
            "volumeBindingMode": late, "provisioner": "p", "allowedTopologies": zone,
        });
        for (name, class) in [("local", local), ("made", made)] {
            let class = LateClass::read(&class).unwrap();
            view.late_classes.insert(name.into(), Arc::new(class));
        }
        cluster
    }

    fn claim(&mut self, name: &str, claim: &Value) -> Value {
        let key = Request::new("default", name);
        self.state.view.put_claim(&key, Some(Claim::read(claim)));
        json!({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]})
    }

    fn promised(&self, claim: &str) -> Option<Arc<str>> {
        self.state.view.promise(&Request::new("default", claim))?.volume.clone()
    }
}

#[test]
fn a_claim_that_waits_gets_the_smallest_volume_of_the_node() {
    let mut cluster = Cluster::with_volumes();
    let large = cluster.claim("large", &claim("local", "8Gi", Value::Null));
    assert_eq!(cluster.schedule(json!({}), large.clone()), "b");
    assert_eq!(cluster.promised("large").as_deref(), Some("b2"));
    // Another pod of the claim goes where its volume is.
    assert_eq!(cluster.schedule(json!({}), large), "b");
    let mut small = cluster.claim("small", &claim("local", "1Gi", Value::Null));
    small["nodeSelector"] = json!({"zone": "y"});
    assert_eq!(cluster.schedule(json!({}), small), "b");
    assert_eq!(cluster.promised("small").as_deref(), Some("b1"));
    let third = cluster.claim("third", &claim("local", "1Gi", Value::Null));
    assert_eq!(cluster.schedule(json!({}), third.clone()), "a");
    let fourth = cluster.claim("fourth", &claim("local", "1Gi", Value::Null));
    let refused = cluster.schedule(json!({}), fourth.clone());
    let why = "2 node(s) didn't find available persistent volumes to bind";
    assert!(refused.contains(why), "{refused}");
    // A pod that goes before its claim is bound leaves the volume to others.
    let pod = cluster.pod("", json!({}), third);
    cluster.state.remove_pod(&Request::new("default", "p4"));
    assert_eq!(cluster.promised("third"), None);
    assert_eq!(cluster.schedule(json!({}), fourth), "a");
    assert!(matches!(cluster.decide(&pod), Verdict::Refuse(_)));
    // What is bound needs no promise.
    let bound = json!({"annotations": {"pv.kubernetes.io/bind-completed": "yes"}});
    let mut bound = claim("local", "1Gi", json!({"metadata": bound}));
    bound["spec"]["volumeName"] = "b1".into();
    cluster.claim("small", &bound);
    assert_eq!(cluster.promised("small"), None);
}

#[test]
fn two_claims_of_a_pod_get_two_volumes_of_one_node() {
    let mut cluster = Cluster::with_volumes();
    cluster.claim("one", &claim("local", "2Gi", Value::Null));
    cluster.claim("two", &claim("local", "1Gi", Value::Null));
    let volume = |claim: &str| json!({"persistentVolumeClaim": {"claimName": claim}});
    let both = json!({"volumes": [volume("one"), volume("two")]});
    assert_eq!(cluster.schedule(json!({}), both), "b");
    assert_eq!(cluster.promised("two").as_deref(), Some("b1"), "the smaller one first");
    assert_eq!(cluster.promised("one").as_deref(), Some("b2"));
}

#[test]
fn volumes_are_made_where_the_class_and_an_earlier_choice_say() {
    let mut cluster = Cluster::with_volumes();
    let made = cluster.claim("made", &claim("made", "1Gi", Value::Null));
    assert_eq!(cluster.schedule(json!({}), made), "a");
    assert_eq!(cluster.promised("made"), None);
    let chosen = |node: &str| {
        let annotations = json!({"volume.kubernetes.io/selected-node": node});
        claim("made", "1Gi", json!({"metadata": {"annotations": annotations}}))
    };
    let pod = cluster.claim("chosen", &chosen("b"));
    assert_eq!(cluster.schedule(json!({}), pod), "b");
    let pod = cluster.claim("gone", &chosen("gone"));
    assert_eq!(cluster.schedule(json!({}), pod), "a");
    let mut named = claim("local", "1Gi", Value::Null);
    named["spec"]["volumeName"] = "b1".into();
    let named = cluster.claim("named", &named);
    let refused = cluster.schedule(json!({}), named);
    assert!(refused.contains("pod has unbound immediate PersistentVolumeClaims"), "{refused}");
}

#[test]
fn a_claim_for_one_pod_is_used_by_one_pod() {
    let mut cluster = Cluster::with_volumes();
    let mut alone = claim("made", "1Gi", Value::Null);
    alone["spec"]["accessModes"] = json!(["ReadWriteOncePod"]);
    let spec = cluster.claim("alone", &alone);
    assert_eq!(cluster.schedule(json!({}), spec.clone()), "a");
    let refused = cluster.schedule(json!({}), spec.clone());
    let why = "0/2 nodes are available: 2 node(s) unavailable due to PersistentVolumeClaim with \
        ReadWriteOncePod access mode already in-use by another pod.";
    assert!(refused.starts_with(why), "{refused}");
    // A more important pod takes it.
    let urgent = json!({"priority": 10, "volumes": spec["volumes"]});
    let pod = cluster.pod("", json!({}), urgent);
    let Verdict::Refuse(refused) = cluster.decide(&pod) else { panic!("it is in use") };
    let candidate = refused.preempted.unwrap();
    assert_eq!((&*candidate.node, candidate.victims.len()), ("a", 1));
    assert_eq!(&*candidate.victims[0].key.name, "p1");
    cluster.state.remove_pod(&Request::new("default", "p1"));
    assert!(matches!(cluster.decide(&pod), Verdict::Place(_)));
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
