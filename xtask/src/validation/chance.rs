//! What a server makes by chance, and how answers are compared without it: names, uids, times,
//! addresses, ports.

use serde_json::{Map, Value};

/// The length of a uid.
pub(super) const UID_LEN: usize = 36;

/// The beginning of the name that a server makes for a request.
pub(super) fn generated(request: &Value) -> Option<String> {
    let meta = &request["metadata"];
    let name = meta["name"].as_str().unwrap_or_default();
    let prefix = meta["generateName"].as_str().unwrap_or_default();
    (name.is_empty() && !prefix.is_empty()).then(|| prefix.chars().take(58).collect())
}

/// Whether a name is the server's: the request has a prefix for it, or nothing and the name is a
/// uid, as a LimitRange gets one.
pub(super) fn is_made(request: &Value, name: &str) -> bool {
    let is_unnamed = request["metadata"]["name"].as_str().unwrap_or_default().is_empty();
    generated(request).is_some() || (is_unnamed && name.len() == UID_LEN)
}

/// An answer without the addresses that Services got by chance; of 10.96.77.0/24 some are asked
/// for.
pub(super) fn without_addresses(text: &str, request: &str) -> String {
    const NETWORK: &str = "10.96.";
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(NETWORK) {
        clean.push_str(&rest[..at]);
        rest = &rest[at + NETWORK.len()..];
        let n = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (host, tail) = rest.split_at(n);
        let is_whole = host.split('.').filter(|part| !part.is_empty()).count() == 2;
        let is_asked = host.starts_with("77.") && request.contains(&format!("{NETWORK}{host}"));
        let is_chance = is_whole && !is_asked;
        clean.push_str(if is_chance { "allocated" } else { NETWORK });
        clean.push_str(if is_chance { "" } else { host });
        rest = tail;
    }
    clean + rest
}

/// A message about a node port without a port that was drawn.
pub(super) fn without_port(message: &str, request: &str) -> String {
    let Some((head, tail)) = message.split_once("value: ") else { return message.to_owned() };
    let n = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
    let (port, rest) = tail.split_at(n);
    if n == 0 || request.contains(port) {
        return message.to_owned();
    }
    format!("{head}value: allocated{rest}")
}

/// A text in which the last five letters of a made name are stars.
pub(super) fn without_chance(text: &str, prefix: &str) -> String {
    // A blank is everywhere: as a name, it is quoted.
    let quoted = format!("\"{prefix}");
    let prefix = if prefix.trim().is_empty() { &quoted } else { prefix };
    let mut clean = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(prefix) {
        let end = at + prefix.len();
        clean.push_str(&rest[..end]);
        rest = &rest[end..];
        let n: usize = rest.chars().take(5).map(char::len_utf8).sum();
        if rest.chars().take(5).all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()) && n == 5 {
            clean.push_str("*****");
            rest = &rest[n..];
        }
    }
    clean + rest
}

/// A text without the uids that are not in the request.
pub(super) fn without_uids(text: &str, request: &str) -> String {
    let is_uid = |part: &[u8]| {
        part.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        })
    };
    let mut clean = text.to_owned();
    for (at, part) in text.as_bytes().windows(UID_LEN).enumerate() {
        if is_uid(part)
            && let Some(uid) = text.get(at..at + UID_LEN)
            && !request.contains(uid)
        {
            clean = clean.replace(uid, "UID");
        }
    }
    clean
}

/// Puts stars in the place of every text that is a made name.
pub(super) fn hide_name(value: &mut Value, name: &str) {
    match value {
        Value::String(text) if text == name => *text = "*****".to_owned(),
        Value::Array(items) => items.iter_mut().for_each(|item| hide_name(item, name)),
        Value::Object(members) => {
            members.values_mut().for_each(|member| hide_name(member, name));
        }
        _ => {}
    }
}

/// Removes an object's uid from its texts, and times that were not asked for.
pub(super) fn clean(value: &mut Value, uid: &str, request: &str) {
    match value {
        Value::String(text) => {
            if is_time(text) && !request.contains(&**text) {
                *text = "TIME".to_owned();
            } else if text.contains(uid) {
                *text = text.replace(uid, "UID");
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| clean(item, uid, request)),
        Value::Object(members) => {
            members.values_mut().for_each(|member| clean(member, uid, request));
        }
        _ => {}
    }
}

/// Whether a text is a time.
pub(super) fn is_time(text: &str) -> bool {
    text.len() >= 20 && text.ends_with('Z') && text.get(10..11) == Some("T")
}

pub(super) fn normalize(object: &mut Value, request: &Value) {
    let is_made = generated(request).is_some();
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for member in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
            meta.remove(member);
        }
        if is_made {
            meta.remove("name");
            if let Some(labels) = meta.get_mut("labels").and_then(Value::as_object_mut) {
                labels.remove("kubernetes.io/metadata.name");
            }
        }
    }
    // The servers got the fixture's phase in different seconds.
    if let Some(time) = object.pointer_mut("/status/lastPhaseTransitionTime")
        && time.is_string()
    {
        *time = "TIME".into();
    }
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    if kind == "Status"
        && let Some(details) = object.get_mut("details").and_then(Value::as_object_mut)
    {
        details.remove("uid");
    }
    if kind == "TokenRequest"
        && let Some(status) = object.get_mut("status").and_then(Value::as_object_mut)
    {
        status.remove("token");
    }
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    match &*kind {
        // Who has asked.
        "CertificateSigningRequest" => {
            ["username", "uid", "groups", "extra"].iter().for_each(|name| drop(spec.remove(*name)));
        }
        "Service" => service(spec),
        _ => {}
    }
}

/// Allocated ports. Those of the bases are 30080 and 30090. A dry run of the original may show one
/// that is not in the range.
fn service(spec: &mut Map<String, Value>) {
    let is_chance = |port: &Value| {
        port.as_i64().is_some_and(|port| {
            (30_000..40_000).contains(&port) && port != 30_080 && port != 30_090
        })
    };
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten();
    for port in ports.filter_map(|port| port.get_mut("nodePort")).filter(|port| is_chance(port)) {
        *port = "allocated".into();
    }
    if let Some(port) = spec.get_mut("healthCheckNodePort").filter(|port| is_chance(port)) {
        *port = "allocated".into();
    }
}

/// Owners of fields without the times that order them.
pub(super) fn without_times(mut owners: Value) -> Value {
    if let Some(owners) = owners.as_array_mut() {
        for owner in owners.iter_mut().filter_map(Value::as_object_mut) {
            owner.remove("time");
        }
        let key = |owner: &Value| {
            ["manager", "operation", "apiVersion", "subresource"]
                .map(|member| owner[member].as_str().unwrap_or_default().to_owned())
        };
        owners.sort_by_key(key);
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn owners_are_compared_without_the_times_that_order_them() {
        let of = |owners: [(&str, &str); 2]| {
            let owners = owners.map(|(manager, time)| json!({"manager": manager, "time": time}));
            without_times(json!(owners))
        };
        assert_eq!(of([("a", "1"), ("b", "2")]), of([("b", "3"), ("a", "4")]));
        assert_ne!(of([("a", "1"), ("b", "2")]), of([("a", "1"), ("c", "2")]));
    }
}
