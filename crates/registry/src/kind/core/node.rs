//! Nodes.
use crate::features::Feature;
use crate::kind::annotated::{self, Struct, Type};
use crate::kind::at::{At, check};
use crate::kind::{
    Context, Fill, Kind, Members, MetadataChecks, ProxiedTo, Report, Selectable, StatusMeta,
    StatusRule, address, list, not_supported, resources, template, text,
};
use crate::table::cell;
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;
use setpoint_object::{field, name};
use std::collections::HashSet;

/// Node.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks::WHOLE_THEN_CHANGE,
    proxied_to: ProxiedTo::Kubelet,
    default,
    prepare,
    validate,
    validate_change,
    warnings,
    update_warnings: |node, _| warnings(node),
    disabled: &[(None, &["spec.configSource"]), (None, &["status.config"])],
    validate_status: validate_change,
    selectable: &[Selectable { absent: "false", ..Selectable::new("spec.unschedulable") }],
    selects_namespace: false,
    unknown_label: not_supported,
    cells: Some(cells),
    rules: "taints, amounts, addresses, ranges; declared features; swap; what is set once; taints and avoided pods in annotations; dynamic configuration that is there",
    // Kubelets register with their status.
    status: Some(StatusRule { keeps_new: true, ..StatusRule::new(StatusMeta::All, INITIAL) }),
    ..Kind::plain("", "Node")
};

/// Node information has members that are always present.
const INITIAL: &str = r#"{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"architecture":"","bootID":"","containerRuntimeVersion":"","kernelVersion":"","kubeProxyVersion":"","kubeletVersion":"","machineID":"","operatingSystem":"","osImage":"","systemUUID":""}}"#;

/// The value of node information that a kubelet has not reported.
const UNKNOWN: &str = "<unknown>";

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";

const ROLE_LABEL: &str = "kubernetes.io/role";

/// Node: allocatable is the capacity by default. The single range is the first of the list, and
/// wins over another one.
fn default(object: &mut Members, _version: &str) {
    if let Some(spec) = object.object("spec") {
        let first = |spec: &Members| {
            spec.get("podCIDRs")
                .and_then(|all| all.get(0))
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let single = spec.text("podCIDR").to_owned();
        match first(spec) {
            None if single.is_empty() => {}
            Some(first) if single.is_empty() || single == first => {
                spec.insert("podCIDR".to_owned(), first.into());
            }
            _ => drop(spec.insert("podCIDRs".to_owned(), json!([single]))),
        }
    }
    let Some(status) = object.object("status") else { return };
    if let Some(capacity) = status.get("capacity").cloned() {
        status.absent("allocatable", capacity);
    }
}

/// A new node declares features only while that is a feature. Its agent may do so later.
fn prepare(context: &Context<'_>, node: &mut Value, old: Option<&Value>) {
    if old.is_none()
        && !context.features.is_on(Feature::NodeDeclaredFeatures)
        && let Some(status) = node.get_mut("status").and_then(Value::as_object_mut)
    {
        status.remove("declaredFeatures");
    }
}

fn warnings(node: &Value) -> Vec<String> {
    let mut all = Vec::new();
    if !node["spec"]["configSource"].is_null() {
        all.push("spec.configSource: the feature is removed".to_owned());
    }
    if !text(&node["spec"], "externalID").is_empty() {
        all.push(
            "spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned(),
        );
    }
    for (i, range) in list(&node["spec"], "podCIDRs").iter().enumerate() {
        let place = || format!("spec.podCIDRs[{i}]");
        all.extend(address::cidr_warnings(place, range.as_str().unwrap_or_default()));
    }
    all
}

/// Validates a node: taints, amounts, features and ranges.
fn validate(node: &Value, old: Option<&Value>, errors: &mut Report) {
    check(node, old, errors, |at| {
        annotations(&at.get("metadata.annotations"));
        spec_taints(at);
        amounts(at);
        // The API's path starts with `metadata`.
        let metadata = at.get("metadata");
        let swap = metadata
            .shown_as("nodeSwapStatus.capacity", at.get("status.nodeInfo.swap.capacity").value);
        swap.positive("must be greater than zero");
        declared_features(at);
        ranges(&at.get("spec.podCIDRs"));
    });
}
/// What is set once, and other rules of an update.
fn validate_change(node: &Value, old: Option<&Value>, errors: &mut Report) {
    let Some(before) = old else { return };
    // The API checks the status of a changed node twice, and reports both.
    check(node, old, errors, |at| {
        annotations(&at.get("metadata.annotations"));
        amounts(at);
        declared_features(at);
        let mut addresses = HashSet::new();
        for address in at.each("status.addresses") {
            if !addresses.insert((address.text_of("type"), address.text_of("address"))) {
                address.duplicate();
            }
        }
    });
    let old = before;
    check(node, None, errors, |at| {
        let (spec, before) = (at.get("spec"), &old["spec"]);
        let (now, ranges) = (spec.list_of("podCIDRs"), list(before, "podCIDRs"));
        let n_changed = match now.len() == ranges.len() {
            true => now.iter().zip(ranges).filter(|(now, before)| now != before).count(),
            false => usize::from(!ranges.is_empty()),
        };
        for _ in 0..n_changed {
            spec.get("podCIDRs")
                .forbidden("node updates may not change podCIDR except from \"\" to valid");
        }
        let id = text(before, "providerID");
        if !id.is_empty() && id != spec.text_of("providerID") {
            spec.get("providerID")
                .forbidden("node updates may not change providerID except from \"\" to valid");
        }
        if let Some(source) = at.given("spec.configSource") {
            config_source(&source, |map| {
                for member in ["uid", "resourceVersion"] {
                    if !map.text_of(member).is_empty() {
                        map.get(member).forbidden(format!("{member} must not be set in spec"));
                    }
                }
            });
        }
        let config = at.get("status.config");
        for member in ["assigned", "active", "lastKnownGood"] {
            if let Some(source) = config.given(member) {
                config_source(&source, |map| {
                    map.get("uid").need();
                    map.get("resourceVersion").need();
                });
            }
        }
        // So are changed taints.
        if spec.value["taints"] != before["taints"] {
            spec_taints(at);
        }
        if spec.text_of("externalID") != text(before, "externalID") {
            spec.get("externalID").forbidden("may not be updated");
        }
    });
}
/// Capacity and what of it pods can have.
fn amounts(at: &At<'_, '_>) {
    let status = at.get("status");
    for member in ["capacity", "allocatable"] {
        let amounts = status.get(member).value.as_object();
        for (name, amount) in amounts.into_iter().flatten() {
            // The API's paths have the resource as a member.
            resources::quantity(&status.get(member).shown_as(name, amount), name);
        }
    }
}
/// The ranges of the addresses of pods: at most one of each family.
fn ranges(ranges: &At<'_, '_>) {
    for range in ranges.items() {
        range.faults(address::old_cidr(&range, range.text()));
    }
    let wrong = |range: &At<'_, '_>| address::Cidr::parse(range.text()).is_none();
    let first_wrong =
        ranges.items().enumerate().find(|(_, range)| wrong(range)).filter(|_| ranges.len() > 1);
    if let Some((i, range)) = first_wrong {
        ranges.report(|path| field::Error {
            kind: field::ErrorKind::Internal,
            path,
            shown: None,
            detail: format!(
                "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{i}]: <nil> (invalid CIDR address: {})",
                range.text()
            ),
        });
    }
    let is_six = |range: &&Value| {
        let network = range.as_str().and_then(|range| range.split_once('/'));
        network.is_some_and(|(ip, _)| address::is_six(ip))
    };
    let n_six = ranges.list().iter().filter(is_six).count();
    if ranges.len() > 2 || ranges.len() == 2 && (n_six != 1 || first_wrong.is_some()) {
        ranges.invalid("may specify no more than one CIDR for each IP family");
    }
}
/// The names of features that a node agent declares, sorted.
fn declared_features(at: &At<'_, '_>) {
    let mut before = None;
    for feature in at.each("status.declaredFeatures") {
        let text = feature.text();
        match before {
            Some(before) if before == text => feature.duplicate(),
            Some(before) if before > text => feature.invalid("list must be sorted alphabetically"),
            _ => {}
        }
        before = Some(text);
        let shown = field::quote(text);
        if text.len() > FEATURE_BYTES_MAX {
            feature.invalid(format!(
                "invalid feature name {shown}: must be no more than {FEATURE_BYTES_MAX} characters"
            ));
        } else if !is_feature(text) {
            feature.invalid(format!(
                "invalid feature name {shown}: must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
            ));
        }
    }
}
/// Maximum length of a feature's name in bytes.
const FEATURE_BYTES_MAX: usize = 253;
fn is_feature(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.split('/').all(|segment| {
            segment.starts_with(|c: char| c.is_ascii_alphabetic())
                && segment.bytes().all(|b| b.is_ascii_alphanumeric())
        })
}
/// Where a node's agent had its configuration from. `identity` checks what says which object of
/// that name it is.
fn config_source(source: &At<'_, '_>, identity: impl FnOnce(&At<'_, '_>)) {
    let Some(map) = source.given("configMap") else {
        return source.invalid("exactly one reference subfield must be non-nil");
    };
    identity(&map);
    map.get("namespace").named(name::dns1123_label);
    map.get("name").named(name::dns1123_subdomain);
    map.get("kubeletConfigKey").named(name::config_key);
}

const TAINT: Struct = Struct {
    name: "core.Taint",
    members: &[
        ("Key", Type::Text("string")),
        ("Value", Type::Text("string")),
        ("Effect", Type::Text("core.TaintEffect")),
        ("TimeAdded", Type::Time),
    ],
};
const AVOIDED: Struct =
    Struct { name: "v1.AvoidPods", members: &[("preferAvoidPods", Type::List(&AVOIDED_ENTRY))] };
const AVOIDED_ENTRY: Struct = Struct {
    name: "v1.PreferAvoidPodsEntry",
    members: &[
        ("podSignature", Type::Struct(&SIGNATURE)),
        ("evictionTime", Type::Time),
        ("reason", Type::Text("string")),
        ("message", Type::Text("string")),
    ],
};
const SIGNATURE: Struct =
    Struct { name: "v1.PodSignature", members: &[("podController", Type::Struct(&OWNER))] };
const OWNER: Struct = Struct {
    name: "v1.OwnerReference",
    members: &[
        ("apiVersion", Type::Text("string")),
        ("kind", Type::Text("string")),
        ("name", Type::Text("string")),
        ("uid", Type::Text("types.UID")),
        ("controller", Type::Boolean),
        ("blockOwnerDeletion", Type::Boolean),
    ],
};
const TAINTS: &str = "scheduler.alpha.kubernetes.io/taints";
const AVOIDED_PODS: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";

/// Annotations from before taints were members, and those of pods that were better elsewhere.
fn annotations(at: &At<'_, '_>) {
    annotated::check(at, (TAINTS, Type::List(&TAINT)), at, taints);
    let wrong = at.get("AvoidPods");
    annotated::check(at, (AVOIDED_PODS, Type::Struct(&AVOIDED)), &wrong, |given| {
        for entry in given.with(&given.value["preferAvoidPods"]).items() {
            let signature = entry.shown_as("PodSignature", &entry.value["podSignature"]);
            match signature.given("podController") {
                None => signature.required(""),
                Some(owner) if owner.is("controller") => {}
                Some(_) => signature
                    .get("PodController.Controller")
                    .invalid_as(&false.into(), "must point to a controller"),
            }
        }
    });
}

/// Taints of the spec. The API's paths to them start with `metadata`.
fn spec_taints(at: &At<'_, '_>) {
    taints(&at.get("metadata").shown_as("taints", at.get("spec.taints").value));
}
/// Taints: each key once for an effect.
fn taints(taints: &At<'_, '_>) {
    let mut seen = HashSet::new();
    for taint in taints.items() {
        let (key, value, effect) = (taint.get("key"), taint.get("value"), taint.get("effect"));
        for fault in name::qualified_name(key.text()) {
            key.invalid_as(&key.text().into(), fault);
        }
        let faults = name::label_value(value.text());
        if !faults.is_empty() {
            value.invalid(faults.join(";"));
        }
        template::taint_effect(&effect);
        if !seen.insert((key.text(), effect.text())) {
            taint.report(|path| {
                let mut error = field::Error::duplicate(path, taint.value);
                error.detail = "taints must be unique by key and effect pair".to_owned();
                error
            });
        }
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut status = match cell::condition(object, "status.conditions", "Ready") {
        Some(ready) if cell::text(ready, "status") == "True" => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if cell::at(object, "spec.unschedulable") == true {
        status.push_str(",SchedulingDisabled");
    }
    let info = cell::at(object, "status.nodeInfo");
    let address = |ty: &str| {
        cell::list(object, "status.addresses")
            .iter()
            .find(|address| cell::text(address, "type") == ty)
            .map_or(cell::NONE, |address| cell::text(address, "address"))
    };
    let mut kernel = cell::text_or(info, "kernelVersion", UNKNOWN).to_owned();
    match cell::text(info, "architecture") {
        "" => {}
        architecture => kernel.push_str(&format!(" ({architecture})")),
    }
    vec![
        cell::name(object),
        status.into(),
        roles(object).into(),
        cell::age(object, now),
        cell::text(info, "kubeletVersion").into(),
        address("InternalIP").into(),
        address("ExternalIP").into(),
        cell::text_or(info, "osImage", UNKNOWN).into(),
        kernel.into(),
        cell::text_or(info, "containerRuntimeVersion", UNKNOWN).into(),
    ]
}

/// Roles from labels, sorted, without duplicates.
fn roles(object: &Value) -> String {
    let mut roles: Vec<&str> = cell::at(object, "metadata.labels")
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix(ROLE_PREFIX) {
            Some(role) => Some(role),
            None if key == ROLE_LABEL => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    if roles.is_empty() { cell::NONE.to_owned() } else { roles.join(",") }
}
