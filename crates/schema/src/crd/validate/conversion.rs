//! `spec.conversion`.
use super::{ca, text};
use serde_json::Value;
use setpoint_object::field::{Error, Errors, Path};
use setpoint_object::name;
use setpoint_object::url::Url;
use std::collections::HashSet;

/// The versions of ConversionReview.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Validates the conversion. `checks_bundle`: the bundle of the webhook, too.
pub(super) fn conversion(conversion: &Value, checks_bundle: bool, errors: &mut Errors) {
    let path = Path::new("spec.conversion");
    let (config_path, versions_path) =
        (path.child("webhookClientConfig"), path.child("conversionReviewVersions"));
    let webhook = conversion.get("webhook");
    let config = webhook.and_then(|webhook| webhook.get("clientConfig"));
    let versions = webhook
        .and_then(|webhook| webhook.get("conversionReviewVersions")?.as_array())
        .filter(|versions| !versions.is_empty());
    match text(conversion, "strategy") {
        "" if conversion.is_null() => {}
        "Webhook" => {
            match config {
                Some(config) => {
                    client_config(config, &config_path, errors);
                    let bundle = text(config, "caBundle");
                    if checks_bundle && !bundle.is_empty() && !ca::valid(bundle) {
                        let path = config_path.child("caBundle");
                        let detail =
                            "unable to load root certificates: unable to parse bytes as PEM block";
                        errors.push(Error::invalid(path, &bundle.into(), detail));
                    }
                }
                None => errors
                    .push(Error::required(config_path, "required when strategy is set to Webhook")),
            }
            review_versions(versions.map_or(&[], Vec::as_slice), &versions_path, errors);
        }
        strategy => {
            if strategy.is_empty() {
                errors.push(Error::required(path.child("strategy"), ""));
            } else if strategy != "None" {
                let path = path.child("strategy");
                errors.push(Error::not_supported(path, &strategy.into(), &["None", "Webhook"]));
            }
            let detail = "should not be set when strategy is not set to Webhook";
            if config.is_some() {
                errors.push(Error::forbidden(config_path, detail));
            }
            if versions.is_some() {
                errors.push(Error::forbidden(versions_path, detail));
            }
        }
    }
}

fn review_versions(versions: &[Value], path: &Path, errors: &mut Errors) {
    if versions.is_empty() {
        errors.push(Error::required(path.clone(), ""));
        return;
    }
    let mut seen: HashSet<&str> = HashSet::new();
    for (i, version) in versions.iter().filter_map(Value::as_str).enumerate() {
        if !seen.insert(version) {
            errors.push(Error::invalid(path.index(i), &version.into(), "duplicate version"));
            continue;
        }
        for problem in name::dns1035_label(version) {
            errors.push(Error::invalid(path.index(i), &version.into(), problem));
        }
    }
    if !seen.iter().any(|version| REVIEW_VERSIONS.contains(version)) {
        let detail = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        errors.push(Error::invalid(path.clone(), &Value::Array(versions.to_vec()), detail));
    }
}

/// Validates where a webhook is: exactly one of `url` and `service`. Admission webhooks have the
/// same rules (spec: admission §4).
pub fn client_config(config: &Value, path: &Path, errors: &mut Errors) {
    match (config.get("url").and_then(Value::as_str), config.get("service")) {
        (Some(url), None) => webhook_url(url, path.child("url"), errors),
        (None, Some(service)) => webhook_service(service, &path.child("service"), errors),
        _ => {
            errors.push(Error::required(path.clone(), "exactly one of url or service is required"))
        }
    }
}

fn webhook_url(url: &str, path: Path, errors: &mut Errors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let url = match Url::parse(url) {
        Ok(url) => url,
        Err(fault) => {
            let detail = format!("url must be a valid URL: {fault}{FORM}");
            return errors.push(Error::required(path, detail));
        }
    };
    let mut fault = |shown: &str, detail: String| {
        errors.push(Error::invalid(path.clone(), &shown.into(), detail));
    };
    if url.scheme != "https" {
        fault(&url.scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if url.host.is_empty() {
        fault("", format!("host must be specified{FORM}"));
    }
    if let Some(user) = &url.user {
        fault(user, "user information is not permitted in the URL".to_owned());
    }
    if !url.fragment.is_empty() {
        fault(&url.fragment, "fragments are not permitted in the URL".to_owned());
    }
    if !url.query.is_empty() {
        fault(&url.query, "query parameters are not permitted in the URL".to_owned());
    }
}

fn webhook_service(service: &Value, path: &Path, errors: &mut Errors) {
    // The API reports each of the two at the other's path, the name's path first.
    for (field, shown) in [("namespace", "name"), ("name", "namespace")] {
        if text(service, field).is_empty() {
            errors.push(Error::required(path.child(shown), ""));
        }
    }
    let port = service.get("port").and_then(Value::as_i64).unwrap_or(443);
    if !(1..=65535).contains(&port) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(Error::invalid(path.child("port"), &port.into(), detail));
    }
    let Some(url_path) = service.get("path").and_then(Value::as_str) else { return };
    let path = path.child("path");
    let mut fault = |detail: String| {
        // Each repeats the whole path, and a long one may have a fault in every segment.
        if !errors.is_full() {
            errors.push(Error::invalid(path.clone(), &url_path.into(), detail));
        }
    };
    if matches!(url_path, "" | "/") {
        return;
    }
    if url_path == "//" {
        return fault("segment[0] may not be empty".to_owned());
    }
    if !url_path.starts_with('/') {
        fault("must start with a '/'".to_owned());
    }
    // The API takes off the first byte, whatever it is. What is left of a character is in no name.
    let inner = String::from_utf8_lossy(url_path.as_bytes().get(1..).unwrap_or_default());
    for (i, segment) in inner.strip_suffix('/').unwrap_or(&inner).split('/').enumerate() {
        if segment.is_empty() {
            fault(format!("segment[{i}] may not be empty"));
            continue;
        }
        for why in name::dns1123_subdomain(segment) {
            fault(format!("segment[{i}]: {why}"));
        }
    }
}
