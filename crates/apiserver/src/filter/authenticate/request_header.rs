//! Users in the headers of a front proxy (spec: auth §1.3).

use super::authorities::ClientAuthorities;
use super::subject;
use super::{Authentication, Authenticator};
use crate::query::decode;
use futures::FutureExt as _;
use futures::future::{BoxFuture, ready};
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use setpoint_object::time::Clock;
use setpoint_registry::Identity;
use setpoint_serve::tls::PeerCertificate;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The headers that kube-apiserver's aggregator sends.
const STANDARD: [&str; 3] = ["x-remote-user", "x-remote-uid", "x-remote-group"];
const STANDARD_EXTRA: &str = "x-remote-extra-";

/// Which headers name the user, and which proxies may send them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestHeaderNames {
    /// Common names of certificates of proxies; empty: all that the authorities have signed.
    pub allowed_names: Vec<String>,
    /// The first of these headers with a value is the user.
    pub username_headers: Vec<String>,
    /// The first of these headers with a value is the uid.
    pub uid_headers: Vec<String>,
    /// All values of these headers are groups.
    pub group_headers: Vec<String>,
    /// Headers that begin with one of these are extra values. What follows is the key, which may be
    /// percent-encoded.
    pub extra_headers_prefix: Vec<String>,
}

impl RequestHeaderNames {
    /// The user of the headers; `None` if they name none. Whether the client may name users is not
    /// checked here: see [`RequestHeader`].
    ///
    /// # Errors
    ///
    /// A value is not UTF-8.
    pub fn user(&self, headers: &HeaderMap) -> Result<Option<Identity>, NotText> {
        let first = |names: &[String]| -> Result<String, NotText> {
            for name in names {
                let value = headers.get(name.trim()).map_or(Ok(""), text)?;
                if !value.is_empty() {
                    return Ok(value.to_owned());
                }
            }
            Ok(String::new())
        };
        let user = first(&self.username_headers)?;
        if user.is_empty() {
            return Ok(None);
        }
        let uid = first(&self.uid_headers)?;
        let mut groups = Vec::new();
        for name in &self.group_headers {
            for value in headers.get_all(name.trim()) {
                groups.push(text(value)?);
            }
        }
        groups.retain(|group| !group.is_empty());
        let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for prefix in self.extra_headers_prefix.iter().map(|prefix| prefix.trim()) {
            for name in headers.keys() {
                let Some(key) = without_prefix(name, prefix) else { continue };
                // A key that is not percent-encoded is taken as it is.
                let key = decode(key, false).unwrap_or_else(|| key.to_owned());
                let values = extra.entry(key).or_default();
                for value in headers.get_all(name) {
                    values.push(text(value)?.to_owned());
                }
            }
        }
        let identity = Identity::new(&user, groups);
        Ok(Some(Identity { uid: uid.into(), extra: Arc::new(extra), ..identity }))
    }
}

/// Authenticates the users whom a front proxy names in headers. They count only if the connection
/// has a client certificate of one of the authorities, with an allowed name. Such a proxy may name
/// any user, so the authorities should sign nothing else.
///
/// [`Listener::front_proxy`](crate::listen::Listener::front_proxy) adds it to a listener, which
/// asks it before everything else and removes the headers.
#[derive(Debug)]
pub struct RequestHeader {
    names: RequestHeaderNames,
    authorities: ClientAuthorities,
    clock: Clock,
}

impl RequestHeader {
    /// With these authorities of proxies. `clock` decides about the times of certificates.
    pub fn new(names: RequestHeaderNames, authorities: ClientAuthorities, clock: Clock) -> Self {
        Self { names, authorities, clock }
    }

    /// The authorities of proxies.
    pub(crate) fn authorities(&self) -> &ClientAuthorities {
        &self.authorities
    }

    fn identify(&self, request: &Parts) -> Authentication {
        let Some(peer) = request.extensions.get::<PeerCertificate>() else {
            return Authentication::NoOpinion;
        };
        // The certificate may be a user's.
        if !self.authorities.verify(peer, self.clock.now()) {
            return Authentication::NoOpinion;
        }
        let names = &self.names;
        if !names.allowed_names.is_empty() {
            let name = peer.chain().first().and_then(subject::common_name).unwrap_or_default();
            if !names.allowed_names.contains(&name) {
                let why = format!("x509: subject with cn={name} is not in the allowed list");
                return Authentication::Invalid(why);
            }
        }
        match names.user(&request.headers) {
            Ok(Some(identity)) => Authentication::User(identity),
            Ok(None) => Authentication::NoOpinion,
            Err(error) => Authentication::Invalid(error.to_string()),
        }
    }

    /// Removes its headers.
    pub(crate) fn strip(&self, headers: &mut HeaderMap) {
        let names = &self.names;
        let named = [&names.username_headers, &names.uid_headers, &names.group_headers];
        for name in named.into_iter().flatten() {
            headers.remove(name.trim());
        }
        let prefixes = names.extra_headers_prefix.iter().map(|prefix| prefix.trim());
        for prefix in prefixes {
            remove_prefix(headers, prefix);
        }
    }
}

impl Authenticator for RequestHeader {
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Authentication> {
        ready(self.identify(request)).boxed()
    }
}

/// Removes the headers that servers behind this one believe.
pub(super) fn strip_standard(headers: &mut HeaderMap) {
    for name in STANDARD {
        headers.remove(name);
    }
    remove_prefix(headers, STANDARD_EXTRA);
}

fn remove_prefix(headers: &mut HeaderMap, prefix: &str) {
    let is_named = |name: &&HeaderName| without_prefix(name, prefix).is_some();
    let names: Vec<HeaderName> = headers.keys().filter(is_named).cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// What follows a prefix in the name of a header, in lower case.
fn without_prefix<'n>(name: &'n HeaderName, prefix: &str) -> Option<&'n str> {
    let (before, key) = name.as_str().split_at_checked(prefix.len())?;
    before.eq_ignore_ascii_case(prefix).then_some(key)
}

/// A value of a front proxy's header is not UTF-8. A group that is left out might be one with fewer
/// rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a header of the front proxy is not UTF-8")]
pub struct NotText;

fn text(value: &http::HeaderValue) -> Result<&str, NotText> {
    std::str::from_utf8(value.as_bytes()).map_err(|_| NotText)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose,
        IsCa, KeyPair,
    };
    use setpoint_object::time::Timestamp;

    fn ca() -> CertifiedIssuer<'static, KeyPair> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    }

    fn peer(ca: &CertifiedIssuer<'_, KeyPair>, name: &str) -> PeerCertificate {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        PeerCertificate::new(vec![params.signed_by(&key, ca).unwrap().der().clone()])
    }

    const HEADERS: [(&str, &str); 8] = [
        ("X-Remote-User", "jane"),
        ("X-Remote-Uid", "7"),
        ("X-Remote-Group", "a"),
        ("X-Remote-Group", "b"),
        ("X-Remote-Extra-Scopes", "x"),
        ("X-Remote-Extra-Scopes", "y"),
        ("X-Remote-Extra-Acme.com%2Fproject", "z"),
        ("X-Other", "o"),
    ];

    fn names(allowed: &[&str]) -> RequestHeaderNames {
        let list = |name: &str| vec![name.to_owned()];
        RequestHeaderNames {
            allowed_names: allowed.iter().map(|name| (*name).to_owned()).collect(),
            username_headers: vec!["X-Absent".to_owned(), "X-Remote-User".to_owned()],
            uid_headers: list("X-Remote-Uid"),
            group_headers: list("X-Remote-Group"),
            extra_headers_prefix: list("X-Remote-Extra-"),
        }
    }

    fn request(peer: Option<PeerCertificate>, headers: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::builder();
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (mut parts, ()) = request.body(()).unwrap().into_parts();
        if let Some(peer) = peer {
            parts.extensions.insert(peer);
        }
        parts
    }

    #[test]
    fn headers_count_only_with_a_certificate_of_a_proxy() {
        let (known, unknown) = (ca(), ca());
        let authorities = ClientAuthorities::new(vec![known.der().clone()]).unwrap();
        // The certificates of rcgen are valid from 1975 to 4096.
        let clock = Clock::starting_at(Timestamp::from_secs(1_767_225_600));
        let proxy = RequestHeader::new(names(&["proxy"]), authorities.clone(), clock.clone());
        let check = |peer, headers: &[(&str, &str)]| proxy.identify(&request(peer, headers));
        let of_proxy = peer(&known, "proxy");
        let Authentication::User(jane) = check(Some(of_proxy.clone()), &HEADERS) else {
            panic!("refused");
        };
        assert_eq!((&*jane.user, &*jane.uid), ("jane", "7"));
        assert_eq!(jane.groups.iter().map(|group| &**group).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(
            format!("{:?}", jane.extra),
            r#"{"acme.com/project": ["z"], "scopes": ["x", "y"]}"#
        );
        assert_eq!(check(Some(of_proxy.clone()), &[]), Authentication::NoOpinion);
        assert_eq!(check(None, &HEADERS), Authentication::NoOpinion);
        assert_eq!(check(Some(peer(&unknown, "proxy")), &HEADERS), Authentication::NoOpinion);
        assert_eq!(
            check(Some(peer(&known, "other")), &HEADERS),
            Authentication::Invalid(
                "x509: subject with cn=other is not in the allowed list".to_owned()
            )
        );
        let any = RequestHeader::new(names(&[]), authorities.clone(), clock);
        let of_other = request(Some(peer(&known, "other")), &HEADERS);
        assert!(matches!(any.identify(&of_other), Authentication::User(_)));
        // The authority is withdrawn: the next request is refused.
        assert!(authorities.set(vec![unknown.der().clone()]).unwrap());
        assert_eq!(check(Some(of_proxy), &HEADERS), Authentication::NoOpinion);
    }

    #[test]
    fn headers_are_removed() {
        let authorities = ClientAuthorities::new(vec![ca().der().clone()]).unwrap();
        let clock = Clock::starting_at(Timestamp::from_secs(0));
        let proxy = RequestHeader::new(names(&[]), authorities, clock);
        let mut headers = request(None, &HEADERS).headers;
        let mut standard = headers.clone();
        proxy.strip(&mut headers);
        strip_standard(&mut standard);
        for headers in [headers, standard] {
            assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-other"]);
        }
    }
}
