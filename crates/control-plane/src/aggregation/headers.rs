//! Headers of forwarded requests and answers (spec: extension §1.3).

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use setpoint_apiserver::Identity;
use std::net::IpAddr;

const USER: HeaderName = HeaderName::from_static("x-remote-user");
const UID: HeaderName = HeaderName::from_static("x-remote-uid");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const EXTRA: &str = "x-remote-extra-";
pub(super) const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(super) const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub(super) const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(super) const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
pub(super) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

/// Headers of one connection, which a proxy does not pass on (RFC 9110 §7.6.1).
const OF_CONNECTION: [HeaderName; 9] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Which of a server's headers do not reach a browser, as on the reference server: who may read an
/// answer is up to the proxy.
const CORS: [HeaderName; 4] = [
    header::ACCESS_CONTROL_ALLOW_CREDENTIALS,
    header::ACCESS_CONTROL_ALLOW_HEADERS,
    header::ACCESS_CONTROL_ALLOW_METHODS,
    header::ACCESS_CONTROL_ALLOW_ORIGIN,
];

/// Whether a request asks for another protocol.
pub(super) fn is_upgrade(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::CONNECTION).iter();
    let mut words = lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(','));
    headers.contains_key(header::UPGRADE)
        && words.any(|word| word.trim().eq_ignore_ascii_case("upgrade"))
}

/// Removes the headers of the connection.
pub(super) fn remove_of_connection(headers: &mut HeaderMap) {
    let lines = headers.get_all(header::CONNECTION).iter();
    let named: Vec<HeaderName> = lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .filter_map(|word| word.trim().parse().ok())
        .collect();
    for name in named.iter().chain(&OF_CONNECTION) {
        headers.remove(name);
    }
}

/// Removes the headers of an answer that are not passed on.
pub(super) fn clean_answer(headers: &mut HeaderMap) {
    remove_of_connection(headers);
    for name in &CORS {
        headers.remove(name);
    }
}

/// Replaces the client's headers about its user by the authenticated user. Returns false if a name
/// cannot be written in a header: such a request must not be forwarded.
#[must_use]
pub(super) fn set_user(headers: &mut HeaderMap, identity: &Identity) -> bool {
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

/// Adds the client's address to those of earlier proxies.
pub(super) fn append_forwarded_for(headers: &mut HeaderMap, client: IpAddr) {
    let earlier = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let mut all: Vec<String> = earlier.map(str::to_owned).collect();
    all.push(client.to_string());
    if let Ok(value) = HeaderValue::try_from(all.join(", ")) {
        headers.insert(FORWARDED_FOR, value);
    }
}

/// A path, decoded and encoded again: a slash that was encoded is a slash. `None`: its encoding is
/// wrong.
pub(super) fn path(encoded: &str) -> Option<String> {
    let bytes = encoded.as_bytes();
    let (mut path, mut at) = (String::with_capacity(encoded.len()), 0);
    while let Some(&byte) = bytes.get(at) {
        let byte = match byte {
            b'%' => {
                let digits = encoded.get(at + 1..at + 3)?;
                at += 2;
                u8::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))?
            }
            byte => byte,
        };
        at += 1;
        match byte.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@!*'()".contains(&byte) {
            true => path.push(char::from(byte)),
            false => path.push_str(&format!("%{byte:02X}")),
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    #[test]
    fn paths_are_decoded_and_encoded_again() {
        for (given, forwarded) in [
            ("/apis/ex.io/v1/a%2Fb", Some("/apis/ex.io/v1/a/b")),
            ("/a//b/", Some("/a//b/")),
            ("/a%20b%3fc%25", Some("/a%20b%3Fc%25")),
            ("/%C3%A4", Some("/%C3%A4")),
            ("/%4", None),
            ("/%zz", None),
            ("/%+1", None),
        ] {
            assert_eq!(path(given).as_deref(), forwarded, "{given}");
        }
    }

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

    #[test]
    fn headers_of_the_connection_stay_on_it() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "Upgrade, X-Hop"),
            ("upgrade", "websocket"),
            ("x-hop", "1"),
            ("te", "trailers"),
            ("accept", "*/*"),
        ] {
            headers.append(name, value.parse().unwrap());
        }
        assert!(is_upgrade(&headers));
        remove_of_connection(&mut headers);
        assert_eq!(headers.len(), 1);
        assert!(!is_upgrade(&headers));
    }

    #[test]
    fn client_is_the_last_of_the_proxies() {
        let mut headers = HeaderMap::new();
        append_forwarded_for(&mut headers, [10, 0, 0, 1].into());
        append_forwarded_for(&mut headers, [10, 0, 0, 2].into());
        assert_eq!(headers[FORWARDED_FOR], "10.0.0.1, 10.0.0.2");
    }
}
