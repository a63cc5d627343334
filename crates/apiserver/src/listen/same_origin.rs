//! Protects a listener without authentication from web pages.
//!
//! Every client of such a listener is in `system:masters`, and a browser on this machine can reach
//! it for every page that it shows. Like `kubectl proxy`, the listener therefore answers only
//! requests for this machine's own names (a page with a rebound DNS name sends that name), and no
//! request that a page of another origin made.

use crate::body::Body;
use crate::respond::{self, Style};
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, Request, Response, header};
use setpoint_object::{ApiError, GroupResource};

/// The accepted names, as `kubectl proxy --accept-hosts`.
const HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// The header in which a browser describes the page that made a request.
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// The answer to a request that a foreign page may have made: 403.
pub(super) fn refuse<B>(request: &Request<B>) -> Option<Response<Body>> {
    let why = foreign(request)?;
    let no_resource = GroupResource { group: "".into(), resource: "".into() };
    let error = ApiError::forbidden(&no_resource, "", &why);
    Some(respond::error(&error, request.headers(), Style { pretty: false, gzip: false }))
}

/// The foreign name or origin of a request.
fn foreign<B>(request: &Request<B>) -> Option<String> {
    let headers = request.headers();
    let named = headers.get_all(header::HOST).iter().map(HeaderValue::as_bytes);
    let asked = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let mut own: Option<&[u8]> = None;
    for host in asked.into_iter().chain(named) {
        if !is_own(host) {
            let host = String::from_utf8_lossy(host);
            return Some(format!("the host {host:?} is not a name of this machine"));
        }
        own = Some(host);
    }
    let Some(own) = own else { return Some("the request names no host".to_owned()) };
    if let Some(origin) =
        headers.get_all(header::ORIGIN).iter().find(|origin| !is_same(origin.as_bytes(), own))
    {
        let origin = String::from_utf8_lossy(origin.as_bytes());
        return Some(format!("the request was made by a page of {origin:?}"));
    }
    let is_safe = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
    (!is_safe && is_cross_site(headers)).then(|| "the request was made by another site".to_owned())
}

/// Whether a host is this machine; the port is ignored.
fn is_own(host: &[u8]) -> bool {
    let Ok(authority) = Authority::try_from(host) else { return false };
    !host.contains(&b'@') && HOSTS.iter().any(|own| authority.host().eq_ignore_ascii_case(own))
}

/// Whether an `Origin` is the server itself.
fn is_same(origin: &[u8], host: &[u8]) -> bool {
    origin.strip_prefix(b"http://").is_some_and(|origin| origin.eq_ignore_ascii_case(host))
}

fn is_cross_site(headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all(SEC_FETCH_SITE).iter();
    sites.any(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_foreign(method: &str, headers: &[(&str, &str)]) -> bool {
        let request = Request::builder().method(method).uri("/api");
        let request =
            headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        foreign(&request.body(()).unwrap()).is_some()
    }

    #[test]
    fn names_of_this_machine_with_any_port_are_accepted_and_no_others() {
        for own in ["localhost", "LocalHost:80", "127.0.0.1:8080", "[::1]", "[::1]:8080"] {
            assert!(!is_foreign("GET", &[("host", own)]), "{own}");
        }
        for other in [
            "",
            "evil.example",
            "localhost.evil.example",
            "a@localhost",
            "127.0.0.1.nip.io",
            "127.0.0.2",
            "::1",
            "localhost:x:y",
        ] {
            assert!(is_foreign("GET", &[("host", other)]), "{other}");
        }
        assert!(is_foreign("GET", &[]));
        assert!(is_foreign("GET", &[("host", "localhost"), ("host", "evil.example")]));
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let host = ("host", "localhost:8080");
        assert!(!is_foreign("POST", &[host, ("origin", "http://localhost:8080")]));
        for origin in
            ["http://evil.example", "null", "http://localhost:3000", "https://localhost:8080"]
        {
            for method in ["GET", "POST"] {
                assert!(is_foreign(method, &[host, ("origin", origin)]), "{origin}");
            }
        }
        for (site, is_refused) in
            [("cross-site", true), ("same-site", true), ("same-origin", false), ("none", false)]
        {
            assert_eq!(is_foreign("POST", &[host, (SEC_FETCH_SITE, site)]), is_refused, "{site}");
        }
        // A link that a user follows.
        assert!(!is_foreign("GET", &[host, (SEC_FETCH_SITE, "cross-site")]));
    }

    #[test]
    fn a_host_in_the_request_target_counts_like_the_header() {
        let request =
            |uri: &str| Request::builder().uri(uri).header("host", "localhost").body(()).unwrap();
        assert!(foreign(&request("http://evil.example/api")).is_some());
        assert!(foreign(&request("http://localhost/api")).is_none());
    }
}
