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
