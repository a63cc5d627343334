//! Certificates for clients that ask for certain hosts.

use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use setpoint_object::name::dns1123_subdomain;
use setpoint_serve::certificate::CurrentCertificate;
use std::net::IpAddr;
use std::sync::Arc;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// A certificate for clients that ask for certain hosts, as kube-apiserver's `--tls-sni-cert-key`.
#[derive(Debug, Clone)]
pub struct NamedCertificate {
    current: CurrentCertificate,
    /// In lower case. Empty: those in the certificate.
    names: Vec<String>,
}

impl NamedCertificate {
    /// A certificate and its hosts. The first label of a host may be `*`. An address is one of the
    /// server, for clients that connect to it and name no host. Without any, the hosts are those in
    /// the certificate: its names, and its subject's common name.
    pub fn new(
        current: CurrentCertificate,
        names: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Self {
        let names = names.into_iter().map(|name| name.as_ref().to_ascii_lowercase());
        Self { current, names: names.collect() }
    }

    /// The addresses among its hosts.
    pub(super) fn addresses(&self) -> impl Iterator<Item = (IpAddr, CurrentCertificate)> {
        let addresses = self.names.iter().filter_map(|name| name.parse().ok());
        addresses.map(move |address| (address, self.current.clone()))
    }

    /// Whether a host was given for it.
    fn is_given(&self, host: &str) -> bool {
        self.names.iter().any(|name| name == host)
    }

    /// Whether no hosts were given for it, and this one is in it.
    fn is_own(&self, host: &str) -> bool {
        let certificate = self.current.get();
        let mut own = certificate.chain().first().into_iter().flat_map(hosts);
        self.names.is_empty() && own.any(|name| name == host)
    }
}

/// The hosts in a certificate, in lower case. Addresses are none: a client that connects to one
/// does not name it.
fn hosts(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    let mut hosts = Vec::new();
    let names = certificate.subject().iter_common_name();
    // The last one, as in Go's parser.
    let name = names.last().and_then(|name| name.as_str().ok());
    hosts.extend(name.filter(|name| is_host(name)).map(str::to_ascii_lowercase));
    if let Ok(Some(names)) = certificate.subject_alternative_name() {
        hosts.extend(names.value.general_names.iter().filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
            _ => None,
        }));
    }
    hosts
}

/// Whether a common name is a host, or stands for several.
fn is_host(name: &str) -> bool {
    let is_address = name.parse::<IpAddr>().is_ok();
    let is_domain = || dns1123_subdomain(name.strip_prefix("*.").unwrap_or(name)).is_empty();
    !is_address && (name == "*" || is_domain())
}

/// Chooses a certificate by the host that a client names.
#[derive(Debug)]
pub(super) struct ByName {
    pub(super) default: CurrentCertificate,
    pub(super) named: Vec<NamedCertificate>,
}

impl ByName {
    /// The certificate of a host. The host itself is looked for before the wildcard that covers
    /// it, then hosts that were given before those in certificates, then the first certificate.
    fn find(&self, host: &str) -> &CurrentCertificate {
        let wildcard = match host.split_once('.') {
            Some((_, domain)) => format!("*.{domain}"),
            None => "*".to_owned(),
        };
        let found = [host, &wildcard].into_iter().find_map(|host| {
            let given = self.named.iter().find(|named| named.is_given(host));
            given.or_else(|| self.named.iter().find(|named| named.is_own(host)))
        });
        found.map_or(&self.default, |named| &named.current)
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let host = hello.server_name().map(str::to_ascii_lowercase);
        host.map_or(&self.default, |host| self.find(&host)).resolve(hello)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
    use setpoint_serve::certificate::Certificate;

    /// A certificate with a common name and further names.
    fn certificate(common_name: &str, names: &[&str]) -> CurrentCertificate {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        let key = KeyPair::generate().unwrap();
        let chain = vec![params.self_signed(&key).unwrap().der().clone()];
        let key = key.serialize_der().try_into().unwrap();
        CurrentCertificate::new(Certificate::from_der(chain, key).unwrap())
    }

    #[test]
    fn given_hosts_come_before_those_in_certificates_and_hosts_before_wildcards() {
        let own = |name: &str, names: &[&str]| {
            NamedCertificate::new(certificate(name, names), [] as [&str; 0])
        };
        let given = |names: &[&str]| NamedCertificate::new(certificate("x.org", &[]), names);
        let by_name = ByName {
            default: certificate("default", &[]),
            named: vec![
                own("a.example.com", &["b.example.com", "*.example.com", "10.0.0.1"]),
                own("10.0.0.2", &["b.example.com", "two words.com"]),
                given(&["b.example.com", "*.org"]),
                given(&["*.org", "c.org", "127.0.0.3"]),
            ],
        };
        let at = |host: &str| {
            let found = by_name.find(host).get();
            by_name.named.iter().position(|one| one.current.get().chain() == found.chain())
        };
        for (host, expected) in [
            ("a.example.com", Some(0)),
            // Given for the third, though it is in the first.
            ("b.example.com", Some(2)),
            ("c.example.com", Some(0)),
            ("d.c.example.com", None),
            ("c.org", Some(3)),
            ("d.org", Some(2)),
            // Not one of its hosts, because some were given.
            ("x.org", Some(2)),
            ("other.net", None),
            ("10.0.0.2", None),
            ("host", None),
        ] {
            assert_eq!(at(host), expected, "{host}");
        }
        let addresses = by_name.named.iter().flat_map(NamedCertificate::addresses);
        let addresses: Vec<_> = addresses.map(|(address, _)| address.to_string()).collect();
        assert_eq!(addresses, ["127.0.0.3"]);
    }
}
