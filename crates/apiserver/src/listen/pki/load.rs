//! Loads stored certificates and checks them.

use super::*;
use rcgen::PublicKeyData as _;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::pki_types::UnixTime;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};

/// The server's certificate is renewed if fewer days are left, so that a certificate is valid for
/// at least a month after a start.
const RENEW_DAYS: u32 = 30;

/// The contents of a [`Pki`], each in PEM, with the names of their files.
#[derive(Clone, PartialEq, Eq)]
pub struct PkiFiles {
    /// `ca.crt`: the CA's certificate. The only file that is not secret; clients need it.
    pub ca_crt: String,
    /// `ca.key`: the CA's private key.
    pub ca_key: String,
    /// `apiserver.crt`: the server's certificate.
    pub server_crt: String,
    /// `apiserver.key`: the server's private key.
    pub server_key: String,
    /// `admin.crt`: the administrator's certificate.
    pub admin_crt: String,
    /// `admin.key`: the administrator's private key, which determines their token.
    pub admin_key: String,
}

/// Without the keys.
impl std::fmt::Debug for PkiFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PkiFiles").finish_non_exhaustive()
    }
}

impl PkiFiles {
    /// File names and contents; the CA's certificate first.
    pub fn named(&self) -> [(&'static str, &str); 6] {
        [
            (Self::CA_CRT, &self.ca_crt),
            (Self::CA_KEY, &self.ca_key),
            (Self::SERVER_CRT, &self.server_crt),
            ("apiserver.key", &self.server_key),
            ("admin.crt", &self.admin_crt),
            ("admin.key", &self.admin_key),
        ]
    }

    /// The names of the authority's files.
    pub const CA_CRT: &'static str = "ca.crt";
    /// See [`PkiFiles::CA_CRT`].
    pub const CA_KEY: &'static str = "ca.key";
    /// The name of the only file that [`Pki::load`] may renew.
    pub const SERVER_CRT: &'static str = "apiserver.crt";

    /// Reads each file by its name.
    ///
    /// # Errors
    ///
    /// The first error of `read`.
    pub fn read<E>(mut read: impl FnMut(&'static str) -> Result<String, E>) -> Result<Self, E> {
        Ok(Self {
            ca_crt: read(Self::CA_CRT)?,
            ca_key: read(Self::CA_KEY)?,
            server_crt: read(Self::SERVER_CRT)?,
            server_key: read("apiserver.key")?,
            admin_crt: read("admin.crt")?,
            admin_key: read("admin.key")?,
        })
    }
}

/// The result of loading stored certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loaded {
    /// They are unchanged.
    Same,
    /// The server's certificate was renewed, for this reason: store it instead of the old one.
    Renewed(String),
}

impl Pki {
    /// Loads stored certificates, for a server with these further names. Renews the server's
    /// certificate if necessary.
    ///
    /// # Errors
    ///
    /// A file is invalid or does not match the others, or the CA has expired.
    pub fn load(
        files: PkiFiles,
        now: Timestamp,
        names: &[String],
    ) -> Result<(Self, Loaded), PkiError> {
        check_names(names)?;
        let ca = certificate("ca.crt", &files.ca_crt)?;
        let admin = certificate("admin.crt", &files.admin_crt)?;
        let server = certificate(PkiFiles::SERVER_CRT, &files.server_crt)?;
        let ca_key = key("ca.key", &files.ca_key, Some(&ca))?;
        let admin_key = key("admin.key", &files.admin_key, Some(&admin))?;
        let server_key = key("apiserver.key", &files.server_key, None)?;
        let mut roots = RootCertStore::empty();
        roots.add(ca.clone()).map_err(|error| damaged("ca.crt", error))?;

        let verifier = WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots.clone()),
            Arc::new(rustls::crypto::ring::default_provider()),
        )
        .build()?;
        let at = UnixTime::since_unix_epoch(now.0);
        match verifier.verify_client_cert(&admin, &[], at) {
            Ok(_) => {}
            // The CA's days are the same.
            Err(rustls::Error::InvalidCertificate(
                rustls::CertificateError::Expired | rustls::CertificateError::ExpiredContext { .. },
            )) => return Err(PkiError::Expired),
            Err(error) => return Err(damaged("admin.crt", error)),
        }

        let of_files = |server: CertificateDer<'static>, files: PkiFiles| -> Result<_, PkiError> {
            let current = current(server, &server_key)?;
            Ok(Self { ca: ca.clone(), current, admin_token: token_of(&admin_key), files })
        };
        let Some(why) = stale(&server, &server_key, &roots, now, names) else {
            return Ok((of_files(server, files)?, Loaded::Same));
        };
        let ca_params = ca_params(now)?;
        let issuer = Issuer::from_params(&ca_params, &ca_key);
        let mut server = server_params(now, names)?;
        // The key is the same, so a number derived from it would be the same too.
        server.serial_number = Some(SerialNumber::from(now.0.as_secs()));
        let server = server.signed_by(&server_key, &issuer)?;
        let files = PkiFiles { server_crt: server.pem(), ..files };
        Ok((of_files(server.der().clone(), files)?, Loaded::Renewed(why)))
    }
}

/// Why a server's certificate must be renewed.
fn stale(
    server: &CertificateDer<'_>,
    key: &KeyPair,
    roots: &RootCertStore,
    now: Timestamp,
    names: &[String],
) -> Option<String> {
    if !holds_key(server, key) {
        return Some("it has another key".to_owned());
    }
    let parsed = match ParsedCertificate::try_from(server) {
        Ok(parsed) => parsed,
        Err(error) => return Some(error.to_string()),
    };
    let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
    let later = UnixTime::since_unix_epoch(now.0 + DAY * RENEW_DAYS);
    let signed =
        verify_server_cert_signed_by_trust_anchor(&parsed, roots, &[], later, algorithms.all);
    match signed {
        Ok(()) => {}
        Err(rustls::Error::InvalidCertificate(
            rustls::CertificateError::Expired | rustls::CertificateError::ExpiredContext { .. },
        )) => return Some(format!("it is good for less than {RENEW_DAYS} days")),
        Err(error) => return Some(error.to_string()),
    }
    let names = SERVER_NAMES.into_iter().chain(names.iter().map(String::as_str));
    names
        .filter(|name| match ServerName::try_from(*name) {
            Ok(server_name) => verify_server_name(&parsed, &server_name).is_err(),
            // All of them are names: see `check_names`.
            Err(_) => true,
        })
        .map(|name| format!("it is not for {name}"))
        .next()
}

fn damaged(file: &'static str, why: impl std::fmt::Display) -> PkiError {
    PkiError::Damaged { file, why: why.to_string() }
}

fn certificate(file: &'static str, pem: &str) -> Result<CertificateDer<'static>, PkiError> {
    let certificate =
        CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| damaged(file, error))?;
    ParsedCertificate::try_from(&certificate).map_err(|error| damaged(file, error))?;
    Ok(certificate)
}

/// Parses a private key; checks that it matches the certificate, if given.
fn key(
    file: &'static str,
    pem: &str,
    certificate: Option<&CertificateDer<'_>>,
) -> Result<KeyPair, PkiError> {
    let key = KeyPair::from_pem(pem).map_err(|error| damaged(file, error))?;
    match certificate {
        Some(certificate) if !holds_key(certificate, &key) => {
            Err(damaged(file, "it is not the key of the certificate beside it"))
        }
        _ => Ok(key),
    }
}

/// Whether a certificate is for this key: it contains the encoded public key.
fn holds_key(certificate: &CertificateDer<'_>, key: &KeyPair) -> bool {
    let public = key.subject_public_key_info();
    certificate.windows(public.len()).any(|window| window == public)
}
