//! Headers of a front proxy that name a user.
use http::{HeaderMap, HeaderName, HeaderValue};
use setpoint_apiserver::RequestHeaderNames;

/// Lines of an input are headers. They name a user or nobody: exactly the text of the first header
/// for names, its groups in order, and as many extra values as there are headers for them.
pub fn check(input: &[u8]) {
    let texts = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let names = RequestHeaderNames {
        allowed_names: Vec::new(),
        username_headers: texts(&["X-Remote-User", "X-User"]),
        uid_headers: texts(&["X-Remote-Uid"]),
        group_headers: texts(&["X-Remote-Group"]),
        extra_headers_prefix: texts(&["X-Remote-Extra-"]),
    };
    let mut headers = HeaderMap::new();
    for line in input.split(|byte| *byte == b'\n') {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let header = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value));
        if let (Ok(name), Ok(value)) = header {
            // As many as a request may have.
            if headers.len() < 100 {
                headers.append(name, value);
            }
        }
    }
    let Ok(Some(identity)) = names.user(&headers) else { return };
    let named = ["x-remote-user", "x-user"]
        .iter()
        .filter_map(|name| headers.get(*name))
        .find(|value| !value.is_empty());
    assert_eq!(named.unwrap().as_bytes(), identity.user.as_bytes());
    let groups = headers.get_all("x-remote-group").iter().filter(|value| !value.is_empty());
    assert!(groups.map(HeaderValue::as_bytes).eq(identity.groups.iter().map(|g| g.as_bytes())));
    let n_extra = headers.keys().filter(|name| name.as_str().starts_with("x-remote-extra-"));
    let n_extra: usize = n_extra.map(|name| headers.get_all(name).iter().count()).sum();
    assert_eq!(identity.extra.values().map(Vec::len).sum::<usize>(), n_extra);
}
