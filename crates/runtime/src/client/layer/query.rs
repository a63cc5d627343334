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
pub(super) fn set<B>(request: &mut Request<B>, name: &str, value: &str) {
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

/// Replaces the path of a request and keeps its query.
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
