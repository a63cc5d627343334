//! Claims of devices.

use super::*;
use crate::plugins::claims::{Claim, Class, Grant, Slice};
use crate::state::Job;

mod costly;
mod large;
mod rules;

const DRIVER: &str = "gpu.example.com";

/// A slice of a pool with the name of the slice.
fn slice(nodes: Value, devices: Value) -> Value {
    let mut spec = nodes;
    spec["driver"] = DRIVER.into();
    spec["devices"] = devices;
    spec["pool"] = json!({"name": "", "generation": 1, "resourceSliceCount": 1});
    json!({"spec": spec})
}

fn on(node: &str, devices: Value) -> Value {
    slice(json!({"nodeName": node}), devices)
}

/// A device with a model and a number.
fn gpu(name: &str, model: &str, numa: i64) -> Value {
    json!({"name": name, "attributes": {"model": {"string": model}, "numa": {"int": numa}},
        "capacity": {"memory": {"value": "40Gi"}}})
}

fn exactly(more: Value) -> Value {
    let mut request = json!({"name": "r", "exactly": {"deviceClassName": "gpu"}});
    for (member, value) in more.as_object().into_iter().flatten() {
        request["exactly"][member] = value.clone();
    }
    request
}

fn selecting(expression: &str) -> Value {
    json!([{"cel": {"expression": expression}}])
}

/// The message of a pod that has to wait for a reason that holds for all of two nodes.
fn waits(why: &str) -> String {
    format!(
        "0/2 nodes are available: {why}. {NO_CLAIMS}, preemption: 0/2 nodes are available: 2 {NOT_HELPFUL}."
    )
}

/// The message of a pod for which the search found nothing on two nodes.
fn nothing(reasons: &str) -> String {
    format!(
        "0/2 nodes are available: {reasons}. still not schedulable, preemption: 0/2 nodes are available: 2 {NOT_HELPFUL}."
    )
}

impl Cluster {
    /// Two nodes, and a class of devices.
    fn with_class() -> Self {
        let mut cluster = Self::new(&[zoned("a", "x"), zoned("b", "y")]);
        let selectors = selecting(&format!("device.driver == '{DRIVER}'"));
        cluster.class("gpu", json!({"selectors": selectors}));
        cluster
    }

    fn class(&mut self, name: &str, spec: Value) {
        let class = Class::read(&json!({"metadata": {"name": name}, "spec": spec}));
        self.state.view.inventory.put_class(&name.into(), Some(class));
    }

    fn slice(&mut self, name: &str, slice: &Value) {
        let mut slice = slice.clone();
        if slice["spec"]["pool"]["name"] == "" {
            slice["spec"]["pool"]["name"] = name.into();
        }
        self.state.view.inventory.put_slice(&name.into(), Some(Slice::read(&slice)));
    }

    fn put(&mut self, name: &str, claim: &Value) {
        let key = Request::new("default", name);
        let earlier = self.state.view.inventory.claim(&key).cloned();
        let mut claim = claim.clone();
        claim["metadata"]["name"] = name.into();
        if claim["metadata"]["uid"].is_null() {
            claim["metadata"]["uid"] = format!("uid-{name}").into();
        }
        self.state.put_device_claim(&key, Some(Claim::read(&claim, earlier.as_deref())));
    }

    /// A claim without devices.
    fn ask(&mut self, name: &str, requests: Value, constraints: Value) {
        let devices = json!({"requests": requests, "constraints": constraints});
        self.put(name, &json!({"spec": {"devices": devices}}));
    }

    /// Where a new pod with claims goes, or why it waits.
    fn claimant(&mut self, claims: &[&str]) -> (Pod, String) {
        let claims: Vec<Value> =
            claims.iter().map(|name| json!({"name": name, "resourceClaimName": name})).collect();
        let pod = self.pod("", json!({}), json!({"resourceClaims": claims}));
        let verdict = self.decide_text(&pod);
        (pod, verdict)
    }

    fn grants(&self, pod: &Pod) -> Vec<Grant> {
        match self.state.job(&pod.key) {
            Some(Job::Bind { grants, .. }) => grants.to_vec(),
            _ => Vec::new(),
        }
    }

    /// The devices that a pod's claims get, or why it waits.
    fn devices(&mut self, claims: &[&str]) -> String {
        let (pod, verdict) = self.claimant(claims);
        let grants = self.grants(&pod);
        if grants.is_empty() {
            return verdict;
        }
        let results = grants.iter().filter_map(|grant| grant.allocation.clone()).map(|given| {
            let results = given["devices"]["results"].as_array().cloned().unwrap_or_default();
            let text = |result: &Value| {
                let text = |member: &str| result[member].as_str().unwrap_or_default().to_owned();
                format!("{}={}/{}", text("request"), text("pool"), text("device"))
            };
            results.iter().map(text).collect::<Vec<_>>().join(" ")
        });
        results.collect::<Vec<_>>().join("; ")
    }

    /// What requests and constraints give, in a cluster of its own with these slices.
    fn check(slices: &[(&str, Value)], requests: Value, constraints: Value) -> String {
        let mut cluster = Self::with_class();
        for (name, slice) in slices {
            cluster.slice(name, slice);
        }
        cluster.ask("c", requests, constraints);
        cluster.devices(&["c"])
    }
}

#[test]
fn a_pod_waits_until_its_claims_can_be_used() {
    let mut cluster = Cluster::with_class();
    assert_eq!(
        cluster.claimant(&["none"]).1,
        waits("could not find ResourceClaim \"default/none\"")
    );
    // A claim that is being made: nothing is said.
    let made = json!({"resourceClaims": [{"name": "mine", "resourceClaimTemplateName": "t"}]});
    let pod = cluster.pod("", json!({}), made.clone());
    let Verdict::Refuse(refused) = cluster.decide(&pod) else { panic!("it has no claim") };
    assert!(refused.message.is_empty() && refused.is_early);
    // Its name is known, but it is another pod's.
    let mut status = json!({
        "metadata": {"name": "q", "namespace": "default", "uid": "q"}, "spec": made,
        "status": {"resourceClaimStatuses": [{"name": "mine", "resourceClaimName": "q-mine"}]},
    });
    status["spec"]["schedulerName"] = "default-scheduler".into();
    cluster.ask("q-mine", json!([exactly(json!({}))]), json!([]));
    let pod = Pod::read(&status, None);
    cluster.state.put_pod(pod.clone(), "default-scheduler");
    assert_eq!(
        cluster.decide_text(&pod),
        waits("ResourceClaim default/q-mine was not created for Pod default/q (Pod is not owner)")
    );
    // One that is going away.
    let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    cluster.put("gone", &deleted);
    assert_eq!(cluster.claimant(&["gone"]).1, waits("resourceclaim \"gone\" is being deleted"));
    let other = json!([{"name": "r", "exactly": {"deviceClassName": "other"}}]);
    cluster.ask("other", other, json!([]));
    assert_eq!(
        cluster.claimant(&["other"]).1,
        waits("request r: device class other does not exist")
    );
    cluster.ask("mine", json!([exactly(json!({}))]), json!([]));
    assert_eq!(cluster.claimant(&["mine"]).1, nothing("2 cannot allocate all claims"));
    cluster.slice("p", &on("b", json!([gpu("one", "x", 0)])));
    assert_eq!(cluster.claimant(&["mine"]).1, "b");
}

#[test]
fn a_device_is_given_once() {
    let mut cluster = Cluster::with_class();
    cluster.slice("pa", &on("a", json!([gpu("one", "x", 0)])));
    cluster.slice("pb", &on("b", json!([gpu("one", "x", 0)])));
    for name in ["c1", "c2", "c3"] {
        cluster.ask(name, json!([exactly(json!({}))]), json!([]));
    }
    let (first, node) = cluster.claimant(&["c1"]);
    let (_, other) = cluster.claimant(&["c2"]);
    assert_ne!(node, other);
    assert_eq!(cluster.claimant(&["c3"]).1, nothing("2 cannot allocate all claims"));
    // Somebody else has to wait for the claim until it is written.
    let busy = "resource claim default/c1 is in the process of being allocated";
    assert_eq!(cluster.claimant(&["c1"]).1, waits(busy));
    // The server has it: it can be shared, on its node.
    let allocation = cluster.grants(&first)[0].allocation.clone().unwrap();
    assert_eq!(
        allocation["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["values"],
        json!([node])
    );
    let devices = json!({"requests": [exactly(json!({}))]});
    let written = json!({
        "spec": {"devices": devices},
        "status": {"allocation": *allocation, "reservedFor": [{"uid": &*first.uid}]},
    });
    cluster.put("c1", &written);
    assert_eq!(cluster.claimant(&["c1"]).1, node);
    assert_eq!(cluster.claimant(&["c3"]).1, nothing("2 cannot allocate all claims"));
    // The claim is released: its device is free.
    cluster.put("c1", &json!({"spec": {"devices": devices}}));
    assert_eq!(cluster.claimant(&["c3"]).1, node);
}

#[tokio::test(start_paused = true)]
async fn a_binding_that_fails_frees_the_devices() {
    let mut cluster = Cluster::with_class();
    cluster.slice("pa", &on("a", json!([gpu("one", "x", 0)])));
    for name in ["c1", "c2"] {
        cluster.ask(name, json!([exactly(json!({}))]), json!([]));
    }
    let (first, node) = cluster.claimant(&["c1"]);
    assert_eq!(node, "a");
    cluster.state.forget(&first, Instant::now());
    let (second, node) = cluster.claimant(&["c2"]);
    assert_eq!(node, "a");
    // A pod that is deleted while its claims are written: its writer finds out what is so.
    cluster.state.remove_pod(&second.key);
    assert_eq!(cluster.devices(&["c1"]), nothing("2 cannot allocate all claims"));
    let orphans = cluster.state.view.inventory.orphans(&second.key);
    let [(claim, pod)] = &orphans[..] else { panic!("{orphans:?}") };
    cluster.state.forget_orphan(claim, pod);
    assert_eq!(cluster.devices(&["c1"]), "r=pa/one");
}

#[test]
fn what_was_written_is_not_replaced_by_what_was_before() {
    let mut cluster = Cluster::with_class();
    cluster.slice("pa", &on("a", json!([gpu("one", "x", 0)])));
    let spec = json!({"devices": {"requests": [exactly(json!({}))]}});
    let version = |version: &str, status: Value| {
        json!({
            "metadata": {"name": "c1", "uid": "u", "resourceVersion": version}, "spec": spec,
            "status": status,
        })
    };
    let result = json!({"request": "r", "driver": DRIVER, "pool": "pa", "device": "one"});
    let allocated = || json!({"allocation": {"devices": {"results": [result]}}});
    cluster.put("c1", &version("5", json!({})));
    let own = Claim::read(&version("7", allocated()), None);
    cluster.state.view.inventory.put_own_claim(&Request::new("default", "c1"), own);
    // A late event from before.
    cluster.put("c1", &version("6", json!({})));
    cluster.ask("c2", json!([exactly(json!({}))]), json!([]));
    assert_eq!(cluster.devices(&["c2"]), nothing("2 cannot allocate all claims"));
    cluster.put("c1", &version("8", json!({})));
    // An answer that comes after the claim has gone.
    let key = Request::new("default", "c1");
    cluster.state.put_device_claim(&key, None);
    let late = Claim::read(&version("7", allocated()), None);
    cluster.state.view.inventory.put_own_claim(&key, late);
    assert_eq!(cluster.devices(&["c2"]), "r=pa/one");
}

#[test]
fn expressions_of_class_and_request_select_devices() {
    let pool = [("p", on("a", json!([gpu("one", "x", 0), gpu("two", "y", 1)])))];
    let select = |expression: &str| {
        let request = exactly(json!({"selectors": selecting(expression)}));
        Cluster::check(&pool, json!([request]), json!([]))
    };
    assert_eq!(select("device.attributes['gpu.example.com'].model == 'y'"), "r=p/two");
    assert_eq!(
        select("device.attributes['gpu.example.com'].model == 'z'"),
        nothing("2 cannot allocate all claims")
    );
    assert_eq!(
        select("device.capacity['gpu.example.com'].memory.compareTo(quantity('1Gi')) > 0"),
        "r=p/one"
    );
    assert_eq!(
        select("device.attributes['gpu.example.com'].none == 'z'"),
        "running \"DynamicResources\" filter plugin: claim default/c: selector #0: CEL runtime error: no such key: none"
    );
}

#[test]
fn only_complete_pools_of_the_newest_generation_are_used() {
    let mut cluster = Cluster::with_class();
    let slice = |generation: i64, n: i64, device: &str| {
        let mut slice = on("a", json!([gpu(device, "x", 0)]));
        slice["spec"]["pool"] =
            json!({"name": "p", "generation": generation, "resourceSliceCount": n});
        slice
    };
    cluster.ask("c", json!([exactly(json!({}))]), json!([]));
    cluster.ask("all", json!([exactly(json!({"allocationMode": "All"}))]), json!([]));
    cluster.slice("s1", &slice(1, 1, "old"));
    cluster.slice("s2", &slice(2, 2, "new"));
    assert_eq!(cluster.devices(&["c"]), nothing("2 cannot allocate all claims"));
    assert_eq!(
        cluster.devices(&["all"]),
        "running \"DynamicResources\" filter plugin: claim default/all, request r: asks for all devices, but resource pool gpu.example.com/p is currently being updated"
    );
    cluster.slice("s3", &slice(2, 2, "newer"));
    assert_eq!(cluster.devices(&["all"]), "r=p/new r=p/newer");
    // Two devices of one name.
    cluster.slice("s3", &slice(2, 2, "new"));
    assert_eq!(
        cluster.devices(&["c"]),
        nothing("1 cannot allocate all claims, 1 invalid resource pools were encountered")
    );
}

#[test]
fn slices_say_which_nodes_have_their_devices() {
    let devices = || json!([gpu("one", "x", 0)]);
    let zone = |zone: &str| {
        let expression = json!({"key": "zone", "operator": "In", "values": [zone]});
        json!({"nodeSelectorTerms": [{"matchExpressions": [expression]}]})
    };
    let mut own = json!([gpu("one", "x", 0), gpu("two", "x", 0), gpu("three", "x", 0)]);
    own[0]["nodeName"] = "none".into();
    own[1]["nodeSelector"] = zone("y");
    own[2]["allNodes"] = true.into();
    let selectors = |slice: Value| {
        let mut cluster = Cluster::with_class();
        cluster.slice("p", &slice);
        cluster.ask("c", json!([exactly(json!({}))]), json!([]));
        let (pod, verdict) = cluster.claimant(&["c"]);
        let grants = cluster.grants(&pod);
        (verdict, grants[0].allocation.as_ref().unwrap()["nodeSelector"].clone())
    };
    let named = |node: &str| {
        let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        json!({"nodeSelectorTerms": [{"matchFields": [field]}]})
    };
    assert_eq!(selectors(on("a", devices())), ("a".to_owned(), named("a")));
    let selected = slice(json!({"nodeSelector": zone("y")}), devices());
    assert_eq!(selectors(selected), ("b".to_owned(), zone("y")));
    assert_eq!(selectors(slice(json!({"allNodes": true}), devices())).1, Value::Null);
    let mut bound = devices();
    bound[0]["bindsToNode"] = true.into();
    let (node, selector) = selectors(slice(json!({"allNodes": true}), bound));
    assert_eq!(selector, named(&node));
    let per_device = slice(json!({"perDeviceNodeSelection": true}), own);
    let cluster = |expression: &str| {
        let request = exactly(json!({"selectors": selecting(expression)}));
        Cluster::check(&[("p", per_device.clone())], json!([request]), json!([]))
    };
    // The first device is nowhere.
    assert_ne!(cluster("true"), "r=p/one");
}

#[test]
fn a_request_has_a_count_or_wants_all() {
    let pool = |n: usize| {
        let devices: Vec<Value> = (0..n).map(|n| gpu(&format!("g{n}"), "x", 0)).collect();
        [("p", on("a", json!(devices)))]
    };
    let check = |n: usize, request: Value| Cluster::check(&pool(n), json!([request]), json!([]));
    assert_eq!(check(3, exactly(json!({"count": 2}))), "r=p/g0 r=p/g1");
    assert_eq!(check(1, exactly(json!({"count": 2}))), nothing("2 cannot allocate all claims"));
    let all = || exactly(json!({"allocationMode": "All"}));
    assert_eq!(check(3, all()), "r=p/g0 r=p/g1 r=p/g2");
    assert_eq!(
        check(33, all()),
        "running \"DynamicResources\" filter plugin: claim default/c: number of requested devices 33 exceeds the claim limit of 32"
    );
    assert_eq!(
        Cluster::check(&[], json!([all()]), json!([])),
        nothing("2 cannot allocate all claims")
    );
}

#[test]
fn the_first_alternative_that_is_there_is_chosen() {
    let choice = |alternatives: &[(&str, i64)]| {
        let one = |(model, count): &(&str, i64)| {
            let expression = format!("device.attributes['gpu.example.com'].model == '{model}'");
            json!({
                "name": model, "deviceClassName": "gpu", "count": count,
                "selectors": selecting(&expression),
            })
        };
        let alternatives: Vec<Value> = alternatives.iter().map(one).collect();
        json!({"name": "r", "firstAvailable": alternatives})
    };
    let pools = [
        ("pa", on("a", json!([gpu("one", "small", 0), gpu("two", "small", 1)]))),
        ("pb", on("b", json!([gpu("one", "large", 0)]))),
    ];
    let check = |requests: Value| Cluster::check(&pools, requests, json!([]));
    // The node of the better alternative is chosen.
    assert_eq!(check(json!([choice(&[("large", 1), ("small", 2)])])), "r/large=pb/one");
    assert_eq!(
        check(json!([choice(&[("large", 2), ("small", 2)])])),
        "r/small=pa/one r/small=pa/two"
    );
    // A later request is worth an alternative.
    let mut other = exactly(json!({}));
    other["name"] = "other".into();
    assert_eq!(
        check(json!([choice(&[("small", 2), ("small", 1)]), other])),
        "r/small=pa/one other=pa/two"
    );
}

#[test]
fn constraints_compare_attributes() {
    let pools = [(
        "p",
        on(
            "a",
            json!([gpu("a0", "x", 0), gpu("b1", "y", 1), gpu("c1", "x", 1), gpu("d1", "z", 1)]),
        ),
    )];
    let check = |count: i64, constraint: Value| {
        Cluster::check(&pools, json!([exactly(json!({"count": count}))]), json!([constraint]))
    };
    let same = |attribute: &str| json!({"matchAttribute": format!("gpu.example.com/{attribute}")});
    // The first device alone leads nowhere.
    assert_eq!(check(2, same("numa")), "r=p/b1 r=p/c1");
    assert_eq!(check(4, same("numa")), nothing("2 cannot allocate all claims"));
    assert_eq!(check(1, same("none")), nothing("2 cannot allocate all claims"));
    let distinct = json!({"distinctAttribute": "gpu.example.com/model"});
    assert_eq!(check(3, distinct), "r=p/a0 r=p/b1 r=p/d1");
    let of_others = json!({"matchAttribute": "gpu.example.com/none", "requests": ["other"]});
    assert_eq!(check(1, of_others), "r=p/a0");
}

#[test]
fn tainted_devices_need_tolerations() {
    let mut tainted = gpu("one", "x", 0);
    tainted["taints"] = json!([{"key": "broken", "value": "yes", "effect": "NoSchedule"}]);
    let pools = [("p", on("a", json!([tainted])))];
    let check = |request: Value| Cluster::check(&pools, json!([request]), json!([]));
    assert_eq!(check(exactly(json!({}))), nothing("2 cannot allocate all claims"));
    let tolerations = json!([{"key": "broken", "operator": "Exists"}]);
    assert_eq!(check(exactly(json!({"tolerations": tolerations}))), "r=p/one");
}

#[test]
fn administrators_use_devices_of_others() {
    let mut cluster = Cluster::with_class();
    cluster.slice("p", &on("a", json!([gpu("one", "x", 0)])));
    for (name, is_admin) in [("c1", false), ("admin", true), ("c2", false)] {
        cluster.ask(name, json!([exactly(json!({"adminAccess": is_admin}))]), json!([]));
    }
    assert_eq!(cluster.devices(&["admin"]), "r=p/one");
    assert_eq!(cluster.devices(&["c1"]), "r=p/one", "an administrator does not own it");
    assert_eq!(cluster.devices(&["c2"]), nothing("2 cannot allocate all claims"));
}

#[test]
fn partitions_of_a_device_share_its_counters() {
    let mut cluster = Cluster::with_class();
    let part = |name: &str, memory: &str| {
        let mut device = gpu(name, "x", 0);
        device["consumesCounters"] =
            json!([{"counterSet": "whole", "counters": {"memory": {"value": memory}}}]);
        device
    };
    let pool = json!({"name": "p", "generation": 1, "resourceSliceCount": 2});
    let mut counters = on("a", Value::Null);
    counters["spec"]["sharedCounters"] =
        json!([{"name": "whole", "counters": {"memory": {"value": "40Gi"}}}]);
    let mut parts = on("a", json!([part("all", "40Gi"), part("x", "20Gi"), part("y", "20Gi")]));
    for slice in [&mut counters, &mut parts] {
        slice["spec"]["pool"] = pool.clone();
    }
    cluster.slice("s1", &counters);
    cluster.slice("s2", &parts);
    cluster.ask("two", json!([exactly(json!({"count": 2}))]), json!([]));
    cluster.ask("one", json!([exactly(json!({}))]), json!([]));
    assert_eq!(cluster.devices(&["two"]), "r=p/x r=p/y");
    assert_eq!(cluster.devices(&["one"]), nothing("2 cannot allocate all claims"));
}

#[test]
fn claims_share_the_capacity_of_a_device() {
    let mut cluster = Cluster::with_class();
    let mut shared = gpu("one", "x", 0);
    shared["allowMultipleAllocations"] = true.into();
    cluster.slice("p", &on("a", json!([shared])));
    for (name, memory) in [("c1", "30Gi"), ("c2", "20Gi"), ("c3", "10Gi")] {
        let request = exactly(json!({"capacity": {"requests": {"memory": memory}}}));
        cluster.ask(name, json!([request]), json!([]));
    }
    let (pod, node) = cluster.claimant(&["c1"]);
    assert_eq!(node, "a");
    let result =
        cluster.grants(&pod)[0].allocation.as_ref().unwrap()["devices"]["results"][0].clone();
    assert_eq!(result["consumedCapacity"], json!({"memory": "30Gi"}));
    assert_eq!(result["shareID"].as_str().map(str::len), Some(36));
    assert_eq!(cluster.devices(&["c2"]), nothing("2 cannot allocate all claims"));
    assert_eq!(cluster.devices(&["c3"]), "r=p/one");
}

#[test]
fn a_claim_in_the_wrong_place_loses_its_devices() {
    let mut cluster = Cluster::with_class();
    let field = json!({"key": "metadata.name", "operator": "In", "values": ["a"]});
    let result = json!({"request": "r", "driver": DRIVER, "pool": "pa", "device": "one"});
    let allocation = json!({
        "devices": {"results": [result]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
    });
    let claim = json!({
        "spec": {"devices": {"requests": [exactly(json!({}))]}}, "status": {"allocation": allocation},
    });
    cluster.put("c", &claim);
    let mut spec = json!({"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]});
    spec["nodeSelector"] = json!({"kubernetes.io/hostname": "b"});
    let pod = cluster.pod("", json!({}), spec.clone());
    let Verdict::Refuse(refused) = cluster.decide(&pod) else { panic!("it is elsewhere") };
    assert_eq!(refused.deallocates, Some(Request::new("default", "c")));
    assert!(
        refused.message.contains("1 resourceclaim not available on the node. deallocation of ResourceClaim completed, preemption"),
        "{}", refused.message
    );
    // Not if somebody else uses it.
    let mut used = claim.clone();
    used["status"]["reservedFor"] = json!([{"uid": "other"}]);
    cluster.put("c", &used);
    let Verdict::Refuse(refused) = cluster.decide(&pod) else { panic!("it is elsewhere") };
    assert_eq!(refused.deallocates, None);
}

#[test]
fn a_search_without_end_is_ended() {
    let mut cluster = Cluster::with_class();
    // Two of a kind for each of many requests that no devices can fulfil together.
    let devices: Vec<Value> = (0..60).map(|n| gpu(&format!("g{n}"), "x", n)).collect();
    cluster.slice("p", &on("a", json!(devices)));
    let requests: Vec<Value> = (0..8)
        .map(|n| {
            let mut request = exactly(json!({"count": 4}));
            request["name"] = format!("r{n}").into();
            request
        })
        .collect();
    let distinct = json!({"distinctAttribute": "gpu.example.com/model", "requests": ["r7"]});
    cluster.ask("c", json!(requests), json!([distinct]));
    let text = cluster.devices(&["c"]);
    assert_eq!(
        text,
        nothing("1 cannot allocate all claims, 1 search for devices took too many steps")
    );
}

#[test]
fn class_and_claim_configure_the_devices() {
    let mut cluster = Cluster::with_class();
    cluster.slice("p", &on("a", json!([gpu("one", "x", 0), gpu("two", "x", 0)])));
    let parameters = |n: i64| json!({"opaque": {"driver": DRIVER, "parameters": {"n": n}}});
    cluster.class("set", json!({"config": [parameters(1)]}));
    let request = |name: &str| json!({"name": name, "exactly": {"deviceClassName": "set"}});
    let mut own = parameters(2);
    own["requests"] = json!(["b"]);
    let devices = json!({"requests": [request("a"), request("b")], "config": [own, parameters(3)]});
    cluster.put("c", &json!({"spec": {"devices": devices}}));
    let (pod, node) = cluster.claimant(&["c"]);
    assert_eq!(node, "a");
    let allocation = cluster.grants(&pod)[0].allocation.clone().unwrap();
    let mut expected = [parameters(1), parameters(2), parameters(3)];
    expected[0]["source"] = "FromClass".into();
    expected[0]["requests"] = json!(["a", "b"]);
    expected[1]["source"] = "FromClaim".into();
    expected[1]["requests"] = json!(["b"]);
    expected[2]["source"] = "FromClaim".into();
    assert_eq!(allocation["devices"]["config"], json!(expected));
}
