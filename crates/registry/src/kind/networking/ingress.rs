//! Ingresses: backends and path matching.
use crate::features::Feature;
use crate::kind::at::{At, check};
use crate::kind::load_balancer::{self, host_name, load_balancer};
use crate::kind::{Kind, MetadataCheck, MetadataChecks, Report, StatusMeta, format, list, text};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;
use setpoint_object::{field, name};

/// Ingress.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks::before(&[MetadataCheck::Change, MetadataCheck::Whole]),
    validate,
    validate_status,
    warnings,
    status_warnings: load_balancer::warnings,
    cells: Some(cells),
    rules: "hosts, paths, backends, TLS; `status`",
    ..Kind::with_status("networking.k8s.io", "Ingress", StatusMeta::All, r#"{"loadBalancer":{}}"#)
};

/// Maximum number of hosts in a cell.
const LISTED_MAX: usize = 3;

/// The annotation with the class from before there was a field.
const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// Validates backends and path matching.
fn validate(ingress: &Value, old: Option<&Value>, errors: &mut Report) {
    check(ingress, old, errors, |at| {
        let (spec, service_name) = (at.get("spec"), service_name(at));
        if spec.list_of("rules").is_empty() && !spec.has("defaultBackend") {
            spec.invalid_as(
                spec.get("rules").value,
                "either `defaultBackend` or `rules` must be specified",
            );
        }
        if let Some(default) = spec.given("defaultBackend") {
            backend(&default, service_name);
        }
        for rule in spec.each("rules") {
            host_name(&rule.get("host"), true);
            if let Some(http) = rule.given("http") {
                paths(&http.get("paths"), service_name);
            }
        }
        for tls in spec.each("tls") {
            for host in tls.each("hosts") {
                host.faults(match host.text().contains('*') {
                    true => format::wildcard_subdomain(host.text()),
                    false => name::dns1123_subdomain(host.text()),
                });
            }
            tls.get("secretName").named_if_set(name::dns1123_subdomain);
        }
        spec.get("ingressClassName").formed(name::dns1123_subdomain);
    });
    if old.is_none() {
        check(ingress, None, errors, |at| {
            let class = at.get("metadata.annotations").value.get(CLASS_ANNOTATION);
            let Some(class) = class.filter(|_| at.has("spec.ingressClassName")) else { return };
            if class != at.get("spec.ingressClassName").value {
                at.get("annotations")
                    .get(CLASS_ANNOTATION)
                    .invalid_as(class, "must match `ingressClassName` when both are specified");
            }
        });
    }
}

fn paths(paths: &At<'_, '_>, service_name: Form) {
    paths.need();
    for entry in paths.items() {
        let (kind, path) = (entry.get("pathType"), entry.get("path"));
        if !kind.is_set() {
            kind.required("pathType must be specified");
            continue;
        }
        let text = path.text();
        let absolute = || {
            if !text.starts_with('/') {
                path.invalid_as(&text.into(), "must be an absolute path");
            }
        };
        match kind.text() {
            "Exact" | "Prefix" => {
                absolute();
                for part in ["//", "/./", "/../", "%2f", "%2F"] {
                    if text.contains(part) {
                        path.invalid(format!("must not contain '{part}'"));
                    }
                }
                for end in ["/..", "/."] {
                    if text.ends_with(end) {
                        path.invalid(format!("cannot end with '{end}'"));
                    }
                }
            }
            "ImplementationSpecific" if text.is_empty() => {}
            "ImplementationSpecific" => absolute(),
            _ => kind.unsupported(&["Exact", "ImplementationSpecific", "Prefix"]),
        }
        backend(&entry.get("backend"), service_name);
    }
}

/// The faults of a name.
type Form = fn(&str) -> Vec<String>;

/// The form of the names of Services: labels. Without the feature for that they begin with a
/// letter, unless a stored one does not.
fn service_name(at: &At<'_, '_>) -> Form {
    let spec = &at.stored()["spec"];
    let paths = list(spec, "rules").iter().flat_map(|rule| list(&rule["http"], "paths"));
    let mut stored = std::iter::once(&spec["defaultBackend"])
        .chain(paths.map(|path| &path["backend"]))
        .map(|backend| text(&backend["service"], "name"));
    let is_relaxed =
        |name| name::dns1123_label(name).is_empty() && !name::dns1035_label(name).is_empty();
    match at.is_on(Feature::RelaxedServiceNameValidation) || stored.any(is_relaxed) {
        true => name::dns1123_label,
        false => name::dns1035_label,
    }
}

/// A service with a port, or another object.
fn backend(at: &At<'_, '_>, service_name: Form) {
    match (at.given("service"), at.given("resource")) {
        (Some(_), Some(_)) => at.invalid_union("cannot set both resource and service backends"),
        (None, None) => at.invalid_union("resource or service backend is required"),
        (None, Some(resource)) => {
            resource.get("apiGroup").formed(name::dns1123_subdomain);
            resource.get("kind").named(name::path_segment);
            resource.get("name").named(name::path_segment);
        }
        (Some(service), None) => {
            let name = at.shown_as("service.name", service.get("name").value);
            name.named(service_name);
            let port = service.get("port");
            match (port.text_of("name"), port.int_of("number")) {
                ("", 0) => at.required("port name or number is required"),
                ("", _) => port.get("number").port(),
                (name, 0) => port.get("name").faults(format::port_name(name)),
                _ => at.invalid_union("cannot set both port name & port number"),
            }
        }
    }
}

fn validate_status(ingress: &Value, old: Option<&Value>, errors: &mut Report) {
    check(ingress, old, errors, |at| {
        load_balancer::validate(&at.get("status.loadBalancer"), false);
    });
}

fn warnings(ingress: &Value) -> Vec<String> {
    let is_old = ingress["metadata"]["annotations"].get(CLASS_ANNOTATION).is_some()
        && ingress["spec"].get("ingressClassName").is_none();
    let warning = is_old.then(|| {
        format!(
            "annotation {} is deprecated, please use 'spec.ingressClassName' instead",
            field::quote(CLASS_ANNOTATION)
        )
    });
    warning.into_iter().collect()
}

/// The first hosts. The rules after them are counted, with a host or without.
fn hosts(rules: &[Value]) -> String {
    let hosts = rules.iter().enumerate().map(|(i, rule)| (i, cell::text(rule, "host")));
    let first: Vec<_> = hosts.filter(|(_, host)| !host.is_empty()).take(LISTED_MAX).collect();
    let shown = first.iter().map(|(_, host)| *host).collect::<Vec<_>>().join(",");
    match first.last() {
        None => "*".to_owned(),
        Some((last, _)) if first.len() == LISTED_MAX && rules.len() > last + 1 => {
            format!("{shown} + {} more...", rules.len() - LISTED_MAX)
        }
        Some(_) => shown,
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let ports = if cell::len(object, "spec.tls") > 0 { "80, 443" } else { "80" };
    vec![
        cell::name(object),
        cell::text_or(object, "spec.ingressClassName", cell::NONE).into(),
        hosts(cell::list(object, "spec.rules")).into(),
        load_balancer(object).join(",").into(),
        ports.into(),
        cell::age(object, now),
    ]
}
