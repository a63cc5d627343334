//! Links and redirects of a proxied server, changed so that they lead through this server.

use http::HeaderValue;
use setpoint_object::field::quote;

/// Where a page came from.
#[derive(Debug, Clone)]
pub(super) struct Links {
    /// The server's `host:port`, and its host alone if the port is that of the scheme.
    pub(super) hosts: Vec<String>,
    /// The client's `Host`.
    pub(super) client_host: String,
    /// The path of this server before those of the page's server.
    pub(super) prefix: String,
}

impl Links {
    /// A link that leads through this server; `None`: it stays as it is, because it is relative or
    /// leads elsewhere.
    pub(super) fn changed(&self, link: &str) -> Option<String> {
        let (scheme, rest) = scheme(link);
        let (host, rest) = match rest.strip_prefix("//") {
            Some(rest) => rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len())),
            None => ("", rest),
        };
        let is_ours = host.is_empty() || host == self.client_host;
        if !rest.starts_with('/') || !(is_ours || self.hosts.iter().any(|known| known == host)) {
            return None;
        }
        // As on the original, the client's own host stays in the link.
        let before = match host.is_empty() || host != self.client_host {
            true => String::new(),
            false => format!("{scheme}//{host}"),
        };
        let (path, tail) = rest.split_at(rest.find(['?', '#']).unwrap_or(rest.len()));
        if path.starts_with(&self.prefix) {
            return (before.len() + rest.len() < link.len()).then(|| format!("{before}{rest}"));
        }
        Some(format!("{before}{}{tail}", joined(&self.prefix, path)))
    }

    /// The header `Location` of an answer.
    ///
    /// # Errors
    ///
    /// The text for a value that is no URL.
    pub(super) fn location(&self, value: &HeaderValue) -> Result<Option<HeaderValue>, String> {
        let link = String::from_utf8_lossy(value.as_bytes());
        let bad = link.match_indices('%').find_map(|(at, _)| {
            let escape = link[at..].chars().take(3).collect::<String>();
            let is_escape =
                escape.len() == 3 && escape[1..].bytes().all(|byte| byte.is_ascii_hexdigit());
            (!is_escape).then_some(escape)
        });
        if let Some(escape) = bad {
            let (link, escape) = (quote(&link), quote(&escape));
            return Err(format!(
                "error trying to parse Location header: parse {link}: invalid URL escape {escape}"
            ));
        }
        Ok(self.changed(&link).and_then(|link| HeaderValue::try_from(link).ok()))
    }
}

/// A path behind another one, without empty segments, `.` and `..`. A slash at its end stays.
pub(super) fn joined(prefix: &str, path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in prefix.split('/').chain(path.split('/')) {
        match segment {
            "" | "." => {}
            ".." => _ = segments.pop(),
            segment => segments.push(segment),
        }
    }
    let slash = if path.ends_with('/') && !segments.is_empty() { "/" } else { "" };
    format!("/{}{slash}", segments.join("/"))
}

/// The scheme of a URL with its colon, and the rest.
fn scheme(link: &str) -> (&str, &str) {
    let end = link.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c));
    match end {
        Some(end) if end > 0 && link[end..].starts_with(':') => link.split_at(end + 1),
        _ => ("", link),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links() -> Links {
        Links {
            hosts: vec!["10.0.0.1:80".to_owned(), "10.0.0.1".to_owned()],
            client_host: "localhost:8001".to_owned(),
            prefix: "/api/v1/namespaces/d/pods/p/proxy".to_owned(),
        }
    }

    /// What kube-apiserver 1.36 makes of them.
    #[test]
    fn absolute_paths_lead_through_the_server() {
        for (link, expected) in [
            ("/next", Some("/api/v1/namespaces/d/pods/p/proxy/next")),
            ("/next/", Some("/api/v1/namespaces/d/pods/p/proxy/next/")),
            ("/a?x=/1&amp;y#z", Some("/api/v1/namespaces/d/pods/p/proxy/a?x=/1&amp;y#z")),
            ("/", Some("/api/v1/namespaces/d/pods/p/proxy/")),
            ("http://10.0.0.1:80/abs", Some("/api/v1/namespaces/d/pods/p/proxy/abs")),
            ("http://10.0.0.1/abs", Some("/api/v1/namespaces/d/pods/p/proxy/abs")),
            (
                "https://localhost:8001/abs",
                Some("https://localhost:8001/api/v1/namespaces/d/pods/p/proxy/abs"),
            ),
            ("/api/v1/namespaces/d/pods/p/proxy/q", None),
            (
                "http://10.0.0.1/api/v1/namespaces/d/pods/p/proxy/q",
                Some("/api/v1/namespaces/d/pods/p/proxy/q"),
            ),
            ("rel", None),
            ("", None),
            ("?a=/b", None),
            ("http://elsewhere/abs", None),
            ("//cdn/x", None),
            ("mailto:a@b", None),
            ("javascript:/x/", Some("/api/v1/namespaces/d/pods/p/proxy/x/")),
        ] {
            assert_eq!(links().changed(link).as_deref(), expected, "{link}");
        }
    }

    #[test]
    fn a_redirect_to_what_is_no_url_is_an_error() {
        let of = |text: &'static str| links().location(&HeaderValue::from_static(text));
        assert_eq!(of("/a%20b").unwrap().unwrap(), "/api/v1/namespaces/d/pods/p/proxy/a%20b");
        assert_eq!(
            of("%zz").unwrap_err(),
            r#"error trying to parse Location header: parse "%zz": invalid URL escape "%zz""#
        );
    }

    #[test]
    fn paths_are_joined_as_in_go() {
        for (prefix, path, expected) in
            [("/a", "/b", "/a/b"), ("/a//b", "/c/", "/a/b/c/"), ("", "/", "/"), ("/a", "/", "/a/")]
        {
            assert_eq!(joined(prefix, path), expected);
        }
    }
}
