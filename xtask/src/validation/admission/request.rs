//! Drawn requests, which plugins look at.

use super::super::random::Random;
use super::super::write::Write;
use serde_json::{Map, Value, json};

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) write: Write,
    pub(super) path: String,
    pub(super) body: Value,
    /// What it is about.
    pub(super) resource: &'static str,
}

/// The kinds of the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    ConfigMap,
    Secret,
    Pod,
    Service,
    Claim,
    Deployment,
    Shape,
    OtherShape,
}

impl Kind {
    fn resource(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::Secret => "secrets",
            Self::Pod => "pods",
            Self::Service => "services",
            Self::Claim => "persistentvolumeclaims",
            Self::Deployment => "deployments",
            Self::Shape | Self::OtherShape => "shapes",
        }
    }

    fn version(self) -> (&'static str, &'static str) {
        match self {
            Self::Deployment => ("apps/v1", "Deployment"),
            Self::Shape => ("reads.example.com/v1", "Shape"),
            Self::OtherShape => ("reads.example.com/v2", "Shape"),
            Self::ConfigMap => ("v1", "ConfigMap"),
            Self::Secret => ("v1", "Secret"),
            Self::Pod => ("v1", "Pod"),
            Self::Service => ("v1", "Service"),
            Self::Claim => ("v1", "PersistentVolumeClaim"),
        }
    }

    fn collection(self, namespace: &str) -> String {
        let (version, _) = self.version();
        let root = if version.contains('/') { "apis" } else { "api" };
        format!("/{root}/{version}/namespaces/{namespace}/{}", self.resource())
    }
}

/// The names that requests have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// Of a few.
    Few,
    /// An object that is created has a new one.
    New,
}

/// Draws requests to a namespace.
#[derive(Debug)]
pub(super) struct Drawer<'d> {
    pub(super) random: &'d mut Random,
    pub(super) namespace: &'d str,
    pub(super) names: Names,
    /// How many of a hundred are about pods.
    pub(super) pods: usize,
}

impl Drawer<'_> {
    /// Draws a request. `number`: how many there were before.
    pub(super) fn draw(&mut self, number: usize) -> Request {
        let (random, namespace) = (&mut *self.random, self.namespace);
        let kind = match random.percent(self.pods) {
            true => Kind::Pod,
            false => *random
                .pick(&[
                    Kind::ConfigMap,
                    Kind::ConfigMap,
                    Kind::Secret,
                    Kind::Service,
                    Kind::Claim,
                    Kind::Deployment,
                    Kind::Deployment,
                    Kind::Shape,
                    Kind::Shape,
                    Kind::OtherShape,
                ])
                .unwrap_or(&Kind::ConfigMap),
        };
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
        let (new, other) = match self.names {
            Names::Few => {
                let name = ["a", "a", "b", "c"][random.below(4)];
                (name, name)
            }
            Names::New => {
                (names[number % names.len()], names[random.below(number + 1) % names.len()])
            }
        };
        write(random, namespace, kind, [new, other])
    }
}

/// A request about an object: a new one, or another one.
fn write(random: &mut Random, namespace: &str, kind: Kind, [new, name]: [&str; 2]) -> Request {
    let collection = kind.collection(namespace);
    let object = format!("{collection}/{name}");
    let dry = if random.percent(8) { "?dryRun=All" } else { "" };
    let request = |write, path: String, body| {
        let resource = kind.resource();
        Request { write, path: format!("{path}{dry}"), body, resource }
    };
    match random.below(100) {
        0..50 => {
            let mut body = body(random, kind, new);
            // Lists have them in another order at each server.
            if !dry.is_empty() && random.percent(40) {
                body["metadata"] = json!({"generateName": "a-"});
            }
            request(Write::Create, collection, body)
        }
        50..60 => request(Write::Put, object, body(random, kind, name)),
        60..70 => request(Write::Merge, object, change(random, kind)),
        70..75 => {
            let mut body = body(random, kind, name);
            body["metadata"]["name"] = name.into();
            let mut request = request(Write::Apply, object, body);
            let mark = if dry.is_empty() { '?' } else { '&' };
            request.path = format!("{}{mark}fieldManager=me&force=true", request.path);
            request
        }
        75..81 => {
            let options = [
                json!({}),
                json!({"gracePeriodSeconds": 0}),
                json!({"propagationPolicy": "Background"}),
                Value::Null,
            ];
            let options = random.pick(&options).cloned().unwrap_or_default();
            request(Write::Delete, object, options)
        }
        81..83 => request(Write::Delete, collection, json!({})),
        _ => {
            let (write, tail, body) = subresource(random, kind, name);
            let mut path = match tail {
                "" => format!("/api/v1/namespaces/{namespace}"),
                tail => format!("{object}/{tail}"),
            };
            // The others of the namespace would see this change at another time.
            if tail.is_empty() {
                path.push_str("?dryRun=All");
                return Request { write, path, body, resource: "namespaces" };
            }
            request(write, path, body)
        }
    }
}

/// A request to a subresource; an empty one: to the namespace.
fn subresource(random: &mut Random, kind: Kind, name: &str) -> (Write, &'static str, Value) {
    let status = match kind {
        Kind::Pod => json!({"status": {"phase": "Running"}}),
        Kind::Shape | Kind::OtherShape => json!({"status": {"replicas": 3}}),
        _ => json!({"status": {"conditions": []}}),
    };
    match (kind, random.below(6)) {
        (Kind::Pod, 0) => {
            let mut eviction =
                json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
            if random.percent(30) {
                eviction["deleteOptions"] = json!({"gracePeriodSeconds": 0});
            }
            (Write::Create, "eviction", eviction)
        }
        (Kind::Pod, 1) => {
            let target = json!({"apiVersion": "v1", "kind": "Node", "name": "n1"});
            let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target});
            (Write::Create, "binding", binding)
        }
        (Kind::Pod, 2) => {
            let container = json!({"name": "debug", "image": "example.com/debug:1"});
            (
                Write::Strategic,
                "ephemeralcontainers",
                json!({"spec": {"ephemeralContainers": [container]}}),
            )
        }
        (Kind::Pod, 3) => {
            let container = json!({"name": "main", "resources": resources(random)});
            (Write::Strategic, "resize", json!({"spec": {"containers": [container]}}))
        }
        (Kind::Deployment | Kind::Shape | Kind::OtherShape, 0..3) => {
            let replicas = random.below(5).into();
            let write = [Write::Put, Write::Merge, Write::Json][random.below(3)];
            (write, "scale", write.scale(&name.into(), replicas))
        }
        (Kind::ConfigMap | Kind::Secret, _) => {
            let labels = json!({"note": (["a", "b"][random.below(2)])});
            (Write::Merge, "", json!({"metadata": {"labels": labels}}))
        }
        _ => (Write::Merge, "status", status),
    }
}

/// A merge patch.
fn change(random: &mut Random, kind: Kind) -> Value {
    match (random.below(4), kind) {
        (0, _) => json!({"metadata": {"labels": {"app": (["a", "b", "c"][random.below(3)])}}}),
        (1, _) => json!({"metadata": {"annotations": {"example.com/note": "x"}}}),
        (_, Kind::ConfigMap | Kind::Secret) => {
            json!({"data": {"n": (["1", "Mg==", "x"][random.below(3)])}})
        }
        (_, Kind::Deployment) => json!({"spec": {"replicas": (random.below(5))}}),
        (_, Kind::Shape | Kind::OtherShape) => {
            json!({"spec": {"color": (["red", "blue"][random.below(2)])}})
        }
        (_, Kind::Service) => {
            json!({"spec": {"type": (["NodePort", "ClusterIP", "LoadBalancer"][random.below(3)])}})
        }
        (_, Kind::Claim) => json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}),
        (_, Kind::Pod) => {
            json!({"spec": {"containers": [{"name": "main", "image": "example.com/a:2"}]}})
        }
    }
}

fn body(random: &mut Random, kind: Kind, name: &str) -> Value {
    let (version, word) = kind.version();
    let mut object = json!({"apiVersion": version, "kind": word, "metadata": {"name": name}});
    if random.percent(60) {
        let app = ["a", "b", "c"][random.below(3)];
        object["metadata"]["labels"] = json!({"app": app});
    }
    if random.percent(15) {
        object["metadata"]["annotations"] = json!({"example.com/note": "x"});
    }
    match kind {
        Kind::ConfigMap => {
            if random.percent(80) {
                object["data"] = json!({"n": (["1", "2", "x", "300"][random.below(4)])});
            }
            if random.percent(15) {
                object["data"]["url"] = "https://example.com:80/a?b=c".into();
                object["data"]["ip"] = (["10.1.2.3", "::1", "x"][random.below(3)]).into();
                object["data"]["when"] = "2026-01-01T00:00:00Z".into();
            }
        }
        Kind::Secret => object["stringData"] = json!({"n": "1"}),
        Kind::Pod => object["spec"] = pod(random, false),
        Kind::Service => {
            let count = 1 + random.below(3);
            let ports: Vec<Value> = (0..count)
                .map(|n| json!({"name": format!("p{n}"), "port": 80 + n, "protocol": "TCP"}))
                .collect();
            object["spec"] = json!({"selector": {"app": "a"}, "ports": ports});
            if random.percent(50) {
                object["spec"]["type"] =
                    (["NodePort", "LoadBalancer", "ClusterIP"][random.below(3)]).into();
            }
            if random.percent(15) {
                object["spec"]["externalIPs"] = json!(["192.0.2.1"]);
            }
            if object["spec"]["type"] == "LoadBalancer" && random.percent(40) {
                object["spec"]["allocateLoadBalancerNodePorts"] = false.into();
            }
        }
        Kind::Claim => {
            let size = ["1Gi", "2Gi", "500Mi"][random.below(3)];
            object["spec"] = json!({
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}},
            });
            if random.percent(50) {
                object["spec"]["storageClassName"] = (["fast", "slow"][random.below(2)]).into();
            }
        }
        Kind::Deployment => {
            object["spec"] = json!({
                "replicas": (random.below(5)),
                "selector": {"matchLabels": {"app": "a"}},
                "template": {"metadata": {"labels": {"app": "a"}}, "spec": (pod(random, true))},
            });
        }
        Kind::Shape | Kind::OtherShape => {
            let mut spec = json!({});
            if random.percent(70) {
                spec["color"] = (["red", "green"][random.below(2)]).into();
            }
            if random.percent(60) {
                spec["replicas"] = random.below(5).into();
            }
            if random.percent(30) {
                spec["list"] = json!(["x", "y"]);
            }
            object["spec"] = spec;
        }
    }
    object
}

/// The spec of a pod.
fn pod(random: &mut Random, is_template: bool) -> Value {
    let container = |random: &mut Random, name: &str| {
        let image = ["example.com/a:1", "a", "example.com/b"][random.below(3)];
        let mut container = json!({"name": name, "image": image});
        if random.percent(65) {
            container["resources"] = resources(random);
        }
        if random.percent(10) {
            container["imagePullPolicy"] = (["Never", "IfNotPresent"][random.below(2)]).into();
        }
        if random.percent(15) {
            container["securityContext"] = [
                json!({"privileged": true}),
                json!({"allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]}, "seccompProfile": {"type": "RuntimeDefault"}}),
                json!({"capabilities": {"add": ["NET_ADMIN"]}}),
            ][random.below(3)]
            .clone();
        }
        container
    };
    let mut containers = vec![container(random, "main")];
    if random.percent(30) {
        containers.push(container(random, "second"));
    }
    let mut spec = json!({"containers": containers});
    if random.percent(20) {
        let mut init = container(random, "init");
        if random.percent(50) {
            init["restartPolicy"] = "Always".into();
        }
        spec["initContainers"] = json!([init]);
    }
    if random.percent(10) {
        spec["resources"] = resources(random);
    }
    if random.percent(15) && !is_template {
        spec["activeDeadlineSeconds"] = 100.into();
    }
    if random.percent(20) {
        spec["priorityClassName"] = (["low", "high", "none"][random.below(3)]).into();
    }
    if random.percent(15) {
        spec["nodeSelector"] = json!({"a": (["b", "c"][random.below(2)])});
    }
    if random.percent(20) {
        spec["tolerations"] = [
            json!([{"key": "a", "operator": "Exists"}]),
            json!([{"operator": "Exists"}]),
            json!([{"key": "b", "operator": "Equal", "value": "x", "effect": "NoSchedule"}]),
            json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]),
        ][random.below(4)]
        .clone();
    }
    if random.percent(10) {
        let key = ["kubernetes.io/hostname", "zone"][random.below(2)];
        let mut term = json!({"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": key});
        if random.percent(50) {
            term["namespaces"] = json!(["other"]);
        }
        if random.percent(20) {
            term["namespaceSelector"] = json!({});
        }
        spec["affinity"] =
            json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
    }
    if random.percent(8) {
        spec["hostNetwork"] = true.into();
    }
    if random.percent(8) {
        spec["runtimeClassName"] = (["thin", "none"][random.below(2)]).into();
    }
    spec
}

/// Requests and limits of a container.
fn resources(random: &mut Random) -> Value {
    let mut resources = json!({});
    for member in ["requests", "limits"] {
        if random.percent(30) {
            continue;
        }
        let mut list = Map::new();
        let mut put = |name: &str, value: &str| list.insert(name.to_owned(), value.into());
        if random.percent(70) {
            put("cpu", ["50m", "100m", "500m", "1", "0"][random.below(5)]);
        }
        if random.percent(50) {
            put("memory", ["16Mi", "64Mi", "1Gi", "1500m"][random.below(4)]);
        }
        if random.percent(12) {
            put("ephemeral-storage", "1Gi");
        }
        if random.percent(12) {
            put("example.com/gpu", ["1", "2"][random.below(2)]);
        }
        if random.percent(5) {
            put("hugepages-2Mi", "2Mi");
        }
        resources[member] = list.into();
    }
    resources
}
