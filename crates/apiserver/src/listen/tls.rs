//! The TLS configuration of a listener: its certificate, and the authorities of client
//! certificates.

use super::named::{ByName, NamedCertificate};
use super::pki::{Pki, PkiError};
use crate::filter::authenticate::ClientAuthorities;
use parking_lot::Mutex;
use rustls::DistinguishedName;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ResolvesServerCert;
use rustls::time_provider::TimeProvider;
use setpoint_object::error::chain;
use setpoint_object::time::Clock;
use setpoint_serve::certificate::CurrentCertificate;
use setpoint_serve::tls::{KeyHolder, Sessions, TlsPolicy, TlsSource};
use std::net::IpAddr;
use std::sync::Arc;

/// The certificate of a listener, read at each handshake, and the authorities of client
/// certificates.
///
/// With authorities, a client certificate is requested. A handshake succeeds with any whose key the
/// client has; the authorities decide for each request, and one that none of them has signed is
/// answered with 401, as kube-apiserver does.
#[derive(Debug, Clone)]
#[must_use]
pub struct Tls {
    current: CurrentCertificate,
    named: Vec<NamedCertificate>,
    policy: TlsPolicy,
    client_cas: Vec<CertificateDer<'static>>,
    authorities: Option<ClientAuthorities>,
}

impl Tls {
    /// With this certificate, without client certificates.
    pub fn new(current: CurrentCertificate) -> Self {
        Self {
            current,
            named: Vec::new(),
            policy: TlsPolicy::default(),
            client_cas: Vec::new(),
            authorities: None,
        }
    }

    /// Adds a certificate for certain hosts. Of two with the same host, the first one counts.
    /// Default: none.
    pub fn named(mut self, certificate: NamedCertificate) -> Self {
        self.named.push(certificate);
        self
    }

    /// Versions, cipher suites, groups and protocols. Default: TLS 1.2 and 1.3 with safe suites,
    /// HTTP/2 and HTTP/1.1.
    pub fn policy(mut self, policy: TlsPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Also accepts client certificates that one of these authorities has signed.
    pub fn client_ca(
        mut self,
        certificates: impl IntoIterator<Item = CertificateDer<'static>>,
    ) -> Self {
        self.client_cas.extend(certificates);
        self
    }

    /// Accepts client certificates of authorities that can be replaced. Those of
    /// [`client_ca`](Self::client_ca) are then ignored.
    pub fn client_authorities(mut self, authorities: ClientAuthorities) -> Self {
        self.authorities = Some(authorities);
        self
    }

    /// The authorities of users' certificates.
    pub(super) fn authorities(&self) -> Result<Option<ClientAuthorities>, PkiError> {
        match &self.authorities {
            Some(authorities) => Ok(Some(authorities.clone())),
            None if self.client_cas.is_empty() => Ok(None),
            None => Ok(Some(ClientAuthorities::new(self.client_cas.clone())?)),
        }
    }

    /// The certificates of addresses, for clients that name no host.
    pub(super) fn of_addresses(&self) -> impl Iterator<Item = (IpAddr, CurrentCertificate)> {
        // Of two for one address, the first one counts: it is the last of a map's.
        self.named.iter().rev().flat_map(NamedCertificate::addresses)
    }

    /// The configuration of a listener whose users' certificates these authorities sign. Without
    /// any, no certificate is requested.
    pub(super) fn source(
        self,
        clock: Clock,
        authorities: Vec<ClientAuthorities>,
    ) -> Result<AuthoritiesSource, PkiError> {
        let (sessions, subjects) = (Arc::default(), subjects(&authorities));
        let config = self.config(&clock, &subjects, &sessions)?;
        let made = Mutex::new(Made { subjects, config });
        Ok(AuthoritiesSource { tls: self, clock, authorities, sessions, made })
    }

    /// HTTP/2 is preferred. Client certificates are requested if there are authorities, of which
    /// these are the names.
    fn config(
        &self,
        clock: &Clock,
        subjects: &[Arc<[DistinguishedName]>],
        sessions: &Arc<Sessions>,
    ) -> Result<Arc<rustls::ServerConfig>, PkiError> {
        let provider = Arc::new(self.policy.provider());
        let clock = Arc::new(TlsClock(clock.clone()));
        let builder = rustls::ServerConfig::builder_with_details(provider.clone(), clock)
            .with_protocol_versions(self.policy.versions())?;
        let builder = match subjects.is_empty() {
            true => builder.with_no_client_auth(),
            false => {
                let hints = subjects.iter().flat_map(|names| names.iter().cloned()).collect();
                builder.with_client_cert_verifier(Arc::new(KeyHolder::new(provider, hints)))
            }
        };
        let resolver: Arc<dyn ResolvesServerCert> = match self.named.is_empty() {
            true => Arc::new(self.current.clone()),
            false => Arc::new(ByName { default: self.current.clone(), named: self.named.clone() }),
        };
        let mut config = builder.with_cert_resolver(resolver);
        config.session_storage = sessions.clone();
        config.alpn_protocols = self.policy.protocols();
        Ok(Arc::new(config))
    }
}

/// The configuration for the present authorities: clients are told their names, as by
/// kube-apiserver, so that one with several certificates can choose.
#[derive(Debug)]
pub(super) struct AuthoritiesSource {
    tls: Tls,
    clock: Clock,
    authorities: Vec<ClientAuthorities>,
    /// Those of all configurations.
    sessions: Arc<Sessions>,
    made: Mutex<Made>,
}

/// The last configuration, and the names that it tells.
#[derive(Debug)]
struct Made {
    subjects: Vec<Arc<[DistinguishedName]>>,
    config: Arc<rustls::ServerConfig>,
}

impl TlsSource for AuthoritiesSource {
    fn current(&self) -> Arc<rustls::ServerConfig> {
        let present = subjects(&self.authorities);
        let mut made = self.made.lock();
        let told = made.subjects.iter();
        let is_same = told.zip(&present).all(|(told, name)| Arc::ptr_eq(told, name));
        if !is_same {
            match self.tls.config(&self.clock, &present, &self.sessions) {
                Ok(config) => *made = Made { subjects: present, config },
                // The names are hints: the former ones serve.
                Err(error) => tracing::error!(error = chain(&error), "set up TLS again"),
            }
        }
        made.config.clone()
    }
}

/// The names of the present authorities.
fn subjects(authorities: &[ClientAuthorities]) -> Vec<Arc<[DistinguishedName]>> {
    authorities.iter().map(ClientAuthorities::subjects).collect()
}

/// With the server's certificate; accepts client certificates that the CA has signed.
impl From<&Pki> for Tls {
    fn from(pki: &Pki) -> Self {
        Self::new(pki.current()).client_ca([pki.ca_certificate().clone()])
    }
}

/// TLS uses the server's clock.
#[derive(Debug)]
struct TlsClock(Clock);

impl TimeProvider for TlsClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.0.now().0))
    }
}

#[cfg(test)]
mod tests;
