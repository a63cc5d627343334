//! The client certificate with which a server proves to others that it speaks for its users.

use super::*;
use rustls::pki_types::UnixTime;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;

/// The name in the certificate, as kubeadm's.
const NAME: &str = "front-proxy-client";
/// A certificate that is good for fewer days is replaced.
const RENEW_DAYS: u32 = 30;
const FILE: &str = "front-proxy-client.pem";

/// A client certificate with the CA that signed it, valid for ten years. The CA's key is gone: it
/// signs nothing else.
#[derive(Clone, PartialEq, Eq)]
pub struct FrontProxy {
    ca: String,
    certificate: String,
    key: String,
}

/// Omits the key.
impl std::fmt::Debug for FrontProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FrontProxy").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl FrontProxy {
    /// The common name of the certificate.
    pub const NAME: &'static str = NAME;

    /// Generates everything, valid from the day before `now`.
    ///
    /// # Errors
    ///
    /// The system provides no randomness.
    pub fn generate(now: Timestamp) -> Result<Self, PkiError> {
        let mut ca = params(now, CA_DAYS, Vec::new(), "setpoint-front-proxy-ca")?;
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages.extend([KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign]);
        let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;
        let mut client = params(now, CA_DAYS, Vec::new(), NAME)?;
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = client.signed_by(&key, &ca)?;
        Ok(Self { ca: ca.pem(), certificate: certificate.pem(), key: key.serialize_pem() })
    }

    /// Loads what [`Self::to_pem`] made. `None`: it is good for less than a month.
    ///
    /// # Errors
    ///
    /// It is damaged.
    pub fn load(pem: &str, now: Timestamp) -> Result<Option<Self>, PkiError> {
        let damaged = |why: String| PkiError::Damaged { file: FILE, why };
        let starts: Vec<usize> = pem.match_indices("-----BEGIN ").map(|(at, _)| at).collect();
        let &[key, certificate, ca] = &starts[..] else {
            return Err(damaged(match starts.is_empty() {
                true => "it has no key".to_owned(),
                false => format!("it has {} parts instead of three", starts.len()),
            }));
        };
        let part = |from: usize, to: usize| pem.get(from..to).unwrap_or_default().to_owned();
        let loaded = Self {
            key: part(key, certificate),
            certificate: part(certificate, ca),
            ca: part(ca, pem.len()),
        };
        let certificate_of = |pem: &str| {
            CertificateDer::from_pem_slice(pem.as_bytes())
                .map_err(|error| damaged(error.to_string()))
        };
        KeyPair::from_pem(&loaded.key).map_err(|error| damaged(error.to_string()))?;
        let mut roots = RootCertStore::empty();
        let ca = certificate_of(&loaded.ca)?;
        roots.add(ca).map_err(|error| damaged(error.to_string()))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        let later = UnixTime::since_unix_epoch(now.0 + DAY * RENEW_DAYS);
        match verifier.verify_client_cert(&certificate_of(&loaded.certificate)?, &[], later) {
            Ok(_) => Ok(Some(loaded)),
            Err(rustls::Error::InvalidCertificate(
                rustls::CertificateError::Expired | rustls::CertificateError::ExpiredContext { .. },
            )) => Ok(None),
            Err(error) => Err(damaged(error.to_string())),
        }
    }

    /// The key, the certificate and the CA in PEM, to store.
    pub fn to_pem(&self) -> String {
        format!("{}{}{}", self.key, self.certificate, self.ca)
    }

    /// The CA in PEM.
    pub fn ca(&self) -> &str {
        &self.ca
    }

    /// The certificate in PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Its private key in PEM.
    pub fn key(&self) -> &str {
        &self.key
    }
}
