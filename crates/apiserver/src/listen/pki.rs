//! Certificates made at start: a CA, the server's certificate, the administrator's certificate and token.
//!
//! Keys are ECDSA P-256, which take a fraction of a millisecond to make. They live in memory (and in the kubeconfig that the
//! caller writes): a restarted server has a new CA.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::time_provider::TimeProvider;
use setpoint_object::time::{Clock, Timestamp};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;

/// How long certificates are good for: a year, in days. A server is restarted before that, and makes new ones.
const VALID_DAYS: u32 = 365;
/// Clocks of clients may be behind by up to this many days.
const SKEW_DAYS: u32 = 1;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Names and addresses a server certificate is always good for.
const SERVER_NAMES: [&str; 7] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "127.0.0.1",
    "::1",
];

/// Why certificates cannot be made or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PkiError {
    /// A certificate cannot be made.
    #[error("make a certificate")]
    Make(#[from] rcgen::Error),
    /// TLS does not take the certificates.
    #[error("use the certificates")]
    Use(#[from] rustls::Error),
    /// Client certificates cannot be verified against the CA.
    #[error("verify client certificates")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// A CA and what it signed.
pub struct Pki {
    ca: CertificateDer<'static>,
    ca_pem: String,
    server: CertificateDer<'static>,
    server_key: PrivatePkcs8KeyDer<'static>,
    admin: CertificateDer<'static>,
    admin_pem: String,
    admin_key_pem: String,
    admin_token: String,
}

impl std::fmt::Debug for Pki {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pki").finish_non_exhaustive()
    }
}

impl Pki {
    /// Makes everything, valid from the day before `now` for a year. `names`: further names or addresses of the server.
    ///
    /// # Errors
    ///
    /// When a name is no DNS name, or the system gives no randomness.
    pub fn generate(now: Timestamp, names: &[String]) -> Result<Self, PkiError> {
        let params = |names: Vec<String>, common_name: &str| -> Result<_, rcgen::Error> {
            let mut params = CertificateParams::new(names)?;
            let from = Timestamp(now.0.saturating_sub(DAY * SKEW_DAYS));
            valid(&mut params, from, Timestamp(now.0 + DAY * VALID_DAYS));
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, common_name);
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            Ok(params)
        };
        let mut ca = params(Vec::new(), "setpoint-ca")?;
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages.extend([KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign]);
        let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;

        let names = SERVER_NAMES.iter().map(|name| (*name).to_owned()).chain(names.iter().cloned());
        let mut server = params(names.collect(), "setpoint-apiserver")?;
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let server_key = KeyPair::generate()?;
        let server = server.signed_by(&server_key, &ca)?;

        let mut admin = params(Vec::new(), "system:admin")?;
        admin.distinguished_name.push(DnType::OrganizationName, crate::identity::MASTERS);
        admin.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let admin_key = KeyPair::generate()?;
        let admin = admin.signed_by(&admin_key, &ca)?;

        // The token is as secret and as random as the key, from which it cannot be computed back.
        let mut digest = Sha256::new();
        digest.update(b"setpoint administrator token\0");
        digest.update(admin_key.serialized_der());
        Ok(Self {
            ca: ca.der().clone(),
            ca_pem: ca.pem(),
            server: server.der().clone(),
            server_key: PrivatePkcs8KeyDer::from(server_key.serialize_der()),
            admin_pem: admin.pem(),
            admin: admin.der().clone(),
            admin_key_pem: admin_key.serialize_pem(),
            admin_token: URL_SAFE_NO_PAD.encode(digest.finalize()),
        })
    }

    /// The CA's certificate in PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The administrator's certificate and private key in PEM.
    pub fn admin_pem(&self) -> (&str, &str) {
        (&self.admin_pem, &self.admin_key_pem)
    }

    /// The administrator's bearer token.
    pub fn admin_token(&self) -> &str {
        &self.admin_token
    }

    /// The administrator's certificate.
    pub(super) fn admin_certificate(&self) -> &CertificateDer<'static> {
        &self.admin
    }

    /// TLS for a server: a client certificate is asked for and verified when shown; HTTP/2 is preferred.
    pub(super) fn server_config(&self, clock: Clock) -> Result<rustls::ServerConfig, PkiError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.clone())?;
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
                .allow_unauthenticated()
                .build()?;
        let mut config =
            rustls::ServerConfig::builder_with_details(provider, Arc::new(TlsClock(clock)))
                .with_safe_default_protocol_versions()?
                .with_client_cert_verifier(verifier)
                .with_single_cert(
                    vec![self.server.clone()],
                    PrivateKeyDer::Pkcs8(self.server_key.clone_key()),
                )?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }
}

/// TLS asks the same clock as everyone.
#[derive(Debug)]
struct TlsClock(Clock);

impl TimeProvider for TlsClock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.0.now().0))
    }
}

/// Sets the days a certificate is good for; its times have no smaller unit.
fn valid(params: &mut CertificateParams, from: Timestamp, to: Timestamp) {
    let [from, to] = [from, to].map(|moment| {
        // `YYYY-MM-DD...`
        let text = moment.rfc3339();
        let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
        rcgen::date_time_ymd(
            part(0, 4).parse().unwrap_or(1970),
            part(5, 7).parse().unwrap_or(1),
            part(8, 10).parse().unwrap_or(1),
        )
    });
    params.not_before = from;
    params.not_after = to;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_make_a_server() {
        let now = Timestamp(Duration::from_secs(1_700_000_000));
        let pki = Pki::generate(now, &["example.com".into()]).unwrap();
        pki.server_config(Clock::starting_at(now)).unwrap();
        assert_eq!(pki.admin_token().len(), 43);
        assert_ne!(pki.admin_token(), Pki::generate(now, &[]).unwrap().admin_token());
    }
}
