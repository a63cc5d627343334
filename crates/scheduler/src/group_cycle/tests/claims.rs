//! Groups whose pods share claims of devices.

use super::*;
use crate::plugins::claims::{Claim, Class, Grant, Slice};

const DRIVER: &str = "gpu.example.com";

impl Cluster {
    /// A node with cores, and one with more of them and a device.
    fn with_device(cores: &str) -> Self {
        let mut cluster = Self::new(PodGroups::Gangs, &[("a", "1"), ("b", cores)]);
        let inventory = &mut cluster.state.view.inventory;
        let class = json!({"metadata": {"name": "gpu"}, "spec": {}});
        inventory.put_class(&"gpu".into(), Some(Class::read(&class)));
        let slice = json!({
            "spec": {
                "driver": DRIVER, "nodeName": "b", "devices": [{"name": "one"}],
                "pool": {"name": "b", "generation": 1, "resourceSliceCount": 1},
            },
        });
        inventory.put_slice(&"b".into(), Some(Slice::read(&slice)));
        cluster.claim("shared", &Value::Null);
        cluster.claim("other", &Value::Null);
        cluster
    }

    fn claim(&mut self, name: &str, allocation: &Value) {
        let request = json!({"name": "r", "exactly": {"deviceClassName": "gpu"}});
        let mut claim = json!({
            "metadata": {"name": name, "uid": format!("uid-{name}")},
            "spec": {"devices": {"requests": [request]}},
        });
        if allocation.is_object() {
            claim["status"] = json!({"allocation": allocation});
        }
        let key = Request::new("default", name);
        self.state.put_device_claim(&key, Some(Claim::read(&claim, None)));
    }

    /// Pods of a group that use a claim.
    fn claimants(&mut self, group: &str, names: &[&str], claim: &str) {
        let claims = json!([{"name": "gpu", "resourceClaimName": claim}]);
        self.pods(group, names, json!({"resourceClaims": claims}));
    }

    /// What the pods that are to be bound get.
    fn grants(&self, names: &[&str]) -> Vec<Grant> {
        let of = |name: &&str| match self.state.job(&Request::new("default", *name)) {
            Some(Job::Bind { grants, .. }) => grants.to_vec(),
            _ => panic!("{name} is not to be bound"),
        };
        names.iter().flat_map(of).collect()
    }

    /// Where a pod without a group would go, or why it waits.
    fn alone(&mut self, name: &str, claim: &str) -> String {
        self.claimants("", &[name], claim);
        let pod = Pod::clone(&self.state.pod(&Request::new("default", name)).unwrap());
        let mut rng = SmallRng::seed_from_u64(7);
        let mut decision = Decision::new(self.state.view.clone(), pod, Arc::default());
        let verdict = loop {
            if let Some(verdict) = decision.step(&mut rng) {
                break verdict;
            }
        };
        self.state.remove_pod(&Request::new("default", name));
        match verdict {
            Verdict::Place(node) => node.to_string(),
            Verdict::Refuse(refused) => refused.message,
        }
    }
}

const PENDING: &str =
    "0/2 nodes are available: resource claim default/shared is in the process of being allocated.";

#[tokio::test(start_paused = true)]
async fn pods_of_a_gang_share_a_claim_that_gets_its_devices_with_them() {
    let mut cluster = Cluster::with_device("4");
    cluster.gang("g", 3);
    cluster.claimants("g", &["p", "q", "r"], "shared");
    let decision = cluster.decide("g").unwrap();
    assert_eq!(cluster.end("g", decision), Kept::All);
    let grants = cluster.grants(&["p", "q", "r"]);
    assert_eq!(grants.len(), 3);
    let first = grants[0].allocation.clone().unwrap();
    assert_eq!(first["devices"]["results"][0]["device"], "one");
    assert!(
        grants.iter().all(|grant| grant.is_shared && grant.allocation.as_ref() == Some(&first))
    );
    // Whoever writes it first, the others find it met; not so if it was given elsewhere.
    assert!(grants[1].is_met_by(&first));
    let mut elsewhere = Value::clone(&first);
    elsewhere["devices"]["results"][0]["device"] = "two".into();
    assert!(!grants[1].is_met_by(&elsewhere) && !grants[1].is_met_by(&Value::Null));
    assert_eq!(cluster.state.view.nodes["b"].n_pods(), 3);
    // Those outside the group wait, and the device is in use once.
    assert!(cluster.alone("x", "shared").starts_with(PENDING), "{}", cluster.alone("x", "shared"));
    assert!(cluster.alone("x", "other").contains("cannot allocate all claims"));
    // It is free when the server has it for none of them.
    for (name, is_free) in [("p", false), ("q", false), ("r", true)] {
        let pod = cluster.state.pod(&Request::new("default", name)).unwrap();
        cluster.state.forget(&pod, Instant::now());
        assert_eq!(cluster.alone("x", "other") == "b", is_free, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn devices_are_free_again_if_the_gang_does_not_fit() {
    let mut cluster = Cluster::with_device("2");
    cluster.gang("g", 3);
    cluster.claimants("g", &["p", "q", "r"], "shared");
    let said = cluster.cycle("g");
    assert!(said.iter().all(|line| !line.ends_with(" on b")), "{said:?}");
    // On the node without the device there is room, and on the other one there is none.
    let reasons =
        "0/2 nodes are available: 1 Insufficient cpu, 1 resourceclaim not available on the node.";
    assert!(said[3].starts_with(&format!("r: {reasons}")), "{said:?}");
    assert_eq!(cluster.alone("x", "other"), "b");
    assert_eq!(cluster.alone("x", "shared"), "b");
    cluster.node("b", "3");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(cluster.cycle("g"), ["p on b", "Scheduled ", "q on b", "r on b"]);
}

#[tokio::test(start_paused = true)]
async fn devices_are_free_again_if_a_node_has_filled_meanwhile() {
    let mut cluster = Cluster::with_device("3");
    cluster.gang("g", 3);
    cluster.claimants("g", &["p", "q", "r"], "shared");
    let decision = cluster.decide("g").unwrap();
    cluster.pods("", &["blocker"], json!({"nodeName": "b"}));
    assert_eq!(cluster.end("g", decision), Kept::None);
    assert_eq!(cluster.alone("x", "other"), "b");
    // Nor does it get what somebody else has allocated meanwhile.
    cluster.state.remove_pod(&Request::new("default", "blocker"));
    let decision = cluster.decide("g").unwrap();
    let result = json!({"driver": DRIVER, "pool": "b", "device": "one", "request": "r"});
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["b"]});
    let nodes = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
    cluster.claim("shared", &json!({"devices": {"results": [result]}, "nodeSelector": nodes}));
    assert_eq!(cluster.end("g", decision), Kept::None);
    assert_eq!(cluster.cycle("g"), ["p on b", "Scheduled ", "q on b", "r on b"]);
}

#[tokio::test(start_paused = true)]
async fn member_that_comes_later_shares_the_claim_of_those_that_keep_their_places() {
    let mut cluster = Cluster::with_device("3");
    cluster.gang("g", 3);
    cluster.claimants("g", &["p", "q", "r"], "shared");
    let decision = cluster.decide("g").unwrap();
    cluster.state.remove_pod(&Request::new("default", "r"));
    assert_eq!(cluster.end("g", decision), Kept::Waiting);
    // One of another group does not.
    cluster.gang("h", 1);
    cluster.claimants("h", &["y"], "shared");
    let said = cluster.cycle("h");
    assert!(said.iter().any(|line| line.starts_with(&format!("y: {PENDING}"))), "{said:?}");
    cluster.claimants("g", &["s"], "shared");
    assert_eq!(cluster.cycle("g"), ["p on b", "Scheduled ", "q on b", "s on b"]);
}

#[tokio::test(start_paused = true)]
async fn what_a_pod_outside_the_group_gets_is_waited_for() {
    let mut cluster = Cluster::with_device("4");
    cluster.gang("h", 1);
    cluster.claimants("h", &["y"], "shared");
    let decision = cluster.decide("h").unwrap();
    assert_eq!(cluster.end("h", decision), Kept::All);
    let allocation = cluster.grants(&["y"])[0].allocation.clone().unwrap();
    cluster.gang("g", 2);
    cluster.claimants("g", &["p", "q"], "shared");
    let said = cluster.cycle("g");
    assert!(said.iter().any(|line| line.starts_with(&format!("p: {PENDING}"))), "{said:?}");
    // It is written.
    cluster.claim("shared", &allocation);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(cluster.cycle("g"), ["p on b", "Scheduled ", "q on b"]);
}
