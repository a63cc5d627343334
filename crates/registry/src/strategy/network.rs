//! Ingresses and endpoint slices.
use super::pod::{list, text};
use serde_json::Value;
use setpoint_object::field;

/// Ingresses: where to, and how paths match.
pub(super) fn validate_ingress(
    ingress: &Value,
    _old: Option<&Value>,
    errors: &mut Vec<field::Error>,
) {
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
/// Slices: of one family.
pub(super) fn validate_endpoint_slice(
    slice: &Value,
    old: Option<&Value>,
    errors: &mut Vec<field::Error>,
) {
    let family = text(slice, "addressType");
    let path = field::Path::new("addressType");
    if family.is_empty() {
        errors.push(field::Error::required(path.clone(), ""));
    } else if !["FQDN", "IPv4", "IPv6"].contains(&family) {
        errors.push(field::Error::not_supported(
            path.clone(),
            &family.into(),
            &["FQDN", "IPv4", "IPv6"],
        ));
    }
    for (i, endpoint) in list(slice, "endpoints").iter().enumerate() {
        if list(endpoint, "addresses").is_empty() {
            errors.push(field::Error::required(
                field::Path::new("endpoints").index(i).child("addresses"),
                "must contain at least 1 address",
            ));
        }
    }
    if old.is_some_and(|old| text(old, "addressType") != family) {
        errors.push(field::Error::invalid(path, &family.into(), "field is immutable"));
    }
}
