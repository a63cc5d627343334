//! Issues server certificates from a CA of their own.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::ServerName;
use setpoint_object::time::Timestamp;
use std::time::Duration;

/// The maximum time by which the clocks of API servers may be behind.
const SKEW: Duration = Duration::from_secs(24 * 60 * 60);

/// Why a certificate cannot be issued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IssueError {
    /// There is no name, or one is not a valid server name.
    #[error("{0:?} is neither a DNS name nor an address")]
    Name(String),
    /// The certificate cannot be made.
    #[error("make a certificate")]
    Make(#[from] rcgen::Error),
}

/// A server's certificate with the CA that signed it, in PEM. The CA's key is dropped, so it signs
/// nothing else.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Issued {
    /// The CA's certificate, for clients.
    pub ca: String,
    /// The server's certificate.
    pub certificate: String,
    /// The server's key.
    pub key: String,
}

/// Omits the key.
impl std::fmt::Debug for Issued {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issued").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl Issued {
    /// Issues a certificate for a server with these DNS names and addresses, valid from a day
    /// before `now` until `validity` after it. Takes less than a millisecond. Keys are ECDSA P-256,
    /// from the operating system's randomness.
    ///
    /// # Errors
    ///
    /// There is no name or a bad one, or the system has no randomness.
    pub fn new(names: &[String], now: Timestamp, validity: Duration) -> Result<Self, IssueError> {
        let Some(first) = names.first() else { return Err(IssueError::Name(String::new())) };
        if let Some(bad) = names.iter().find(|name| ServerName::try_from(name.as_str()).is_err()) {
            return Err(IssueError::Name(bad.clone()));
        }
        let mut ca = CertificateParams::new(Vec::new())?;
        // The name is unique, so that a client can tell this CA from its successor.
        named(&mut ca, &format!("{first}-ca-{}", now.0.as_nanos()), now, validity);
        ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;
        let mut server = CertificateParams::new(names.to_vec())?;
        named(&mut server, first, now, validity);
        server.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate()?;
        let server = server.signed_by(&key, &ca)?;
        Ok(Self { ca: ca.pem(), certificate: server.pem(), key: key.serialize_pem() })
    }
}

fn named(params: &mut CertificateParams, name: &str, now: Timestamp, validity: Duration) {
    params.distinguished_name = DistinguishedName::new();
    // A common name has at most 64 characters.
    let name: String = name.chars().take(64).collect();
    params.distinguished_name.push(DnType::CommonName, name);
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.0.saturating_sub(SKEW);
    params.not_after = epoch + (now.0 + validity);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certificate::Certificate;
    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier as _;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::UnixTime;
    use rustls::pki_types::pem::PemObject as _;
    use std::sync::Arc;

    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    #[test]
    fn clients_of_the_ca_accept_the_certificate_while_it_is_valid() {
        let now = Timestamp::from_secs(1_800_000_000);
        let names = ["web.shop.svc".to_owned(), "127.0.0.1".to_owned()];
        let issued = Issued::new(&names, now, 90 * DAY).unwrap();
        let served =
            Certificate::from_pem(issued.certificate.as_bytes(), issued.key.as_bytes()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(issued.ca.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier.build().unwrap();
        let accepts = |name: &'static str, at: Duration| {
            let name = ServerName::try_from(name).unwrap();
            let at = UnixTime::since_unix_epoch(at);
            verifier.verify_server_cert(&served.chain()[0], &[], &name, &[], at).is_ok()
        };
        assert!(accepts("web.shop.svc", now.0) && accepts("127.0.0.1", now.0 + 89 * DAY));
        assert!(!accepts("web.bank.svc", now.0));
        assert!(!accepts("web.shop.svc", now.0 + 91 * DAY));
        assert!(!accepts("web.shop.svc", now.0 - 2 * DAY));
    }

    #[test]
    fn names_are_checked() {
        let issue = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            Issued::new(&names, Timestamp::from_secs(0), DAY)
        };
        assert!(matches!(issue(&[]), Err(IssueError::Name(_))));
        assert!(matches!(issue(&["a b"]), Err(IssueError::Name(name)) if name == "a b"));
        assert!(!format!("{:?}", issue(&["a.b"]).unwrap()).contains("PRIVATE"));
    }
}
