//! Warnings for new pods and templates: what is valid and probably not meant.

use super::ALL_CONTAINERS;
use super::profile::{
    APP_ARMOR_OF_CONTAINER, APP_ARMOR_WARNING, SECCOMP_OF_CONTAINER, SECCOMP_OF_POD, app_armor_of,
};
use crate::kind::{address, node_label, text};
use serde_json::Value;
use setpoint_object::field;
use std::cell::RefCell;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

/// Maximum number of warnings: each is a header.
const WARNINGS_MAX: usize = 32;

/// Maximum number of files of one volume that are compared with each other.
const FILES_MAX: usize = 256;

/// Volume sources that nothing serves any more, with the API's words.
const DEPRECATED: [(&str, &str); 9] = [
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Annotations that nothing reads any more, with the API's words.
const DEPRECATED_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        r#"non-functional in v1.16+; use the "priorityClassName" field instead"#,
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        r#"non-functional in v1.11+; use the "sysctls" field instead"#,
    ),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        r#"non-functional in v1.11+; use the "sysctls" field instead"#,
    ),
];
/// The warning for annotations of seccomp profiles.
const SECCOMP: &str = r#"non-functional in v1.27+; use the "seccompProfile" field instead"#;

/// Warnings for a pod.
pub(in crate::kind) fn of_pod(pod: &Value) -> Vec<String> {
    of_object(pod, None)
}

/// Warnings for the spec of a claim at a path: amounts that are no whole number of bytes.
pub(in crate::kind) fn of_claim(spec: &Value, path: &str) -> Vec<String> {
    let mut all = Vec::new();
    for list in ["requests", "limits"] {
        let amount = text(&spec["resources"][list], "storage");
        // In canonical form only fractions are written in thousandths.
        if amount.ends_with('m') {
            all.push(format!("{path}.resources.{list}[storage]: {}", fraction(amount)));
        }
    }
    all
}

/// Warnings for a template at a path.
pub(in crate::kind) fn of_template(template: &Value, path: &str) -> Vec<String> {
    of_object(template, Some(path))
}

/// The warning about a quantity of bytes that is no whole number.
fn fraction(amount: &str) -> String {
    format!("fractional byte value {} is invalid, must be an integer", field::quote(amount))
}

/// How two ports of the same number and protocol are alike on their host: number and address.
fn overlap(a: (i64, &str), b: (i64, &str)) -> Option<&'static str> {
    if a == b {
        Some("duplicate")
    } else if a.0 == 0 || b.0 == 0 {
        Some("overlapping")
    } else {
        (a.0 == b.0 && a.1.is_empty() != b.1.is_empty()).then_some("dangerously ambiguous")
    }
}

/// The lists of an affinity.
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

const NO_SELECTOR: &str = "a null labelSelector results in matching no pod";

fn items<'a>(value: &'a Value, member: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    crate::kind::list(value, member).iter().enumerate()
}

/// A file of a volume: its path without slashes at the end, and the source of a projected one.
#[derive(Clone, PartialEq)]
struct File<'a> {
    path: &'a str,
    source: String,
}

impl File<'_> {
    fn overlaps(&self, other: &Self) -> bool {
        let below = |a: &str, b: &str| a.strip_prefix(b).is_some_and(|rest| rest.starts_with('/'));
        let (a, b) = (self.path, other.path);
        !a.is_empty() && !b.is_empty() && (a == b || below(a, b) || below(b, a))
    }
}

impl std::fmt::Display for File<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.source.as_str() {
            "" => write!(f, "{}", field::quote(self.path)),
            source => write!(f, "{} ({source})", field::quote(self.path)),
        }
    }
}

/// The files of one volume so far, and where warnings go.
struct Files<'a, F> {
    volume: String,
    files: Vec<File<'a>>,
    add: F,
}

impl<'a, F: Fn(String)> Files<'a, F> {
    /// Warns of the earlier files that a file hides or is hidden by. `shown`: the kind of volume.
    fn file(&mut self, shown: &str, path: &'a str, source: &str) {
        let file = File { path: path.trim_end_matches('/'), source: source.to_owned() };
        for other in self.files.iter().filter(|other| file.overlaps(other)) {
            let volume = &self.volume;
            (self.add)(format!(
                "volume {volume} ({shown}): overlapping paths: {file} with {other}"
            ));
        }
        // All are compared with all: of very many, the first ones are enough.
        if self.files.len() < FILES_MAX {
            self.files.push(file);
        }
    }
    fn all(&mut self, of: &'a Value, shown: &str, source: &str) {
        items(of, "items").for_each(|(_, item)| self.file(shown, text(item, "path"), source));
    }
}

/// Warns of files of one volume that hide each other, and of sources of nothing.
fn of_files(volume: &Value, add: impl Fn(String)) {
    // Most volumes have no files of their own.
    const WITH_FILES: [&str; 4] = ["configMap", "secret", "downwardAPI", "projected"];
    if !WITH_FILES.iter().any(|source| volume.get(source).is_some()) {
        return;
    }
    let name = field::quote(text(volume, "name"));
    let named = |noun: &str, name: &str| format!("{noun} {}", field::quote(name));
    let mut files = Files { volume: name.clone(), files: Vec::new(), add };
    let config_map = &volume["configMap"];
    files.all(config_map, &named("ConfigMap", text(config_map, "name")), "");
    let secret = &volume["secret"];
    files.all(secret, &named("Secret", text(secret, "secretName")), "");
    files.all(&volume["downwardAPI"], "DownwardAPI", "");
    const PROJECTED: &str = "Projected";
    for (_, source) in items(&volume["projected"], "sources") {
        if source.as_object().is_some_and(|members| members.is_empty()) {
            (files.add)(format!("volume {name} (Projected) has no sources provided"));
        }
        let of = |member: &str| source.get(member).filter(|of| of.is_object());
        let has_items = |of: &&Value| !of["items"].is_null();
        if let Some(of) = of("configMap").filter(has_items) {
            files.all(of, PROJECTED, &named("ConfigMap", text(of, "name")));
        } else if let Some(of) = of("secret").filter(has_items) {
            files.all(of, PROJECTED, &named("Secret", text(of, "name")));
        } else if let Some(of) = of("downwardAPI").filter(has_items) {
            files.all(of, PROJECTED, "DownwardAPI");
        } else if let Some(of) = of("serviceAccountToken") {
            files.file(PROJECTED, text(of, "path"), "ServiceAccountToken");
        }
    }
}

/// Warns of labels of nodes by which the pod is placed, and of selectors of nothing.
fn of_placement(spec: &Value, path: &field::Path, add: impl Fn(String)) {
    for (key, _) in spec["nodeSelector"].as_object().into_iter().flatten() {
        if let Some(message) = node_label::deprecation(key) {
            add(format!("{}: {message}", path.child("nodeSelector").key(key)));
        }
    }
    let affinity = &spec["affinity"]["nodeAffinity"];
    let path_of = |member: &str| path.child("affinity").child("nodeAffinity").child(member);
    for (i, term) in items(&affinity[REQUIRED], "nodeSelectorTerms") {
        let path = path_of(REQUIRED).child("nodeSelectorTerms").index(i);
        node_label::of_term(term, false, &path).into_iter().for_each(&add);
    }
    for (i, term) in items(affinity, PREFERRED) {
        let path = path_of(PREFERRED).index(i).child("preference");
        node_label::of_term(&term["preference"], true, &path).into_iter().for_each(&add);
    }
    for (i, constraint) in items(spec, "topologySpreadConstraints") {
        let path = path.child("topologySpreadConstraints").index(i);
        let key = text(constraint, "topologyKey");
        if let Some(message) = node_label::deprecation(key) {
            add(format!("{}: {key} is {message}", path.child("topologyKey")));
        }
        if constraint.get("labelSelector").is_none() {
            add(format!("{}: {NO_SELECTOR}", path.child("labelSelector")));
        }
    }
}

/// Warnings for a pod, or for a template at a path, in the order of the API.
fn of_object(object: &Value, root: Option<&str>) -> Vec<String> {
    let path_of = |member: &str| match root {
        None => field::Path::new(member),
        Some(root) => field::Path::new(root).child(member),
    };
    let pod = Warned {
        spec: &object["spec"],
        path: path_of("spec"),
        annotations: &object["metadata"]["annotations"],
        annotations_path: path_of("metadata").child("annotations"),
        is_template: root.is_some(),
        warnings: RefCell::new(Vec::new()),
    };
    of_placement(pod.spec, &pod.path, |warning| pod.add(warning));
    for (key, message) in DEPRECATED_ANNOTATIONS {
        pod.warn_of_annotation(key, message);
    }
    pod.volumes();
    pod.references();
    for name in BYTES {
        pod.fraction(&pod.spec["overhead"], name, || pod.path.child("overhead"));
    }
    if pod.spec["securityContext"]["seccompProfile"].is_null() {
        pod.warn_of_annotation(SECCOMP_OF_POD, SECCOMP);
    }
    for (path, container) in pod.containers() {
        pod.profiles_of_container(container);
        pod.amounts_of_container(container, &path);
        pod.variables(container, &path);
    }
    pod.ports();
    pod.port_names();
    pod.termination();
    pod.affinity();
    pod.addresses();
    pod.warnings.into_inner()
}

/// Resources that are counted in bytes.
const BYTES: [&str; 2] = ["memory", "ephemeral-storage"];

/// The parts of a pod or template, and the warnings so far.
struct Warned<'a> {
    spec: &'a Value,
    path: field::Path,
    annotations: &'a Value,
    annotations_path: field::Path,
    is_template: bool,
    warnings: RefCell<Vec<String>>,
}

impl<'a> Warned<'a> {
    fn add(&self, warning: String) {
        let mut warnings = self.warnings.borrow_mut();
        if warnings.len() < WARNINGS_MAX {
            warnings.push(warning);
        }
    }

    fn warn(&self, path: field::Path, message: String) {
        self.add(format!("{path}: {message}"));
    }

    fn warn_of_annotation(&self, key: &str, message: &str) {
        if self.annotations.get(key).is_some() {
            self.warn(self.annotations_path.key(key), message.to_owned());
        }
    }

    /// All containers with their paths.
    fn containers(&self) -> impl Iterator<Item = (field::Path, &'a Value)> {
        ALL_CONTAINERS.into_iter().flat_map(move |list| {
            items(self.spec, list).map(move |(i, one)| (self.path.child(list).index(i), one))
        })
    }

    /// All ports of containers with their paths.
    fn all_ports(&self) -> impl Iterator<Item = (field::Path, &'a Value)> {
        self.containers().flat_map(|(path, container)| {
            items(container, "ports").map(move |(j, port)| (path.child("ports").index(j), port))
        })
    }

    fn volumes(&self) {
        for (i, volume) in items(self.spec, "volumes") {
            let path = self.path.child("volumes").index(i);
            // A volume has few members, and one source.
            for name in volume.as_object().into_iter().flatten().map(|(name, _)| name) {
                for (source, message) in DEPRECATED.iter().filter(|(source, _)| source == name) {
                    let shown = if *source == "storageos" { "storageOS" } else { source };
                    self.warn(path.child(shown), (*message).to_owned());
                }
            }
            let claim = &volume["ephemeral"]["volumeClaimTemplate"]["spec"];
            if claim.is_object() {
                let path = path.child("ephemeral.volumeClaimTemplate.spec").text();
                of_claim(claim, &path).into_iter().for_each(|warning| self.add(warning));
            }
        }
        for (_, volume) in items(self.spec, "volumes") {
            of_files(volume, |warning| self.add(warning));
        }
    }

    /// Aliases of hosts and pull secrets: each once, and secrets with names.
    fn references(&self) {
        for (list, member, noun) in
            [("hostAliases", "ip", "ip"), ("imagePullSecrets", "name", "name")]
        {
            let mut seen = HashSet::new();
            for (i, item) in items(self.spec, list) {
                let value = text(item, member);
                if !seen.insert(value) {
                    let path = self.path.child(list).index(i).child(member);
                    self.warn(path, format!("duplicate {noun} {}", field::quote(value)));
                }
            }
        }
        for (i, secret) in items(self.spec, "imagePullSecrets") {
            if text(secret, "name").is_empty() {
                let path = self.path.child("imagePullSecrets").index(i).child("name");
                self.warn(path, "invalid empty name \"\"".to_owned());
            }
        }
    }

    /// Warns of an amount of a resource that is no whole number.
    fn fraction(&self, amounts: &Value, name: &str, path: impl Fn() -> field::Path) {
        // In canonical form only fractions are written in thousandths.
        let amount = text(amounts, name);
        if amount.ends_with('m') {
            self.warn(path().key(name), fraction(amount));
        }
    }

    fn amounts_of_container(&self, container: &Value, path: &field::Path) {
        let [limits, requests] =
            ["limits", "requests"].map(|member| (member, &container["resources"][member]));
        for name in BYTES {
            for (member, amounts) in [limits, requests] {
                self.fraction(amounts, name, || path.child("resources").child(member));
            }
        }
    }

    /// Annotations in place of members that a container may have.
    fn profiles_of_container(&self, container: &Value) {
        if self.annotations.is_null() {
            return;
        }
        let name = text(container, "name");
        let has_profile = |profile: &str| !container["securityContext"][profile].is_null();
        if !has_profile("seccompProfile") {
            self.warn_of_annotation(&format!("{SECCOMP_OF_CONTAINER}{name}"), SECCOMP);
        }
        // Of a pod, the annotation becomes a member, with a warning of its own.
        if self.is_template && !has_profile("appArmorProfile") {
            let of_pod = &self.spec["securityContext"]["appArmorProfile"];
            let key = format!("{APP_ARMOR_OF_CONTAINER}{name}");
            let annotated = text(self.annotations, &key);
            if of_pod.is_null() || app_armor_of(annotated).as_ref() != Some(of_pod) {
                self.warn_of_annotation(&key, APP_ARMOR_WARNING);
            }
        }
    }

    /// Environment variables that hide earlier ones.
    fn variables(&self, container: &Value, path: &field::Path) {
        let mut names: Vec<&str> =
            items(container, "env").map(|(_, variable)| text(variable, "name")).collect();
        names.sort_unstable();
        // Most have names of their own, and to sort them takes less than to hash them.
        if names.is_sorted_by(|a, b| a < b) {
            return;
        }
        let mut variables = HashSet::new();
        for (j, variable) in items(container, "env") {
            let name = text(variable, "name");
            // A variable may add to the one of the same name before it.
            let extends = || {
                let (value, reference) = (text(variable, "value"), format!("$({name})"));
                value.contains(&reference) && value != reference
            };
            if !variables.insert(name) && !extends() {
                let name = field::quote(name);
                self.warn(
                    path.child("env").index(j),
                    format!(
                        "hides previous definition of {name}, which may be dropped when using apply"
                    ),
                );
            }
        }
    }

    /// Ports that are alike on their host.
    fn ports(&self) {
        let mut ports = HashMap::new();
        for (path, port) in self.all_ports() {
            let (host_ip, protocol) = (text(port, "hostIP"), text(port, "protocol"));
            let host = (port["hostPort"].as_i64().unwrap_or(0), host_ip);
            let number = port["containerPort"].as_i64();
            if !host_ip.is_empty() && host.0 == 0 {
                let (name, number) = (text(port, "name"), number.unwrap_or(0));
                self.warn(
                    path.clone(),
                    format!(
                        "hostIP set without hostPort: {{Name:{name} HostPort:0 ContainerPort:{number} Protocol:{protocol} HostIP:{host_ip}}}"
                    ),
                );
            }
            let others = ports.entry((number, protocol)).or_insert_with(Vec::new);
            for (other, other_host) in others.iter().take(WARNINGS_MAX) {
                if let Some(how) = overlap(host, *other_host) {
                    self.warn(path.clone(), format!("{how} port definition with {other}"));
                }
            }
            others.push((path, host));
        }
    }

    fn port_names(&self) {
        let mut names = HashMap::new();
        for (path, port) in self.all_ports() {
            let name = text(port, "name");
            if name.is_empty() {
                continue;
            }
            match names.entry(name) {
                Entry::Occupied(other) => {
                    let (name, other) = (field::quote(name), other.get());
                    self.warn(
                        path,
                        format!(
                            "duplicate port name {name} with {other}, services and probes that select ports by name will use {other}"
                        ),
                    );
                }
                Entry::Vacant(first) => _ = first.insert(path),
            }
        }
    }

    fn termination(&self) {
        let seconds = &self.spec["terminationGracePeriodSeconds"];
        if seconds.as_i64().is_some_and(|seconds| seconds < 0) {
            self.warn(
                self.path.child("terminationGracePeriodSeconds"),
                "must be >= 0; negative values are invalid and will be treated as 1".to_owned(),
            );
        }
    }

    /// Terms of the affinity to pods that select none.
    fn affinity(&self) {
        for kind in ["podAffinity", "podAntiAffinity"] {
            for (list, inner) in [(REQUIRED, ""), (PREFERRED, "podAffinityTerm")] {
                for (i, term) in items(&self.spec["affinity"][kind], list) {
                    let mut path = self.path.child("affinity").child(kind).child(list).index(i);
                    let mut term = term;
                    if !inner.is_empty() {
                        (path, term) = (path.child(inner), &term[inner]);
                    }
                    if term.get("labelSelector").is_none() {
                        self.warn(path.child("labelSelector"), NO_SELECTOR.to_owned());
                    }
                }
            }
        }
    }

    /// Addresses that are not in canonical form.
    fn addresses(&self) {
        for (i, server) in items(&self.spec["dnsConfig"], "nameservers") {
            let place = || self.path.child("dnsConfig.nameservers").index(i).text();
            let server = server.as_str().unwrap_or_default();
            address::ip_warning(place, server).into_iter().for_each(|warning| self.add(warning));
        }
        for (i, alias) in items(self.spec, "hostAliases") {
            let place = || self.path.child("hostAliases").index(i).child("ip").text();
            let ip = text(alias, "ip");
            address::ip_warning(place, ip).into_iter().for_each(|warning| self.add(warning));
        }
    }
}
