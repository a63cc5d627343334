//! A certificate authority: its certificate and key, and what it signs.

use super::request::Requested;
use rcgen::{KeyPair, PublicKeyData as _, SignatureAlgorithm, SigningKey as _};
use setpoint_object::time::Timestamp;
use std::fmt;
use std::time::Duration;
use x509_cert::certificate::{Certificate, TbsCertificate, Version};
use x509_cert::der::asn1::{
    BitString, GeneralizedTime, Null, ObjectIdentifier, OctetString, UtcTime,
};
use x509_cert::der::oid::AssociatedOid;
use x509_cert::der::{Any, Decode as _, DecodePem as _, Encode, EncodePem as _, pem::LineEnding};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, KeyUsages,
    SubjectAltName, SubjectKeyIdentifier,
};
use x509_cert::name::Name;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::AlgorithmIdentifierOwned;
use x509_cert::time::{Time, Validity};

/// How much earlier a certificate is valid, for clocks that are behind: 5 min, as in
/// kube-controller-manager.
const BACKDATE: Duration = Duration::from_secs(5 * 60);
/// Certificates for less time than this are not shortened by [`BACKDATE`]: 8 h, as there.
const SHORT: Duration = Duration::from_secs(8 * 60 * 60);

/// Usages of a key, by the words of the API.
const KEY_USAGES: [(&str, KeyUsages); 10] = [
    ("signing", KeyUsages::DigitalSignature),
    ("digital signature", KeyUsages::DigitalSignature),
    ("content commitment", KeyUsages::NonRepudiation),
    ("key encipherment", KeyUsages::KeyEncipherment),
    ("key agreement", KeyUsages::KeyAgreement),
    ("data encipherment", KeyUsages::DataEncipherment),
    ("cert sign", KeyUsages::KeyCertSign),
    ("crl sign", KeyUsages::CRLSign),
    ("encipher only", KeyUsages::EncipherOnly),
    ("decipher only", KeyUsages::DecipherOnly),
];

/// Extended usages, in the order in which a certificate lists them.
const EXTENDED_USAGES: [(&str, &str); 13] = [
    ("any", "2.5.29.37.0"),
    ("server auth", "1.3.6.1.5.5.7.3.1"),
    ("client auth", "1.3.6.1.5.5.7.3.2"),
    ("code signing", "1.3.6.1.5.5.7.3.3"),
    ("email protection", "1.3.6.1.5.5.7.3.4"),
    ("s/mime", "1.3.6.1.5.5.7.3.4"),
    ("ipsec end system", "1.3.6.1.5.5.7.3.5"),
    ("ipsec tunnel", "1.3.6.1.5.5.7.3.6"),
    ("ipsec user", "1.3.6.1.5.5.7.3.7"),
    ("timestamping", "1.3.6.1.5.5.7.3.8"),
    ("ocsp signing", "1.3.6.1.5.5.7.3.9"),
    ("microsoft sgc", "1.3.6.1.4.1.311.10.3.3"),
    ("netscape sgc", "2.16.840.1.113730.4.1"),
];

/// Why a certificate and a key are no authority.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorityError {
    /// The certificate cannot be read.
    #[error("read the certificate of the authority")]
    Certificate(#[source] x509_cert::der::Error),
    /// The key cannot be read.
    #[error("read the key of the authority")]
    Key(#[source] rcgen::Error),
    /// The key signs with an algorithm that is not supported.
    #[error("the key of the authority is not RSA, ECDSA with P-256 or P-384, or Ed25519")]
    Algorithm,
    /// The certificate has another public key.
    #[error("the key of the authority does not belong to its certificate")]
    Pair,
}

/// Why a certificate is not signed. The texts are kube-controller-manager's.
#[derive(Debug, thiserror::Error)]
pub(super) enum SignError {
    #[error("unrecognized usage values: {0:?}")]
    Usages(Vec<String>),
    #[error("the signer has expired: NotAfter={0}")]
    Expired(String),
    #[error("encode the certificate")]
    Encode(#[from] x509_cert::der::Error),
    #[error("failed to sign certificate")]
    Sign(#[from] rcgen::Error),
}

/// A certificate authority that signs requests.
pub struct CertificateAuthority {
    issuer: Name,
    key_id: Option<OctetString>,
    not_after: Timestamp,
    algorithm: AlgorithmIdentifierOwned,
    key: KeyPair,
}

/// Without the key.
impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let issuer = self.issuer.to_string();
        f.debug_struct("CertificateAuthority").field("issuer", &issuer).finish_non_exhaustive()
    }
}

impl CertificateAuthority {
    /// The authority of a certificate and its key, both in PEM.
    ///
    /// # Errors
    ///
    /// One of them cannot be read, or they do not belong together.
    pub fn from_pem(certificate: &str, key: &str) -> Result<Self, AuthorityError> {
        let certificate =
            Certificate::from_pem(certificate).map_err(AuthorityError::Certificate)?;
        let key = KeyPair::from_pem(key).map_err(AuthorityError::Key)?;
        let of_certificate = &certificate.tbs_certificate.subject_public_key_info;
        let of_certificate = of_certificate.to_der().map_err(AuthorityError::Certificate)?;
        if of_certificate != key.subject_public_key_info() {
            return Err(AuthorityError::Pair);
        }
        let algorithm = algorithm(key.algorithm()).ok_or(AuthorityError::Algorithm)?;
        let tbs = certificate.tbs_certificate;
        let extensions = tbs.extensions.unwrap_or_default();
        let key_id = extensions.iter().find(|held| held.extn_id == SubjectKeyIdentifier::OID);
        let key_id = key_id
            .map(|held| SubjectKeyIdentifier::from_der(held.extn_value.as_bytes()))
            .transpose()
            .map_err(AuthorityError::Certificate)?;
        Ok(Self {
            issuer: tbs.subject,
            key_id: key_id.map(|id| id.0),
            not_after: Timestamp(tbs.validity.not_after.to_unix_duration()),
            algorithm,
            key,
        })
    }

    /// Signs a certificate for a request, in PEM. It has the request's subject, key and alternative
    /// names, these usages, and no more. It does not outlive the authority.
    pub(super) fn sign(
        &self,
        request: &Requested,
        usages: &[String],
        lifetime: Duration,
        now: Timestamp,
        serial: [u8; 16],
    ) -> Result<String, SignError> {
        if now >= self.not_after {
            return Err(SignError::Expired(self.not_after.rfc3339()));
        }
        let end = if lifetime < SHORT { lifetime } else { lifetime.saturating_sub(BACKDATE) };
        let end = (now + end).min(self.not_after);
        let begin = Timestamp(now.0.saturating_sub(BACKDATE));
        let tbs_certificate = TbsCertificate {
            version: Version::V3,
            serial_number: serial_number(serial)?,
            signature: self.algorithm.clone(),
            issuer: self.issuer.clone(),
            validity: Validity { not_before: time(begin)?, not_after: time(end)? },
            subject: request.subject.clone(),
            subject_public_key_info: request.public_key.clone(),
            issuer_unique_id: None,
            subject_unique_id: None,
            extensions: Some(self.extensions(request, usages)?),
        };
        let signature = self.key.sign(&tbs_certificate.to_der()?)?;
        let certificate = Certificate {
            tbs_certificate,
            signature_algorithm: self.algorithm.clone(),
            signature: BitString::from_bytes(&signature)?,
        };
        Ok(certificate.to_pem(LineEnding::LF)?)
    }

    fn extensions(
        &self,
        request: &Requested,
        usages: &[String],
    ) -> Result<Vec<Extension>, SignError> {
        let is_unknown = |usage: &&String| {
            !KEY_USAGES.iter().any(|(word, _)| word == usage)
                && !EXTENDED_USAGES.iter().any(|(word, _)| word == usage)
        };
        let unknown: Vec<String> = usages.iter().filter(is_unknown).cloned().collect();
        if !unknown.is_empty() {
            return Err(SignError::Usages(unknown));
        }
        let is_used = |word: &str| usages.iter().any(|usage| usage == word);
        let mut extensions = Vec::new();
        let mut key_usage = KeyUsage(Default::default());
        for (_, usage) in KEY_USAGES.into_iter().filter(|(word, _)| is_used(word)) {
            key_usage.0 |= usage;
        }
        if !key_usage.0.is_empty() {
            extensions.push(extension(&key_usage, true)?);
        }
        let mut extended = Vec::new();
        for (_, id) in EXTENDED_USAGES.into_iter().filter(|(word, _)| is_used(word)) {
            let id = ObjectIdentifier::new(id).map_err(x509_cert::der::Error::from)?;
            if !extended.contains(&id) {
                extended.push(id);
            }
        }
        if !extended.is_empty() {
            extensions.push(extension(&ExtendedKeyUsage(extended), false)?);
        }
        let constraints = BasicConstraints { ca: false, path_len_constraint: None };
        extensions.push(extension(&constraints, true)?);
        if let Some(id) = &self.key_id {
            let id =
                AuthorityKeyIdentifier { key_identifier: Some(id.clone()), ..Default::default() };
            extensions.push(extension(&id, false)?);
        }
        if !request.names.is_empty() {
            // Without a subject, the names are all that there is.
            let is_critical = request.subject.is_empty();
            extensions.push(extension(&SubjectAltName(request.names.clone()), is_critical)?);
        }
        Ok(extensions)
    }
}

fn extension<T: AssociatedOid + Encode>(value: &T, critical: bool) -> Result<Extension, SignError> {
    let extn_value = OctetString::new(value.to_der()?)?;
    Ok(Extension { extn_id: T::OID, critical, extn_value })
}

/// The identifier of the algorithm with which a key signs.
fn algorithm(of_key: &SignatureAlgorithm) -> Option<AlgorithmIdentifierOwned> {
    let (id, has_null) = if of_key == &rcgen::PKCS_ECDSA_P256_SHA256 {
        ("1.2.840.10045.4.3.2", false)
    } else if of_key == &rcgen::PKCS_ECDSA_P384_SHA384 {
        ("1.2.840.10045.4.3.3", false)
    } else if of_key == &rcgen::PKCS_RSA_SHA256 {
        ("1.2.840.113549.1.1.11", true)
    } else if of_key == &rcgen::PKCS_ED25519 {
        ("1.3.101.112", false)
    } else {
        return None;
    };
    let parameters = has_null.then(|| Any::encode_from(&Null)).transpose().ok()?;
    Some(AlgorithmIdentifierOwned { oid: ObjectIdentifier::new(id).ok()?, parameters })
}

/// A positive number of sixteen bytes.
fn serial_number(mut bytes: [u8; 16]) -> Result<SerialNumber, SignError> {
    bytes[0] = bytes[0] & 0x3f | 0x40;
    Ok(SerialNumber::new(&bytes)?)
}

/// Years from 2050 on have another encoding.
fn time(at: Timestamp) -> Result<Time, SignError> {
    let seconds = Duration::from_secs(at.0.as_secs());
    Ok(match UtcTime::from_unix_duration(seconds) {
        Ok(time) => Time::UtcTime(time),
        Err(_) => Time::GeneralTime(GeneralizedTime::from_unix_duration(seconds)?),
    })
}
