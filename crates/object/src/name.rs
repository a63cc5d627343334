//! Validation of names (spec: api-server §12). Each check returns the API's messages; empty if the
//! name is valid.
//!
//! The patterns appear in the messages, so they are spelled as in the API. The checks are written
//! by hand, because they run on every label of every write.

/// The characters of generated suffixes.
pub const GENERATED_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
/// Maximum length of the base, in characters, before the suffix of five characters.
pub const GENERATE_NAME_BASE_MAX: usize = 58;
/// Maximum length of a subdomain, in characters.
pub const SUBDOMAIN_MAX: usize = 253;
/// Maximum length of a label, of the name part of a qualified name and of a label value, in bytes.
pub const LABEL_MAX: usize = 63;

const LABEL: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const LABEL_VALUE: &str = "(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?";
const CONFIG_KEY: &str = "[-._a-zA-Z0-9]+";

/// RFC 1123 subdomain, at most 253 characters.
pub fn dns1123_subdomain(name: &str) -> Vec<String> {
    subdomain(name, "characters")
}
/// As [`dns1123_subdomain`], with messages that count bytes: those of Kubernetes' declarative
/// validation (`k8s-long-name`).
pub fn long_name(name: &str) -> Vec<String> {
    subdomain(name, "bytes")
}
/// `unit`: what the message counts.
fn subdomain(name: &str, unit: &str) -> Vec<String> {
    let mut faults = too_long(name, SUBDOMAIN_MAX, unit);
    if !is_subdomain(name) {
        let what = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";
        faults.push(pattern(what, SUBDOMAIN, &["example.com"]));
    }
    faults
}
/// RFC 1123 label, at most 63.
pub fn dns1123_label(name: &str) -> Vec<String> {
    label(name, "characters")
}
/// As [`dns1123_label`], with messages that count bytes: those of Kubernetes' declarative
/// validation (`k8s-short-name`).
pub fn short_name(name: &str) -> Vec<String> {
    label(name, "bytes")
}
/// `unit`: what the message counts.
fn label(name: &str, unit: &str) -> Vec<String> {
    let mut faults = too_long(name, LABEL_MAX, unit);
    if !is_label(name) {
        faults.push(if is_subdomain(name) {
            "must not contain dots".to_owned()
        } else {
            let what = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character";
            pattern(what, LABEL, &["my-name", "123-abc"])
        });
    }
    faults
}
/// RFC 1035 label, at most 63.
pub fn dns1035_label(name: &str) -> Vec<String> {
    let mut faults = too_long(name, LABEL_MAX, "characters");
    if !(is_label(name) && name.starts_with(|c: char| c.is_ascii_lowercase())) {
        let what = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
        faults.push(pattern(what, LABEL_1035, &["my-name", "abc-123"]));
    }
    faults
}
/// Path segment: the minimum requirement for every name.
pub fn path_segment(name: &str) -> Vec<String> {
    if matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    let forbidden = ['/', '%'].into_iter().filter(|c| name.contains(*c));
    forbidden.map(|c| format!("may not contain '{c}'")).collect()
}
/// Qualified name: `[prefix/]name`.
pub fn qualified_name(name: &str) -> Vec<String> {
    const WHAT: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
    let shape = || pattern(WHAT, QUALIFIED, &["MyName", "my.name", "123-abc"]);
    let mut faults = Vec::new();
    let part = match name.split_once('/') {
        None => name,
        Some((_, rest)) if rest.contains('/') => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                shape()
            )];
        }
        Some(("", part)) => {
            faults.push("prefix part must be non-empty".to_owned());
            part
        }
        Some((prefix, part)) => {
            faults.extend(subdomain(prefix, "bytes").iter().map(|f| format!("prefix part {f}")));
            part
        }
    };
    if part.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    }
    faults.extend(too_long(part, LABEL_MAX, "bytes").iter().map(|f| format!("name part {f}")));
    if !is_qualified(part) {
        faults.push(format!("name part {}", shape()));
    }
    faults
}
/// Label value.
pub fn label_value(value: &str) -> Vec<String> {
    let mut faults = too_long(value, LABEL_MAX, "bytes");
    if !has_label_form(value) {
        let what = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
        faults.push(pattern(what, LABEL_VALUE, &["MyValue", "my_value", "12345"]));
    }
    faults
}
/// Whether [`label_value`] finds no fault.
pub fn is_label_value(value: &str) -> bool {
    value.len() <= LABEL_MAX && has_label_form(value)
}
/// ConfigMap and Secret key.
pub fn config_key(key: &str) -> Vec<String> {
    let mut faults = too_long(key, SUBDOMAIN_MAX, "characters");
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    if key.is_empty() || !key.bytes().all(is_allowed) {
        let what = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'";
        faults.push(pattern(what, CONFIG_KEY, &["key.name", "KEY_NAME", "key-name"]));
    }
    match key {
        "." | ".." => faults.push(format!("must not be '{key}'")),
        key if key.starts_with("..") => faults.push("must not start with '..'".to_owned()),
        _ => {}
    }
    faults
}

fn is_label(name: &str) -> bool {
    let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !name.is_empty() && name.bytes().all(is_inner) && !name.starts_with('-') && !name.ends_with('-')
}
fn is_subdomain(name: &str) -> bool {
    name.split('.').all(is_label)
}
fn has_label_form(value: &str) -> bool {
    value.is_empty() || is_qualified(value)
}
fn is_qualified(name: &str) -> bool {
    let is_inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let is_edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    is_edge(bytes.first()) && is_edge(bytes.last()) && bytes.iter().copied().all(is_inner)
}
fn too_long(text: &str, max: usize, unit: &str) -> Vec<String> {
    let fault = (text.len() > max).then(|| format!("must be no more than {max} {unit}"));
    fault.into_iter().collect()
}
/// The API's description of a valid name, with examples and the pattern.
fn pattern(what: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<_> = examples.iter().map(|example| format!("'{example}', ")).collect();
    format!("{what} (e.g. {}regex used for validation is '{pattern}')", examples.join(" or "))
}

#[cfg(test)]
mod tests;
