use super::*;
use crate::attributes::ResourcePath;
use crate::features::Feature;
use crate::routed::Requested;
use crate::verb::Verb;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::HashMap;

/// A pod on `node` that refers to something of every kind.
fn pod(name: &str, node: &str) -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": name},
        "spec": {
            "nodeName": node,
            "serviceAccountName": "bot",
            "imagePullSecrets": [{"name": "pull"}],
            "initContainers": [{"envFrom": [{"secretRef": {"name": "init"}}]}],
            "containers": [{
                "envFrom": [{"configMapRef": {"name": "from"}}],
                "env": [
                    {"name": "A", "valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}},
                    {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "map", "key": "k"}}},
                    {"name": "C", "value": "plain"},
                ],
            }],
            "ephemeralContainers": [{"envFrom": [{"secretRef": {"name": "debug"}}]}],
            "volumes": [
                {"name": "a", "secret": {"secretName": "mounted"}},
                {"name": "b", "configMap": {"name": "mounted"}},
                {"name": "c", "projected": {"sources": [
                    {"secret": {"name": "projected"}}, {"configMap": {"name": "projected"}},
                    {"serviceAccountToken": {"path": "token"}},
                ]}},
                {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
                {"name": "scratch", "ephemeral": {}},
                {"name": "e", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "csi"}}},
                {"name": "f", "azureFile": {"secretName": "azure", "shareName": "s"}},
            ],
            "resourceClaims": [
                {"name": "own", "resourceClaimName": "gpu"},
                {"name": "made", "resourceClaimTemplateName": "t"},
                {"name": "waits", "resourceClaimTemplateName": "t"},
            ],
        },
        "status": {
            "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "web-made"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "extended"},
        },
    })
}

fn put(graph: &mut Graph, source: Source, object: &Value) {
    let (name, relations) = source.relations(object);
    graph.put(source, name, relations);
}

fn delete(graph: &mut Graph, source: Source, object: &Value) {
    let (name, _) = source.relations(object);
    graph.put(source, name, None);
}

/// A graph with a pod on `n1`, whose claim has a volume.
fn graph() -> Graph {
    let mut graph = Graph::default();
    put(&mut graph, Source::Pod, &pod("web", "n1"));
    put(&mut graph, Source::Volume, &volume("data"));
    graph
}

fn volume(claim: &str) -> Value {
    json!({
        "metadata": {"name": "pv"},
        "spec": {
            "claimRef": {"namespace": "shop", "name": claim},
            "csi": {
                "nodeStageSecretRef": {"namespace": "storage", "name": "stage"},
                "controllerPublishSecretRef": {"namespace": "storage", "name": "controller"},
            },
        },
    })
}

/// `verb group/resource[/subresource] [namespace/]name [selector]`, asked for the agent of `n1`.
/// Returns `yes`, or the reason.
fn ask(graph: &Graph, node: &str, question: &str) -> String {
    ask_with(graph, node, question, &[])
}
/// The same with some feature gates.
fn ask_with(graph: &Graph, node: &str, question: &str, gates: &[Feature]) -> String {
    let mut words = question.split(' ');
    let verb = words.next().unwrap();
    let mut resource = words.next().unwrap().split('/');
    let (group, resource, subresource) =
        (resource.next().unwrap(), resource.next().unwrap(), resource.next().unwrap_or_default());
    let name = words.next().unwrap_or_default();
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    let path = ResourcePath {
        group: group.to_owned(),
        version: "v1".to_owned(),
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource: Subresource::of(subresource),
    };
    let user = Identity::new(&format!("system:node:{node}"), ["system:nodes"]);
    let mut request = Attributes::new(user, Verb::from(verb), Requested::Unrouted(path));
    request.field_selector = words.next().unwrap_or_default().to_owned();
    let rules = rbac::bootstrap_rules(ROLE, gates.into());
    match decide(graph, &rules, node, &request) {
        Ok(()) => "yes".to_owned(),
        Err(reason) => reason,
    }
}

const UNRELATED: &str = "no relationship found between node 'n1' and this object";

#[test]
fn agents_read_what_pods_on_their_nodes_refer_to() {
    let graph = graph();
    for name in ["pull", "init", "key", "debug", "mounted", "projected", "csi", "azure"] {
        assert_eq!(ask(&graph, "n1", &format!("get /secrets shop/{name}")), "yes", "{name}");
        assert_eq!(
            ask(&graph, "n2", &format!("get /secrets shop/{name}")),
            UNRELATED.replace("n1", "n2")
        );
    }
    for name in ["from", "map", "mounted", "projected"] {
        assert_eq!(ask(&graph, "n1", &format!("watch /configmaps shop/{name}")), "yes", "{name}");
    }
    for (question, expected) in [
        ("list /secrets shop/ metadata.name=pull", "yes"),
        ("list /secrets shop/", "No Object name found"),
        ("list /secrets", "can only read namespaced object of this type"),
        ("get /secrets other/pull", UNRELATED),
        ("get /secrets shop/from", UNRELATED),
        ("update /secrets shop/pull", "can only read resources of this type"),
        ("get /persistentvolumeclaims shop/data", "yes"),
        ("get /persistentvolumeclaims shop/web-scratch", "yes"),
        ("get /persistentvolumeclaims shop/other", UNRELATED),
        ("list /persistentvolumeclaims shop/", "can only get individual resources of this type"),
        ("patch /persistentvolumeclaims/status shop/data", "yes"),
        ("get /persistentvolumeclaims/status shop/data", "can only get/update/patch this type"),
        ("get /persistentvolumes pv", "yes"),
        ("get /persistentvolumes other", UNRELATED),
        ("get /secrets storage/stage", "yes"),
        ("get /secrets storage/controller", UNRELATED),
        ("get resource.k8s.io/resourceclaims shop/gpu", "yes"),
        ("get resource.k8s.io/resourceclaims shop/web-made", "yes"),
        ("get resource.k8s.io/resourceclaims shop/extended", "yes"),
        ("get resource.k8s.io/resourceclaims shop/waits", UNRELATED),
        ("get /serviceaccounts shop/bot", "yes"),
        ("create /serviceaccounts/token shop/bot", "yes"),
        ("create /serviceaccounts/token shop/other", UNRELATED),
        ("create /serviceaccounts shop/bot", "can only create token subresource of serviceaccount"),
        ("list /serviceaccounts shop/", "can only create tokens for individual service accounts"),
    ] {
        assert_eq!(ask(&graph, "n1", question), expected, "{question}");
    }
}

#[test]
fn agents_write_what_is_theirs() {
    let mut graph = graph();
    let attachment = json!({"metadata": {"name": "va"}, "spec": {"nodeName": "n1"}});
    put(&mut graph, Source::Attachment, &attachment);
    put(
        &mut graph,
        Source::Slice,
        &json!({"metadata": {"name": "own"}, "spec": {"nodeName": "n1"}}),
    );
    put(
        &mut graph,
        Source::Slice,
        &json!({"metadata": {"name": "any"}, "spec": {"allNodes": true}}),
    );
    let lease = "can only access node lease with the same name as the requesting node";
    for (question, expected) in [
        ("get storage.k8s.io/volumeattachments va", "yes"),
        ("get storage.k8s.io/volumeattachments vb", UNRELATED),
        ("update resource.k8s.io/resourceslices own", "yes"),
        ("update resource.k8s.io/resourceslices any", UNRELATED),
        ("create resource.k8s.io/resourceslices", "yes"),
        ("list resource.k8s.io/resourceslices / spec.nodeName=n1", "yes"),
        (
            "list resource.k8s.io/resourceslices / spec.nodeName!=n1",
            "can only list/watch/deletecollection resourceslices with nodeName field selector",
        ),
        ("create coordination.k8s.io/leases kube-node-lease/", "yes"),
        ("update coordination.k8s.io/leases kube-node-lease/n1", "yes"),
        ("update coordination.k8s.io/leases kube-node-lease/n2", lease),
        (
            "update coordination.k8s.io/leases default/n1",
            r#"can only access leases in the "kube-node-lease" system namespace"#,
        ),
        (
            "list coordination.k8s.io/leases kube-node-lease/",
            "can only get, create, update, patch, or delete a node lease",
        ),
        ("patch storage.k8s.io/csinodes n1", "yes"),
        (
            "patch storage.k8s.io/csinodes n2",
            "can only access CSINode with the same name as the requesting node",
        ),
        ("get /nodes n1", "yes"),
        ("get /nodes n2", "node 'n1' cannot read 'n2', only its own Node object"),
        ("list /nodes", "node 'n1' cannot read all nodes, only its own Node object"),
        ("watch /nodes / metadata.name=n1", "yes"),
        ("patch /nodes/status n2", "yes"),
        ("delete /nodes n1", ""),
        ("get /nodes/proxy n1", ""),
        ("get /pods shop/web", "yes"),
        ("get /pods shop/other", UNRELATED),
        ("list /pods / spec.nodeName=n1", "yes"),
        (
            "list /pods / spec.nodeName=n2",
            "can only list/watch pods with spec.nodeName field selector",
        ),
        ("watch /pods shop/ metadata.name=web", "yes"),
        ("create /pods/eviction shop/web", "yes"),
        ("patch /pods/status shop/web", "yes"),
        ("create /pods/binding shop/web", ""),
        ("get /pods/log shop/web", ""),
        ("list /services", "yes"),
        ("create /events shop/", "yes"),
        ("list apps/deployments", ""),
        ("create certificates.k8s.io/podcertificaterequests shop/", ""),
    ] {
        assert_eq!(ask(&graph, "n1", question), expected, "{question}");
    }
}

#[test]
fn certificate_requests_of_the_node_are_read_with_their_gate() {
    let request = json!({
        "metadata": {"namespace": "shop", "name": "r"}, "spec": {"nodeName": "n1"},
    });
    let mut graph = Graph::default();
    put(&mut graph, Source::CertificateRequest, &request);
    let ask = |node: &str, question: &str| {
        let question = question.replace("REQUESTS", "certificates.k8s.io/podcertificaterequests");
        ask_with(&graph, node, &question, &[Feature::PodCertificateRequest])
    };
    let selector = "can only list/watch podcertificaterequests with nodeName field selector";
    for (question, expected) in [
        ("create REQUESTS shop/", "yes"),
        ("get REQUESTS shop/r", "yes"),
        ("get REQUESTS shop/other", "no relationship found between node 'n1' and this object"),
        ("list REQUESTS / spec.nodeName=n1", "yes"),
        ("watch REQUESTS / spec.nodeName=n2", selector),
        ("list REQUESTS", selector),
        ("delete REQUESTS shop/r", "nodes may not delete podcertificaterequests"),
        (
            "update REQUESTS/status shop/r",
            "nodes may not access the status subresource of PodCertificateRequests",
        ),
    ] {
        assert_eq!(ask("n1", question), expected, "{question}");
    }
    assert_ne!(ask("n2", "get REQUESTS shop/r"), "yes");
    delete(&mut graph, Source::CertificateRequest, &request);
    assert!(graph.is_empty());
}

#[test]
fn a_mirror_pod_gives_access_to_itself_only() {
    let mut mirror = pod("web", "n1");
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    let mut graph = Graph::default();
    put(&mut graph, Source::Pod, &mirror);
    assert_eq!(ask(&graph, "n1", "get /pods shop/web"), "yes");
    assert_eq!(ask(&graph, "n1", "get /secrets shop/pull"), UNRELATED);
    assert_eq!(ask(&graph, "n1", "get /serviceaccounts shop/bot"), UNRELATED);
}

#[test]
fn access_ends_with_the_last_pod_that_gives_it() {
    let mut graph = graph();
    put(&mut graph, Source::Pod, &pod("second", "n1"));
    delete(&mut graph, Source::Pod, &pod("web", "n1"));
    assert_eq!(ask(&graph, "n1", "get /secrets shop/pull"), "yes");
    assert_eq!(ask(&graph, "n1", "get /secrets storage/stage"), "yes");
    put(&mut graph, Source::Pod, &pod("second", "n2"));
    assert_eq!(ask(&graph, "n1", "get /secrets shop/pull"), UNRELATED);
    assert_eq!(ask(&graph, "n1", "get /secrets storage/stage"), UNRELATED);
    delete(&mut graph, Source::Pod, &pod("second", "n2"));
    delete(&mut graph, Source::Volume, &volume("data"));
    assert!(graph.is_empty());
}

/// A secret of a storage class is that of every volume of the class. Each request for it went
/// through all of them, 5 ms for 30,000, and no end of the search is short if a node has many pods.
#[test]
fn a_decision_about_a_secret_does_not_depend_on_how_many_use_it() {
    let mut graph = Graph::default();
    for n in 0..30_000 {
        let claim = format!("c{n}");
        let volume = json!({
            "metadata": {"name": format!("pv{n}")},
            "spec": {
                "claimRef": {"namespace": "shop", "name": claim},
                "csi": {"nodeStageSecretRef": {"namespace": "storage", "name": "stage"}},
            },
        });
        put(&mut graph, Source::Volume, &volume);
        // The claims of one node have no volumes.
        let (node, claim) = if n % 2 == 0 { ("n1", claim) } else { ("n2", format!("none{n}")) };
        let pod = json!({
            "metadata": {"namespace": "shop", "name": format!("p{n}")},
            "spec": {"nodeName": node, "volumes": [
                {"name": "v", "persistentVolumeClaim": {"claimName": claim}},
            ]},
        });
        put(&mut graph, Source::Pod, &pod);
    }
    // A minute, if a decision went through all volumes or pods.
    for _ in 0..1000 {
        assert!(graph.leads_to("n1", Kind::Secret, "storage", "stage"));
        assert!(!graph.leads_to("n2", Kind::Secret, "storage", "stage"));
    }
}

#[test]
fn pods_without_a_node_give_access_to_nobody() {
    let mut graph = Graph::default();
    put(&mut graph, Source::Pod, &pod("web", ""));
    assert!(graph.is_empty());
}

#[tokio::test]
async fn others_than_agents_are_nobodys_affair() {
    let node = NodeAuthorizer::new();
    let path = || Requested::Path("/".to_owned());
    for (user, groups, expected) in [
        ("bob", "system:nodes", ""),
        ("system:node:n1", "devs", ""),
        ("system:node:", "system:nodes", "unknown node for user \"system:node:\""),
    ] {
        let identity = Identity::new(user, [groups]);
        assert_eq!(node.concerns(&identity), !expected.is_empty());
        let request = Attributes::new(identity, Verb::Get, path());
        let decision = node.authorize(&request).await.unwrap();
        assert_eq!(decision, Decision::NoOpinion(expected.to_owned()), "{user}");
    }
}

fn change() -> impl Strategy<Value = (Source, Value)> {
    let names = || prop::sample::select(vec!["a", "b", "c"]);
    let nodes = prop::sample::select(vec!["", "n1", "n2"]);
    let pod = (names(), nodes, names(), names()).prop_map(|(name, node, secret, claim)| {
        let pod = json!({
            "metadata": {"namespace": "shop", "name": name},
            "spec": {"nodeName": node, "volumes": [
                {"name": "s", "secret": {"secretName": secret}},
                {"name": "c", "persistentVolumeClaim": {"claimName": claim}},
            ]},
        });
        (Source::Pod, pod)
    });
    let volume = (names(), names(), names()).prop_map(|(name, claim, secret)| {
        let volume = json!({
            "metadata": {"name": name},
            "spec": {
                "claimRef": {"namespace": "shop", "name": claim},
                "rbd": {"secretRef": {"name": secret}},
            },
        });
        (Source::Volume, volume)
    });
    prop_oneof![pod, volume]
}

proptest! {
    /// However it came about, the graph gives access along the present objects, and only so.
    #[test]
    fn access_follows_the_present_objects(
        changes in vec((change(), any::<bool>()), 0..24),
    ) {
        let mut graph = Graph::default();
        let mut present: HashMap<(Source, String), Value> = HashMap::new();
        for ((source, object), exists) in changes {
            let key = (source, object["metadata"]["name"].as_str().unwrap().to_owned());
            if exists {
                put(&mut graph, source, &object);
                present.insert(key, object);
            } else {
                delete(&mut graph, source, &object);
                present.remove(&key);
            }
        }
        // The slow way: pods on the node, their secrets, and those of the volumes of their claims.
        let of = |source| present.iter().filter(move |((own, _), _)| *own == source).map(|(_, o)| o);
        for node in ["n1", "n2"] {
            for secret in ["a", "b", "c"] {
                let pods = || of(Source::Pod).filter(|pod| pod["spec"]["nodeName"] == node);
                let volumes = &|claim: &Value| {
                    of(Source::Volume).any(|volume| {
                        volume["spec"]["claimRef"]["name"] == *claim
                            && volume["spec"]["rbd"]["secretRef"]["name"] == secret
                    })
                };
                let expected = pods().any(|pod| {
                    let mounted = &pod["spec"]["volumes"];
                    mounted[0]["secret"]["secretName"] == secret
                        || volumes(&mounted[1]["persistentVolumeClaim"]["claimName"])
                });
                prop_assert_eq!(graph.leads_to(node, Kind::Secret, "shop", secret), expected);
            }
        }
        if present.is_empty() {
            prop_assert!(graph.is_empty());
        }
    }
}
