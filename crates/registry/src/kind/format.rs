//! Forms of texts besides names: each function returns the API's messages, none if the text has the
//! form.
use crate::kind::at::At;
use serde_json::Value;
use setpoint_object::{field, name};

const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";

pub(super) fn fault(is_fault: bool, message: impl Into<String>) -> Option<String> {
    is_fault.then(|| message.into())
}

/// The name of a port: at most 15 characters, one of them a letter.
pub(super) fn port_name(text: &str) -> Vec<String> {
    let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    [
        fault(text.len() > 15, "must be no more than 15 characters"),
        fault(
            text.is_empty() || !text.bytes().all(is_inner),
            "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
        ),
        fault(
            !text.bytes().any(|b| b.is_ascii_lowercase()),
            "must contain at least one letter (a-z)",
        ),
        fault(text.contains("--"), "must not contain consecutive hyphens"),
        fault(text.starts_with('-') || text.ends_with('-'), "must not begin or end with a hyphen"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The name of an environment variable.
pub(super) fn variable_name(text: &str) -> Vec<String> {
    let is_printable = text.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=');
    fault(
        !is_printable,
        "a valid environment variable name must consist only of printable ASCII characters other than '='",
    )
    .into_iter()
    .collect()
}

/// A key with a domain: `acme.io/foo`.
pub(super) fn prefixed_key(at: &At<'_, '_>, key: &str) {
    if key.is_empty() {
        return at.required("");
    }
    let faults = name::qualified_name(key);
    if faults.is_empty() && !key.contains('/') {
        at.invalid_as(&key.into(), "must be a domain-prefixed key (such as \"acme.io/foo\")");
    }
    faults.into_iter().for_each(|fault| at.invalid_as(&key.into(), fault));
}

/// Whether a signer is one of Kubernetes.
pub(super) fn is_signer_of_kubernetes(signer: &str) -> bool {
    let domain = signer.split('/').next().unwrap_or_default();
    domain == "kubernetes.io" || domain.ends_with(".kubernetes.io")
}

/// The name of an HTTP header.
pub(super) fn header_name(text: &str) -> Vec<String> {
    let is_valid = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    fault(
        !is_valid,
        "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')",
    )
    .into_iter()
    .collect()
}

/// A number and `%`.
pub(super) fn percent(text: &str) -> Vec<String> {
    fault(
        percent_value(text).is_none(),
        "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
    )
    .into_iter()
    .collect()
}
/// The number before `%`; a very large one is cut.
pub(super) fn percent_value(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%').filter(|digits| !digits.is_empty())?;
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().unwrap_or(i64::MAX))
}

/// A subdomain that may have underscores.
pub(super) fn subdomain_with_underscores(text: &str) -> Vec<String> {
    let is_label = |label: &str| has_label_form(label.strip_prefix('_').unwrap_or(label), b"-_");
    [
        fault(text.len() > name::SUBDOMAIN_MAX, "must be no more than 253 characters"),
        fault(
            !text.split('.').all(is_label),
            r"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')",
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// `*.` and a subdomain.
pub(super) fn wildcard_subdomain(text: &str) -> Vec<String> {
    let rest = text.strip_prefix("*.");
    let is_valid =
        rest.is_some_and(|rest| rest.split('.').all(|label| has_label_form(label, b"-")));
    [
        fault(text.len() > name::SUBDOMAIN_MAX, "must be no more than 253 characters"),
        fault(
            !is_valid,
            format!(
                r"a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\*\.{SUBDOMAIN}')"
            ),
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}
/// Whether a text starts and ends with a lower case letter or digit and has those and `inner`
/// characters between them.
pub(super) fn has_label_form(label: &str, inner: &[u8]) -> bool {
    let is_edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = label.as_bytes();
    bytes.first().copied().is_some_and(is_edge)
        && bytes.last().copied().is_some_and(is_edge)
        && bytes.iter().all(|b| is_edge(*b) || inner.contains(b))
}

/// A subdomain in any case.
pub(super) fn caseless_subdomain(text: &str) -> Vec<String> {
    name::dns1123_subdomain(&text.to_lowercase())
}
/// A qualified name in any case is required. It is reported in lower case.
pub(super) fn caseless_qualified_name(at: &At<'_, '_>) {
    if at.need() {
        let text = at.text().to_lowercase();
        for fault in name::qualified_name(&text) {
            at.invalid_as(&text.as_str().into(), fault);
        }
    }
}

/// Maximum length of the name of a driver, in bytes.
const DRIVER_MAX: usize = 63;
/// The name of a CSI or DRA driver.
pub(super) fn driver(at: &At<'_, '_>) {
    if at.text().len() > DRIVER_MAX {
        at.too_long(DRIVER_MAX);
    }
    at.named(caseless_subdomain);
}

/// A domain, a slash and a path: `acme.io/foo`.
pub(super) fn domain_path(at: &At<'_, '_>) {
    if !at.need() {
        return;
    }
    match at.text().split_once('/') {
        Some((host, path)) if !host.is_empty() && !path.is_empty() => {
            for message in name::dns1123_subdomain(host) {
                at.invalid_as(&host.into(), message);
            }
            let is_path = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
            if !path.bytes().all(is_path) {
                at.invalid_as(
                    &path.into(),
                    r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')",
                );
            }
        }
        _ => at.invalid("must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
}

/// Maximum length of the name of a signer, in bytes: two subdomains, a label and two separators.
const SIGNER_MAX: usize = 253 + 1 + 253 + 63 + 1;
/// The name of a signer of certificates: a domain of two labels, a slash and a path of subdomains.
pub(super) fn signer(at: &At<'_, '_>) {
    if !at.need() {
        return;
    }
    let Some((domain, path)) = at.text().split_once('/').filter(|(_, path)| !path.contains('/'))
    else {
        return at.invalid(
            "must be a fully qualified domain and path of the form 'example.com/signer-name'",
        );
    };
    if domain.len() > name::SUBDOMAIN_MAX {
        at.too_long(name::SUBDOMAIN_MAX);
    }
    let labels = |part: &str, form: fn(&str) -> Vec<String>| {
        let first = part.split('.').find_map(|label| {
            let faults = form(label);
            (!faults.is_empty()).then_some((label, faults))
        });
        let Some((label, faults)) = first else { return };
        for message in faults {
            let label = field::quote(label);
            at.invalid_as(&Value::from(part), format!("validating label {label}: {message}"));
        }
    };
    labels(domain, name::dns1123_label);
    if !domain.contains('.') {
        at.invalid_as(
            &domain.into(),
            "should be a domain with at least two segments separated by dots",
        );
    }
    labels(path, name::dns1123_subdomain);
    if at.text().len() > SIGNER_MAX {
        at.too_long(SIGNER_MAX);
    }
}

/// A fully qualified domain name, perhaps with a dot at its end.
pub(super) fn domain_name(at: &At<'_, '_>) {
    if !at.need() {
        return;
    }
    let name = at.text().strip_suffix('.').unwrap_or(at.text());
    let faults = name::dns1123_subdomain(name);
    if !faults.is_empty() {
        return at.invalid_as(&name.into(), faults.join(","));
    }
    if !name.contains('.') {
        return at.invalid_as(
            &name.into(),
            "should be a domain with at least two segments separated by dots",
        );
    }
    for label in name.split('.') {
        let faults = name::dns1123_label(label);
        if !faults.is_empty() {
            return at.invalid_as(&label.into(), faults.join(","));
        }
    }
}

/// A number or a percentage that is not negative.
pub(super) fn count_or_percent(at: &At<'_, '_>) {
    match at.value {
        Value::String(text) => at.faults(percent(text)),
        _ => at.not_negative(),
    }
}
/// A percentage is at most 100.
pub(super) fn at_most_all(at: &At<'_, '_>) {
    if percent_value(at.text()).is_some_and(|percent| percent > 100) {
        at.invalid("must not be greater than 100%");
    }
}
/// The number, also one in a text, or the number of percents.
pub(super) fn count_of(value: &Value) -> i64 {
    let of_text = |text: &str| percent_value(text).or_else(|| text.parse().ok());
    value.as_i64().or_else(|| of_text(value.as_str()?)).unwrap_or(0)
}

/// A port as a number or as a name.
pub(super) fn port_or_name(at: &At<'_, '_>) {
    match at.value {
        Value::String(text) => at.faults(port_name(text)),
        _ => at.port(),
    }
}

/// A path below a folder: relative, without `..`.
pub(super) fn descending_path(at: &At<'_, '_>, text: &str) {
    if text.starts_with('/') {
        at.invalid_as(&text.into(), "must be a relative path");
    }
    no_backsteps(at, text);
}
/// A path without `..`.
pub(super) fn no_backsteps(at: &At<'_, '_>, text: &str) {
    if text.split('/').any(|part| part == "..") {
        at.invalid_as(&text.into(), "must not contain '..'");
    }
}
/// A path below a folder whose first name does not start with `..`, which the system uses.
pub(super) fn unreserved_path(at: &At<'_, '_>, text: &str) {
    descending_path(at, text);
    if text.starts_with("..") && !text.starts_with("../") {
        at.invalid_as(&text.into(), "must not start with '..'");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_text_has_a_form_or_not(text in r"[-*.:/%a-zA-Z0-9\u{e9}]{0,24}") {
            prop_assert!(port_name(&text).is_empty() <= (text.len() <= 15));
            for form in [percent, header_name, variable_name, wildcard_subdomain, subdomain_with_underscores] {
                prop_assert!(form(&text).iter().all(|message| !message.is_empty()));
            }
        }
    }

    #[test]
    fn port_names() {
        for valid in ["http", "a", "8080-tcp", "x1"] {
            assert!(port_name(valid).is_empty(), "{valid}");
        }
        for (invalid, n) in
            [("", 2), ("80", 1), ("-a", 1), ("a--b", 1), ("A", 2), ("abcdefghijklmnop", 1)]
        {
            assert_eq!(port_name(invalid).len(), n, "{invalid}");
        }
    }

    #[test]
    fn percents() {
        assert_eq!(
            (percent_value("25%"), percent_value("%"), percent_value("x%")),
            (Some(25), None, None)
        );
        assert_eq!(percent_value("99999999999999999999%"), Some(i64::MAX));
        assert_eq!(
            (count_of(&"10%".into()), count_of(&3.into()), count_of(&"x".into())),
            (10, 3, 0)
        );
    }
}
