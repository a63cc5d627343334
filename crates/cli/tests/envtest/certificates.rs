//! The certificates and keys that harnesses write before the start.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use std::path::Path;

/// A user's certificate and key in PEM.
#[derive(Clone)]
pub(crate) struct User {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// The authorities of one environment.
pub(crate) struct Authorities {
    serving: CertifiedIssuer<'static, KeyPair>,
    clients: CertifiedIssuer<'static, KeyPair>,
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = params("envtest-environment", &["envtest"]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn params(name: &str, organizations: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    for organization in organizations {
        params.distinguished_name.push(DnType::OrganizationName, *organization);
    }
    params
}

impl Authorities {
    pub(crate) fn new() -> Self {
        Self { serving: authority(), clients: authority() }
    }

    /// Writes the five files of envtest.
    pub(crate) fn write(&self, folder: &Path) {
        let write = |name: &str, pem: &str| std::fs::write(folder.join(name), pem).unwrap();
        let mut leaf = params("localhost", &["envtest"]);
        leaf.subject_alt_names =
            CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])
                .unwrap()
                .subject_alt_names;
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = KeyPair::generate().unwrap();
        write("apiserver.crt", &leaf.signed_by(&key, &self.serving).unwrap().pem());
        write("apiserver.key", &key.serialize_pem());
        write("client-cert-auth-ca.crt", &self.clients.pem());
        let signer = KeyPair::generate().unwrap();
        write("sa-signer.crt", &params("sa-signer", &[]).self_signed(&signer).unwrap().pem());
        write("sa-signer.key", &signer.serialize_pem());
    }

    /// The CA of the server, in PEM.
    pub(crate) fn ca(&self) -> String {
        self.serving.pem()
    }

    /// A user, also after the start.
    pub(crate) fn user(&self, name: &str, groups: &[&str]) -> User {
        let mut params = params(name, &[]);
        // One organization for each group.
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.clients).unwrap().pem();
        User { certificate, key: key.serialize_pem() }
    }
}

/// A self-signed certificate that is its own authority, without basic constraints: as jenvtest's.
pub(crate) fn self_signed(name: &str, organizations: &[&str], names: &[&str]) -> User {
    let mut params = params(name, organizations);
    let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    params.subject_alt_names = CertificateParams::new(names).unwrap().subject_alt_names;
    let key = KeyPair::generate().unwrap();
    User { certificate: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() }
}
