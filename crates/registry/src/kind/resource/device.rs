//! Rules that claims, classes and slices of devices share.
use super::selector::selectors;
use crate::features::Feature;
use crate::kind::at::At;
use crate::kind::{format, text};
use serde_json::Value;
use setpoint_object::{encode, field, name};
use std::borrow::{Borrow, Cow};
use std::collections::{HashMap, HashSet};

/// Limits, as Kubernetes has them: numbers of items, and lengths in bytes.
const REQUESTS_MAX: usize = 32;
const ALTERNATIVES_MAX: usize = 8;
const CONSTRAINTS_MAX: usize = 32;
const CONFIGS_MAX: usize = 32;
const BINDING_CONDITIONS_MAX: usize = 4;
const PARAMETERS_BYTES_MAX: usize = 10 * 1024;
pub(super) const DOMAIN_MAX: usize = 63;
pub(super) const ID_MAX: usize = 32;

/// The names of requests, and of the alternatives of each.
pub(super) type Requests<'v> = HashMap<&'v str, HashSet<&'v str>>;

/// The names of the requests of a claim.
pub(super) fn requests_of<'v>(devices: &At<'v, '_>) -> Requests<'v> {
    let requests = devices.list_of("requests").iter();
    requests
        .map(|request| {
            let alternatives = crate::kind::list(request, "firstAvailable").iter();
            (text(request, "name"), alternatives.map(|other| text(other, "name")).collect())
        })
        .collect()
}

/// The request of a claim.
pub(super) fn claim(devices: &At<'_, '_>) {
    let known = requests_of(devices);
    let requests = devices.get("requests");
    set(&requests, REQUESTS_MAX, "name", request);
    let constraints = devices.get("constraints");
    if constraints.at_most(CONSTRAINTS_MAX) {
        for constraint in constraints.items() {
            references(&constraint.get("requests"), &known);
            if constraint.has("matchAttribute") {
                full_name(&constraint.get("matchAttribute"));
            } else if constraint.has("distinctAttribute") {
                full_name(&constraint.get("distinctAttribute"));
            } else if !constraint.is_on(Feature::DRAConsumableCapacity) {
                constraint.get("matchAttribute").required("");
            } else {
                constraint.required("exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set");
            }
        }
    }
    let configs = devices.get("config");
    if configs.at_most(CONFIGS_MAX) {
        for config in configs.items() {
            references(&config.get("requests"), &known);
            configuration(&config);
        }
    }
}

/// A list of at most so many items with a rule. Then those are reported that have the same text as
/// one before them: at a member, or the items themselves.
pub(super) fn set(at: &At<'_, '_>, max: usize, member: &str, rule: impl Fn(&At<'_, '_>)) {
    if !at.at_most(max) {
        return;
    }
    at.items().for_each(|item| rule(&item));
    let mut seen = HashSet::new();
    for item in at.items() {
        let key = if member.is_empty() { item.text() } else { item.text_of(member) };
        if !seen.insert(key) {
            item.duplicate_of(key);
        }
    }
}

fn request(at: &At<'_, '_>) {
    name(&at.get("name"));
    let alternatives = at.get("firstAvailable");
    match (at.given("exactly"), alternatives.len()) {
        (None, 0) => at.required("exactly one of `exactly` or `firstAvailable` is required"),
        (Some(_), 1..) => at.invalid_as(
            &Value::Null,
            "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
        ),
        (Some(exactly), 0) => exact(&exactly),
        (None, _) => set(&alternatives, ALTERNATIVES_MAX, "name", |alternative| {
            name(&alternative.get("name"));
            exact(alternative);
        }),
    }
}
/// The name of a request, or of a device: a label.
pub(super) fn name(at: &At<'_, '_>) {
    for fault in name::dns1123_label(at.text()) {
        at.invalid_as(&at.text().into(), fault);
    }
}

/// Devices of one class.
fn exact(at: &At<'_, '_>) {
    at.get("deviceClassName").named(name::dns1123_subdomain);
    selectors(&at.get("selectors"));
    let (mode, count) = (at.get("allocationMode"), at.int_of("count"));
    match mode.text() {
        "All" if count != 0 => {
            at.get("count").invalid("must not be specified when allocationMode is 'All'");
        }
        "ExactCount" if count <= 0 => {
            at.get("count").invalid_as(&count.into(), "must be greater than zero");
        }
        "All" | "ExactCount" => {}
        _ => mode.choice(&["All", "ExactCount"]),
    }
    for toleration in at.each("tolerations") {
        toleration.get("key").named_if_set(name::qualified_name);
        let (operator, value) = (toleration.get("operator"), toleration.get("value"));
        match operator.text() {
            "Exists" if !value.text().is_empty() => {
                value.invalid("must be empty for operator `Exists`");
            }
            "Exists" => {}
            "Equal" => value.faults(name::label_value(value.text())),
            _ => operator.one_of(&["Equal", "Exists"]),
        }
        effect(&toleration.get("effect"));
    }
}
/// A taint has a key and an effect.
pub(super) fn taint(at: &At<'_, '_>) {
    let key = at.get("key");
    for fault in name::qualified_name(key.text()) {
        key.invalid_as(&key.text().into(), fault);
    }
    at.get("value").named_if_set(name::label_value);
    if at.get("effect").need() {
        effect(&at.get("effect"));
    }
}
/// If there is an effect of a taint, it is a known one.
fn effect(at: &At<'_, '_>) {
    if !at.text().is_empty() {
        at.one_of_if_set(&["NoExecute", "NoSchedule", "None"]);
    }
}

/// Names of requests, each once: `request` or `request/alternative`.
pub(super) fn references(at: &At<'_, '_>, known: &Requests<'_>) {
    set(at, REQUESTS_MAX, "", |item| reference(item, known));
}
/// The name of a request.
pub(super) fn reference(at: &At<'_, '_>, known: &Requests<'_>) {
    const WHAT: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
    let (request, alternative) = match at.text().split_once('/') {
        None => (at.text(), None),
        Some((request, rest)) => (request, Some(rest)),
    };
    if alternative.is_some_and(|rest| rest.contains('/')) {
        return at.invalid(WHAT);
    }
    for part in [Some(request), alternative].into_iter().flatten() {
        for fault in name::dns1123_label(part) {
            at.invalid_as(&part.into(), fault);
        }
    }
    let is_known = known.get(request).is_some_and(|alternatives| {
        alternative.is_none_or(|alternative| alternatives.contains(alternative))
    });
    if !is_known {
        at.invalid(WHAT);
    }
}

/// Parameters for a driver.
pub(super) fn configuration(at: &At<'_, '_>) {
    let Some(opaque) = at.given("opaque") else { return at.get("opaque").required("") };
    format::driver(&opaque.get("driver"));
    object(&opaque.get("parameters"), PARAMETERS_BYTES_MAX);
}
/// Configurations of a class.
pub(super) fn configurations(at: &At<'_, '_>) {
    if at.at_most(CONFIGS_MAX) {
        at.items().for_each(|config| configuration(&config));
    }
}
/// Conditions that a claim waits for, and those that fail it: both or none.
pub(super) fn binding(at: &At<'_, '_>) {
    let (wanted, failing) = (at.get("bindingConditions"), at.get("bindingFailureConditions"));
    for list in [&wanted, &failing] {
        if list.at_most(BINDING_CONDITIONS_MAX) {
            for condition in list.items() {
                condition.faults(name::qualified_name(condition.text()));
            }
        }
    }
    for list in [&wanted, &failing] {
        let mut seen = HashSet::new();
        for condition in list.items() {
            condition.unique(&mut seen);
            if std::ptr::eq(list, &failing) && wanted.list().contains(condition.value) {
                condition
                    .invalid("bindingFailureConditions must not overlap with bindingConditions");
            }
        }
    }
    match (wanted.len(), failing.len()) {
        (0, 1..) => {
            wanted.invalid("bindingConditions are required to use bindingFailureConditions");
        }
        (1.., 0) => {
            failing.invalid("bindingFailureConditions are required to use bindingConditions");
        }
        _ => {}
    }
}

/// Any object of limited size.
pub(super) fn object(at: &At<'_, '_>, max: usize) {
    if !at.is_set() {
        at.required("");
    } else if encode::to_bytes(at.value).len() > max {
        at.too_long(max);
    } else if !at.value.is_object() {
        at.invalid_as(&"<value omitted>".into(), "must be a valid JSON object");
    }
}

/// Subdomains with slashes between them.
pub(super) fn pool_name(at: &At<'_, '_>) {
    if !at.need() {
        return;
    }
    if at.text().len() > name::SUBDOMAIN_MAX {
        at.too_long(name::SUBDOMAIN_MAX);
    }
    for part in at.text().split('/') {
        for fault in name::dns1123_subdomain(part) {
            at.invalid_as(&part.into(), fault);
        }
    }
}

/// A name with a driver's domain.
fn full_name(at: &At<'_, '_>) {
    qualified(at, at.text());
    if !at.text().contains('/') {
        at.invalid("a fully qualified name must be a domain and a name separated by a slash");
    }
}
/// An identifier, perhaps with a driver's domain.
pub(super) fn qualified(at: &At<'_, '_>, text: &str) {
    let (domain, id) = match text.split_once('/') {
        None => (None, text),
        // The API accepts what has more slashes.
        Some((_, rest)) if rest.contains('/') => return,
        Some((domain, id)) => (Some(domain), id),
    };
    match domain {
        Some("") => at.invalid_union("the domain must not be empty"),
        Some(domain) => {
            if domain.len() > DOMAIN_MAX {
                at.too_long(DOMAIN_MAX);
            }
            for fault in format::caseless_subdomain(domain) {
                at.invalid_as(&domain.into(), fault);
            }
        }
        None => {}
    }
    if domain.is_some() && id.is_empty() {
        return at.invalid_union("the name must not be empty");
    }
    if id.len() > ID_MAX {
        at.too_long(ID_MAX);
    }
    let is_inner = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    if id.is_empty() || id.as_bytes()[0].is_ascii_digit() || !id.bytes().all(is_inner) {
        at.report(|path| field::Error::invalid(path, &id.into(), "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"));
    }
}

/// A struct of Go in messages.
pub(super) fn shown<V: Borrow<Value>>(
    members: impl IntoIterator<Item = (&'static str, V)>,
) -> String {
    let member = |(name, value): (_, V)| {
        format!("\"{name}\":{}", String::from_utf8_lossy(&encode::to_bytes(value.borrow())))
    };
    let members: Vec<String> = members.into_iter().map(member).collect();
    format!("{{{}}}", members.join(","))
}

/// The longest key of an attribute or a capacity that is reported whole, in bytes.
const KEY_SHOWN_MAX: usize = DOMAIN_MAX + 1 + ID_MAX;
/// The key of an attribute or a capacity as the API reports it: of a long one, the ends.
pub(super) fn shown_key(key: &str) -> Cow<'_, str> {
    const DOTS: &str = "...";
    let Some(rest) = KEY_SHOWN_MAX.checked_sub(DOTS.len()).filter(|_| key.len() > KEY_SHOWN_MAX)
    else {
        return key.into();
    };
    let bytes = key.as_bytes();
    let [start, end] = [&bytes[..rest.div_ceil(2)], &bytes[bytes.len() - rest / 2..]];
    [start, end].map(String::from_utf8_lossy).join(DOTS).into()
}

/// The identity of a share of a device: a lower-case UUID.
pub(super) fn share(at: &At<'_, '_>) {
    match uuid_fault(at.text()) {
        Some(fault) => at.invalid(format!("error validating uid: {fault}")),
        None if at.text().len() == UUID_LEN && at.text() == at.text().to_lowercase() => {}
        None => at.invalid(
            "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters",
        ),
    }
}
/// The length of a UUID with dashes.
const UUID_LEN: usize = 36;
/// What is wrong with a UUID, in one of the forms that Google's package reads.
fn uuid_fault(text: &str) -> Option<String> {
    const FORMAT: &str = "invalid UUID format";
    const PREFIX: &str = "urn:uuid:";
    let is_hex = |b: u8| b.is_ascii_hexdigit();
    let plain = match text.len() {
        32 => return (!text.bytes().all(is_hex)).then(|| FORMAT.to_owned()),
        UUID_LEN => text.as_bytes(),
        45 => {
            let (prefix, rest) = text.as_bytes().split_at(PREFIX.len());
            if !prefix.eq_ignore_ascii_case(PREFIX.as_bytes()) {
                let prefix = setpoint_object::field::quote(&String::from_utf8_lossy(prefix));
                return Some(format!("invalid urn prefix: {prefix}"));
            }
            rest
        }
        38 => match text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            Some(inner) => inner.as_bytes(),
            None => return Some("invalid bracketed UUID format".to_owned()),
        },
        length => return Some(format!("invalid UUID length: {length}")),
    };
    let fits = plain.iter().enumerate().all(|(i, b)| match i {
        8 | 13 | 18 | 23 => *b == b'-',
        _ => is_hex(*b),
    });
    (!fits).then(|| FORMAT.to_owned())
}
