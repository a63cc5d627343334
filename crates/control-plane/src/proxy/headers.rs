//! Headers and paths of forwarded requests and answers (spec: extension §1.3).

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use setpoint_apiserver::encoded_path;
use std::net::IpAddr;

pub(crate) const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(crate) const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub(crate) const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
pub(crate) const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

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
pub(crate) fn is_upgrade(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::CONNECTION).iter();
    let mut words = lines.filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(','));
    headers.contains_key(header::UPGRADE)
        && words.any(|word| word.trim().eq_ignore_ascii_case("upgrade"))
}

/// Removes the headers of the connection.
pub(crate) fn remove_of_connection(headers: &mut HeaderMap) {
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
pub(crate) fn clean_answer(headers: &mut HeaderMap) {
    remove_of_connection(headers);
    for name in &CORS {
        headers.remove(name);
    }
}

/// Adds the client's address to those of earlier proxies.
pub(crate) fn append_forwarded_for(headers: &mut HeaderMap, client: IpAddr) {
    let earlier = headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let mut all: Vec<String> = earlier.map(str::to_owned).collect();
    all.push(client.to_string());
    if let Ok(value) = HeaderValue::try_from(all.join(", ")) {
        headers.insert(FORWARDED_FOR, value);
    }
}

/// A path, decoded and encoded again: a slash that was encoded is a slash. `None`: its encoding is
/// wrong.
pub(crate) fn path(encoded: &str) -> Option<String> {
    let bytes = encoded.as_bytes();
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
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
        decoded.push(byte);
    }
    Some(encoded_path(&decoded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_decoded_and_encoded_again() {
        for (given, forwarded) in [
            ("/apis/ex.io/v1/a%2Fb", Some("/apis/ex.io/v1/a/b")),
            ("/a//b/", Some("/a//b/")),
            ("/a%20b%3fc%25", Some("/a%20b%3Fc%25")),
            ("/a!*'()", Some("/a%21%2A%27%28%29")),
            ("/%C3%A4", Some("/%C3%A4")),
            ("/%4", None),
            ("/%zz", None),
            ("/%+1", None),
        ] {
            assert_eq!(path(given).as_deref(), forwarded, "{given}");
        }
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
