//! Writes and watches of them, drawn from a seed.

use crate::validation::bases::FIXTURES;
use crate::validation::random::Random;
use crate::validation::write::Write;
use serde_json::{Value, json};

/// How many objects a sequence has.
const OBJECTS: usize = 3;
/// Values of the label `app`.
const APPS: &[&str] = &["a", "b", "c"];
/// Types of answers that a watch may have.
const ACCEPTS: &[&str] = &[
    "application/json",
    "application/json",
    "application/json",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
];

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    ConfigMap,
    Pod,
    /// A custom resource of two versions.
    Shape,
}

impl Kind {
    /// The path of the collection of the namespace in the version that is written.
    pub(super) fn collection(self) -> &'static str {
        match self {
            Self::ConfigMap => "/api/v1/namespaces/fixtures/configmaps",
            Self::Pod => "/api/v1/namespaces/fixtures/pods",
            Self::Shape => "/apis/reads.example.com/v1/namespaces/fixtures/shapes",
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ConfigMap => "ConfigMaps",
            Self::Pod => "Pods",
            Self::Shape => "custom resources",
        }
    }

    fn object(self, random: &mut Random, name: &str, own: &str) -> Value {
        let mut labels = json!({"own": own});
        if random.percent(70) {
            labels["app"] = APPS[random.below(APPS.len())].into();
        }
        let mut object = match self {
            Self::ConfigMap => json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"n": "0"}}),
            Self::Pod => json!({
                "apiVersion": "v1", "kind": "Pod",
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            }),
            Self::Shape => json!({
                "apiVersion": "reads.example.com/v1", "kind": "Shape",
                "spec": {"color": "red", "replicas": 1},
            }),
        };
        if self == Self::Pod && random.percent(40) {
            object["spec"]["nodeName"] = "n1".into();
        }
        object["metadata"] = json!({"name": name, "labels": labels});
        if random.percent(15) {
            object["metadata"]["finalizers"] = json!(["example.com/own"]);
        }
        object
    }
}

/// One write.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) write: Write,
    pub(super) path: String,
    pub(super) body: Value,
}

impl Step {
    pub(super) fn show(&self) -> String {
        format!("{} {} {}", self.write.name(), self.path, self.body)
    }
}

/// A watch that begins before a step.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    /// The number of the step.
    pub(super) from: usize,
    /// With options, but for the resourceVersion.
    pub(super) path: String,
    /// Whether it begins at the version before the first step; otherwise at that before its own.
    pub(super) is_of_start: bool,
    pub(super) accept: &'static str,
}

impl Watch {
    pub(super) fn show(&self) -> String {
        let version = if self.is_of_start { "from the start" } else { "from now" };
        format!("before step {}: {} {version} ({})", self.from, self.path, self.accept)
    }
}

/// What a sequence does, and who watches it.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) kind: Kind,
    /// The label and the beginning of the names of its objects.
    pub(super) own: String,
    pub(super) steps: Vec<Step>,
    pub(super) watches: Vec<Watch>,
}

pub(super) fn draw(random: &mut Random, number: usize, seconds: usize) -> Plan {
    let own = format!("w{number}");
    let kind = [Kind::ConfigMap, Kind::Pod, Kind::Shape][random.below(3)];
    let n_steps = 6 + random.below(9);
    let steps: Vec<Step> = (0..n_steps).map(|at| step(random, kind, &own, at)).collect();
    let n_watches = 3 + random.below(3);
    let watches = (0..n_watches).map(|_| watch(random, kind, &own, n_steps, seconds)).collect();
    Plan { kind, own, steps, watches }
}

fn step(random: &mut Random, kind: Kind, own: &str, at: usize) -> Step {
    let name = format!("{own}-{}", random.below(OBJECTS));
    let all = kind.collection();
    let object = format!("{all}/{name}");
    let of = |write: Write, path: &str, body: Value| Step { write, path: path.to_owned(), body };
    let merge = |body: Value| of(Write::Merge, &object, body);
    let draw = if at < 2 { 0 } else { random.below(100) };
    match draw {
        0..24 => of(Write::Create, all, kind.object(random, &name, own)),
        24..44 => {
            let app = match random.below(4) {
                0 => Value::Null,
                n => APPS[n - 1].into(),
            };
            merge(json!({"metadata": {"labels": {"app": app}}}))
        }
        44..58 => merge(match kind {
            Kind::ConfigMap => json!({"data": {"n": random.below(4).to_string()}}),
            Kind::Pod => json!({"metadata": {"annotations": {"n": random.below(4).to_string()}}}),
            Kind::Shape => {
                let color = ["red", "green"][random.below(2)];
                json!({"spec": {"color": color, "replicas": random.below(3)}})
            }
        }),
        58..62 => merge(json!({})),
        62..72 => match kind {
            Kind::ConfigMap => merge(json!({"immutable": random.percent(20)})),
            Kind::Pod => {
                let phase = ["Running", "Pending", "Succeeded"][random.below(3)];
                of(Write::Merge, &format!("{object}/status"), json!({"status": {"phase": phase}}))
            }
            Kind::Shape => {
                let status = json!({"status": {"replicas": random.below(3)}});
                of(Write::Merge, &format!("{object}/status"), status)
            }
        },
        72..76 => merge(json!({"metadata": {"finalizers": ["example.com/own"]}})),
        76..82 => merge(json!({"metadata": {"finalizers": null}})),
        82..94 => {
            let options = match (kind, random.below(3)) {
                (Kind::Pod, 0) => json!({"gracePeriodSeconds": 30}),
                (Kind::Pod, _) => json!({"gracePeriodSeconds": 0}),
                (_, 0) => json!({"propagationPolicy": "Orphan"}),
                (_, 1) => json!({"propagationPolicy": "Foreground"}),
                _ => json!({}),
            };
            of(Write::Delete, &object, options)
        }
        94..97 => {
            let app = APPS[random.below(APPS.len())];
            let path = format!("{all}?labelSelector=own%3D{own},app%3D{app}");
            of(Write::Delete, &path, json!({"gracePeriodSeconds": 0}))
        }
        _ if kind == Kind::Pod => {
            let target = json!({"kind": "Node", "name": "n2"});
            let binding = json!({"metadata": {"name": name}, "target": target});
            of(Write::Create, &format!("{object}/binding"), binding)
        }
        _ => of(Write::Put, &object, kind.object(random, &name, own)),
    }
}

fn watch(random: &mut Random, kind: Kind, own: &str, n_steps: usize, seconds: usize) -> Watch {
    let mut path = kind.collection().to_owned();
    if kind == Kind::Shape && random.percent(30) {
        path = path.replace("/v1/", "/v2/");
    }
    if random.percent(20) {
        path = path.replace(&format!("/namespaces/{FIXTURES}"), "");
    }
    let mut labels = vec![format!("own={own}")];
    if random.percent(50) {
        labels.push(["app=a", "app!=a", "app in (a,b)", "!app", "app"][random.below(5)].to_owned());
    }
    let name = format!("{own}-{}", random.below(OBJECTS));
    let fields = match random.below(10) {
        0 => format!("metadata.name={name}"),
        1 => format!("metadata.name!={name}"),
        2 => format!("metadata.namespace={FIXTURES}"),
        3 | 4 if kind == Kind::Pod => {
            ["status.phase=Running", "spec.nodeName=n1", "spec.nodeName!=n2", "spec.nodeName="]
                [random.below(4)]
            .to_owned()
        }
        3 | 4 if kind == Kind::Shape && path.contains("/v1/") => {
            ["spec.color=red", "spec.replicas=1", "spec.color!=red"][random.below(3)].to_owned()
        }
        _ => String::new(),
    };
    let mut options = vec![format!("timeoutSeconds={seconds}")];
    let is_old = random.percent(8);
    if is_old {
        path = path.replacen("/v1/", "/v1/watch/", 1).replacen("/v2/", "/v2/watch/", 1);
    } else {
        options.push("watch=true".to_owned());
    }
    if is_old && random.percent(50) && path.contains("/namespaces/") {
        path = format!("{path}/{name}");
    } else {
        options.push(format!("labelSelector={}", escaped(&labels.join(","))));
        if !fields.is_empty() {
            options.push(format!("fieldSelector={}", escaped(&fields)));
        }
    }
    let accept = ACCEPTS[random.below(ACCEPTS.len())];
    if accept.contains("Table") && random.percent(50) {
        let include = ["None", "Metadata", "Object"][random.below(3)];
        options.push(format!("includeObject={include}"));
    }
    if random.percent(15) {
        options.push("allowWatchBookmarks=true".to_owned());
    }
    let is_of_start = random.percent(55);
    let from = if random.percent(50) { 0 } else { random.below(n_steps) };
    let path = format!("{path}?{}", options.join("&"));
    Watch { from, path, is_of_start, accept }
}

fn escaped(text: &str) -> String {
    text.replace('!', "%21").replace('=', "%3D").replace(' ', "%20")
}
