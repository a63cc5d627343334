//! The user of a forwarded request, in headers (spec: extension §1.3).

use http::header::{HeaderMap, HeaderName, HeaderValue};
use setpoint_apiserver::Identity;

const USER: HeaderName = HeaderName::from_static("x-remote-user");
const UID: HeaderName = HeaderName::from_static("x-remote-uid");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const EXTRA: &str = "x-remote-extra-";

/// Replaces the client's headers about its user by the authenticated user. Returns false if a name
/// cannot be written in a header: such a request must not be forwarded.
#[must_use]
pub(crate) fn set_user(headers: &mut HeaderMap, identity: &Identity) -> bool {
    let claimed: Vec<HeaderName> = headers
        .keys()
        .filter(|name| [USER, UID, GROUP].contains(name) || name.as_str().starts_with(EXTRA))
        .cloned()
        .collect();
    for name in claimed {
        headers.remove(name);
    }
    let value = |text: &str| HeaderValue::from_bytes(text.as_bytes()).ok();
    let mut add = |name: HeaderName, text: &str| match value(text) {
        Some(value) => headers.try_append(name, value).is_ok(),
        None => false,
    };
    let mut is_whole = add(USER, &identity.user);
    if !identity.uid.is_empty() {
        is_whole &= add(UID, &identity.uid);
    }
    for group in identity.groups.iter() {
        is_whole &= add(GROUP, group);
    }
    for (key, values) in identity.extra.iter() {
        let Ok(name) = format!("{EXTRA}{}", escape(key)).parse::<HeaderName>() else {
            return false;
        };
        for value in values {
            is_whole &= add(name.clone(), value);
        }
    }
    is_whole
}

/// A key in lower case; what a header name cannot have is percent-encoded.
fn escape(key: &str) -> String {
    let mut escaped = String::with_capacity(key.len());
    for byte in key.to_ascii_lowercase().bytes() {
        let is_token = byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
        match is_token {
            true => escaped.push(char::from(byte)),
            false => escaped.push_str(&format!("%{byte:02x}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    #[test]
    fn user_of_the_request_replaces_what_the_client_claims() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("x-remote-user", "root"),
            ("x-remote-group", "system:masters"),
            ("x-remote-extra-scopes", "all"),
            ("x-remote-uid", "0"),
            ("cookie", "a"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        let mut user = Identity::new("bob", ["dev", "system:authenticated"]);
        let extra = BTreeMap::from([("Example.com/Key%".to_owned(), vec!["x".into(), "y".into()])]);
        user.extra = Arc::new(extra);
        assert!(set_user(&mut headers, &user));
        let mut shown: Vec<String> =
            headers.iter().map(|(k, v)| format!("{k}: {}", v.to_str().unwrap())).collect();
        shown.sort();
        assert_eq!(
            shown,
            [
                "cookie: a",
                "x-remote-extra-example.com%2fkey%25: x",
                "x-remote-extra-example.com%2fkey%25: y",
                "x-remote-group: dev",
                "x-remote-group: system:authenticated",
                "x-remote-user: bob",
            ]
        );
        assert!(!set_user(&mut headers, &Identity::new("a\nb", [])));
    }
}
