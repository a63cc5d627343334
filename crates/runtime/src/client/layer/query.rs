//! The query of a request.

use http::{Request, Uri};

/// The raw value of a parameter.
pub(crate) fn value<'a>(uri: &'a Uri, name: &str) -> Option<&'a str> {
    let parameters = uri.query()?.split('&');
    parameters
        .filter_map(|parameter| parameter.split_once('='))
        .find(|(n, _)| *n == name)
        .map(|(_, value)| value)
}

/// Whether a raw value is the encoding of a text.
pub(crate) fn encodes(raw: &str, text: &str) -> bool {
    let mut raw = raw.bytes();
    let mut decoded = std::iter::from_fn(|| {
        let hex = |digit: Option<u8>| char::from(digit.unwrap_or_default()).to_digit(16);
        Some(match raw.next()? {
            b'+' => Some(u32::from(b' ')),
            b'%' => hex(raw.next()).zip(hex(raw.next())).map(|(high, low)| 16 * high + low),
            byte => Some(u32::from(byte)),
        })
    });
    text.bytes().all(|byte| decoded.next() == Some(Some(u32::from(byte))))
        && decoded.next().is_none()
}

/// Sets or replaces a parameter.
pub(crate) fn set<B>(request: &mut Request<B>, name: &str, value: &str) {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let mut parameters: Vec<&str> = query
        .split('&')
        .filter(|parameter| !parameter.is_empty() && parameter.split('=').next() != Some(name))
        .collect();
    let own = format!("{name}={}", escaped(value));
    parameters.push(&own);
    let path = format!("{}?{}", request.uri().path(), parameters.join("&"));
    replace(request, &path);
}

/// Replaces the path and the query of a request.
pub(super) fn replace<B>(request: &mut Request<B>, path: &str) {
    let mut parts = request.uri().clone().into_parts();
    if let Ok(path) = path.parse() {
        parts.path_and_query = Some(path);
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
}

fn escaped(value: &str) -> String {
    let mut escaped = String::with_capacity(value.len());
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                escaped.push(char::from(byte));
            }
            _ => escaped += &format!("%{byte:02X}"),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_encoding_of_a_text_is_recognized() {
        for (raw, text) in
            [("m", "m"), ("a%2Fb", "a/b"), ("a/b", "a/b"), ("a+b%20c%2f", "a b c/"), ("", "")]
        {
            assert!(encodes(raw, text), "{raw}");
            assert!(!encodes(&format!("{raw}x"), text) && !encodes(raw, &format!("{text}x")));
        }
        assert!(!encodes("a%2", "a") && !encodes("a%zz", "a") && !encodes("a%", "a%"));
        assert!(encodes(&escaped("ö~+%"), "ö~+%"));
    }

    #[test]
    fn parameter_is_added_to_any_query_or_replaced() {
        for (before, after) in [
            ("/api/v1/pods", "/api/v1/pods?a=b%20c"),
            ("/api/v1/pods?", "/api/v1/pods?a=b%20c"),
            ("/api/v1/pods?&x=y", "/api/v1/pods?x=y&a=b%20c"),
            ("/api/v1/pods?a=d&x=y", "/api/v1/pods?x=y&a=b%20c"),
            ("https://host:1/api?x=y", "https://host:1/api?x=y&a=b%20c"),
        ] {
            let mut request = Request::get(before).body(()).unwrap();
            set(&mut request, "a", "b c");
            assert_eq!(request.uri().to_string(), after);
        }
    }
}
