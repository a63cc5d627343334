//! Certificates: a CA, the server's certificate, the administrator's certificate and token.
//!
//! Keys are ECDSA P-256, which take a fraction of a millisecond to generate. [`Pki::generate`]
//! creates everything. Store [`PkiFiles`] and pass them to [`Pki::load`] at the next start, so that
//! existing clients keep working:
//!
//! | what | is valid for | at the next start |
//! |---|---|---|
//! | CA, administrator | ten years | the same; refused if expired |
//! | server | a year | renewed, with a new key, in its last thirty days and for further names |
//! | administrator's token | as their key | the same: it is computed from the key |

mod front_proxy;
mod load;
#[cfg(test)]
mod tests;

pub use front_proxy::FrontProxy;
pub use load::{Loaded, PkiFiles};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SerialNumber,
};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use setpoint_object::time::Timestamp;
use setpoint_serve::certificate::{Certificate, CertificateError, CurrentCertificate};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;

/// Validity of the server's certificate: a year, in days.
const SERVER_DAYS: u32 = 365;
/// Validity of the CA and the administrator's certificate: ten years, in days, as kubeadm's CA.
const CA_DAYS: u32 = 3650;
/// How many days clients' clocks may be behind.
const SKEW_DAYS: u32 = 1;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Names and addresses that every server certificate has.
const SERVER_NAMES: [&str; 7] = [
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "127.0.0.1",
    "::1",
];

/// Why certificates cannot be created or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PkiError {
    /// A certificate cannot be created.
    #[error("make a certificate")]
    Make(#[from] rcgen::Error),
    /// A certificate cannot have this name.
    #[error("{0:?} is neither a DNS name nor an address")]
    Name(String),
    /// The server's certificate and its key do not match.
    #[error("use the server's certificate")]
    Pair(#[from] CertificateError),
    /// TLS refuses the certificates.
    #[error("use the certificates")]
    Use(#[from] rustls::Error),
    /// Client certificates cannot be verified against the CA.
    #[error("verify client certificates")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    /// Certificates cannot be authorities of clients.
    #[error("use the CA of client certificates")]
    Authorities(#[from] crate::filter::authenticate::AuthorityError),
    /// A stored file is invalid.
    #[error("{file} is damaged: {why}")]
    Damaged {
        /// The name of its file.
        file: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// The CA and the administrator's certificate have expired.
    #[error(
        "ca.crt and admin.crt have expired: remove them to generate new ones, and give clients the new kubeconfig"
    )]
    Expired,
}

/// A CA and the certificates that it signed.
pub struct Pki {
    files: PkiFiles,
    ca: CertificateDer<'static>,
    current: CurrentCertificate,
    admin_token: String,
}

impl std::fmt::Debug for Pki {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pki").finish_non_exhaustive()
    }
}

impl Pki {
    /// Generates everything, valid from the day before `now`. `names`: further names or addresses
    /// of the server.
    ///
    /// # Errors
    ///
    /// A name is not a DNS name, or the system provides no randomness.
    pub fn generate(now: Timestamp, names: &[String]) -> Result<Self, PkiError> {
        check_names(names)?;
        let ca_key = KeyPair::generate()?;
        let ca_key_pem = ca_key.serialize_pem();
        let ca = CertifiedIssuer::self_signed(ca_params(now)?, ca_key)?;

        let server_key = KeyPair::generate()?;
        let server = server_params(now, names)?.signed_by(&server_key, &ca)?;

        let mut admin = params(now, CA_DAYS, Vec::new(), "system:admin")?;
        admin.distinguished_name.push(DnType::OrganizationName, setpoint_registry::MASTERS);
        admin.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let admin_key = KeyPair::generate()?;
        let admin = admin.signed_by(&admin_key, &ca)?;

        Ok(Self {
            ca: ca.der().clone(),
            current: current(server.der().clone(), &server_key)?,
            admin_token: token_of(&admin_key),
            files: PkiFiles {
                ca_crt: ca.pem(),
                ca_key: ca_key_pem,
                server_crt: server.pem(),
                server_key: server_key.serialize_pem(),
                admin_crt: admin.pem(),
                admin_key: admin_key.serialize_pem(),
            },
        })
    }

    /// Everything in PEM, to store.
    pub fn files(&self) -> &PkiFiles {
        &self.files
    }

    /// The CA's certificate in PEM.
    pub fn ca_pem(&self) -> &str {
        &self.files.ca_crt
    }

    /// The administrator's certificate and private key in PEM.
    pub fn admin_pem(&self) -> (&str, &str) {
        (&self.files.admin_crt, &self.files.admin_key)
    }

    /// The administrator's bearer token.
    pub fn admin_token(&self) -> &str {
        &self.admin_token
    }

    /// The CA's certificate.
    pub fn ca_certificate(&self) -> &CertificateDer<'static> {
        &self.ca
    }

    /// The server's certificate, for listeners. One from another [`Pki`] may replace it while the
    /// server runs.
    pub fn current(&self) -> CurrentCertificate {
        self.current.clone()
    }
}

/// The server's certificate and key.
fn current(
    certificate: CertificateDer<'static>,
    key: &KeyPair,
) -> Result<CurrentCertificate, CertificateError> {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    Ok(CurrentCertificate::new(Certificate::from_der(vec![certificate], key)?))
}

/// The parameters of a certificate for these names, valid from the day before `now`.
fn params(
    now: Timestamp,
    days: u32,
    names: Vec<String>,
    common_name: &str,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    let from = Timestamp(now.0.saturating_sub(DAY * SKEW_DAYS));
    valid(&mut params, from, Timestamp(now.0 + DAY * days));
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    // Python's clients require it from 3.13 on: they verify as strictly as RFC 5280.
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

/// Refuses names that clients cannot request.
fn check_names(names: &[String]) -> Result<(), PkiError> {
    match names.iter().find(|name| ServerName::try_from(name.as_str()).is_err()) {
        Some(name) => Err(PkiError::Name(name.clone())),
        None => Ok(()),
    }
}

fn ca_params(now: Timestamp) -> Result<CertificateParams, rcgen::Error> {
    let mut ca = params(now, CA_DAYS, Vec::new(), "setpoint-ca")?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages.extend([KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign]);
    Ok(ca)
}

fn server_params(now: Timestamp, names: &[String]) -> Result<CertificateParams, rcgen::Error> {
    let names = SERVER_NAMES.iter().map(|name| (*name).to_owned()).chain(names.iter().cloned());
    let mut server = params(now, SERVER_DAYS, names.collect(), "setpoint-apiserver")?;
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(server)
}

/// The token is as secret and as random as the key. The key cannot be computed from it.
fn token_of(admin_key: &KeyPair) -> String {
    let mut digest = Sha256::new();
    digest.update(b"setpoint administrator token\0");
    digest.update(admin_key.serialized_der());
    URL_SAFE_NO_PAD.encode(digest.finalize())
}

/// Sets the days of a certificate's validity.
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
