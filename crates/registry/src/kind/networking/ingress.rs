//! Ingresses: backends and path matching.
use crate::kind::load_balancer::load_balancer;
use crate::kind::{Kind, StatusMeta, list, text};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::field;
use setpoint_object::time::Timestamp;

/// Ingress.
pub(in crate::kind) static KIND: Kind = Kind {
    validate,
    cells: Some(cells),
    ..Kind::with_status("networking.k8s.io", "Ingress", StatusMeta::All, r#"{"loadBalancer":{}}"#)
};

/// Maximum number of endpoints, ports or hosts in a cell; the rest is counted.
const LISTED_MAX: usize = 3;

/// Validates backends and path matching.
fn validate(ingress: &Value, _old: Option<&Value>, errors: &mut field::Errors) {
    let path = field::Path::new("spec");
    let spec = &ingress["spec"];
    if list(spec, "rules").is_empty() && spec.get("defaultBackend").is_none() {
        errors.push(field::Error::invalid(
            path.clone(),
            spec,
            "either `defaultBackend` or `rules` must be specified",
        ));
    }
    for (i, rule) in list(spec, "rules").iter().enumerate() {
        let path = path.child("rules").index(i).child("http.paths");
        let Some(http) = rule.get("http") else { continue };
        if list(http, "paths").is_empty() {
            errors.push(field::Error::required(path.clone(), ""));
        }
        for (j, entry) in list(http, "paths").iter().enumerate() {
            let path = path.index(j);
            let supported = ["Exact", "ImplementationSpecific", "Prefix"];
            match text(entry, "pathType") {
                "" => errors.push(field::Error::required(
                    path.child("pathType"),
                    "pathType must be specified",
                )),
                kind if !supported.contains(&kind) => {
                    errors.push(field::Error::not_supported(
                        path.child("pathType"),
                        &kind.into(),
                        &supported,
                    ));
                }
                "ImplementationSpecific" if text(entry, "path").is_empty() => {}
                _ if !text(entry, "path").starts_with('/') => errors.push(field::Error::invalid(
                    path.child("path"),
                    &text(entry, "path").into(),
                    "must be an absolute path",
                )),
                _ => {}
            }
            let service = entry["backend"].get("service");
            if service.is_none() && entry["backend"].get("resource").is_none() {
                errors.push(field::Error::required(
                    path.child("backend"),
                    "resource or service backend is required",
                ));
            } else if service.is_some_and(|s| text(s, "name").is_empty()) {
                errors.push(field::Error::required(path.child("backend.service.name"), ""));
            }
        }
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let hosts: Vec<String> = cell::list(object, "spec.rules")
        .iter()
        .map(|rule| cell::text(rule, "host").to_owned())
        .filter(|host| !host.is_empty())
        .collect();
    let ports = if cell::len(object, "spec.tls") > 0 { "80, 443" } else { "80" };
    vec![
        cell::name(object),
        cell::text_or(object, "spec.ingressClassName", cell::NONE).into(),
        cell::some_of(&hosts, LISTED_MAX, ",", "*").into(),
        load_balancer(object).join(",").into(),
        ports.into(),
        cell::age(object, now),
    ]
}
