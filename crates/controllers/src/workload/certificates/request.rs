//! A request for a certificate, and what each signer demands of it.

use std::collections::BTreeSet;
use x509_cert::attr::Attribute;
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::oid::AssociatedOid as _;
use x509_cert::der::{Decode as _, Encode as _};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;
use x509_cert::request::{CertReq, ExtensionReq};
use x509_cert::spki::SubjectPublicKeyInfoOwned;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer as _;

/// Client certificates for the API server.
pub(super) const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Client certificates of kubelets.
pub(super) const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Serving certificates of kubelets.
pub(super) const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// Whatever older versions of the API asked for.
pub(super) const LEGACY: &str = "kubernetes.io/legacy-unknown";

const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// A request for a certificate.
#[derive(Debug, Clone)]
pub(super) struct Requested {
    pub(super) subject: Name,
    pub(super) public_key: SubjectPublicKeyInfoOwned,
    /// DNS names, addresses, e-mail addresses and URIs; others are dropped.
    pub(super) names: Vec<GeneralName>,
}

impl Requested {
    /// Reads a request in PEM, which must be signed with its own key.
    pub(super) fn from_pem(pem: &[u8]) -> Result<Self, String> {
        let not_pem = || "PEM block type must be CERTIFICATE REQUEST".to_owned();
        let (_, block) = x509_parser::pem::parse_x509_pem(pem).map_err(|_| not_pem())?;
        if block.label != "CERTIFICATE REQUEST" {
            return Err(not_pem());
        }
        let (_, signed) = X509CertificationRequest::from_der(&block.contents)
            .map_err(|error| format!("malformed certificate request: {error}"))?;
        signed
            .verify_signature()
            .map_err(|error| format!("unable to verify certificate request signature: {error}"))?;
        let malformed = |error: x509_cert::der::Error| error.to_string();
        let info = CertReq::from_der(&block.contents).map_err(malformed)?.info;
        let mut names = Vec::new();
        for attribute in info.attributes.iter() {
            names.extend(alternative_names(attribute).map_err(malformed)?);
        }
        names.retain(|name| {
            matches!(
                name,
                GeneralName::DnsName(_)
                    | GeneralName::IpAddress(_)
                    | GeneralName::Rfc822Name(_)
                    | GeneralName::UniformResourceIdentifier(_)
            )
        });
        Ok(Self { subject: info.subject, public_key: info.public_key, names })
    }

    /// The values of one type in the subject.
    fn subject(&self, kind: ObjectIdentifier) -> Vec<String> {
        let parts = self.subject.0.iter().flat_map(|part| part.0.iter());
        let values = parts.filter(|part| part.oid == kind);
        values.map(|part| String::from_utf8_lossy(part.value.value()).into_owned()).collect()
    }

    /// The user that a client certificate stands for.
    pub(super) fn common_name(&self) -> String {
        self.subject(COMMON_NAME).pop().unwrap_or_default()
    }

    fn check_organization(&self) -> Result<(), String> {
        match self.subject(ORGANIZATION) == ["system:nodes"] {
            true => Ok(()),
            false => Err("subject organization is not system:nodes".to_owned()),
        }
    }

    fn check_common_name(&self) -> Result<(), String> {
        match self.common_name().starts_with("system:node:") {
            true => Ok(()),
            false => Err("subject common name does not begin with system:node:".to_owned()),
        }
    }

    fn refuse(&self, what: &str, is: impl Fn(&GeneralName) -> bool) -> Result<(), String> {
        match self.names.iter().any(is) {
            true => Err(format!("{what} subjectAltNames are not allowed")),
            false => Ok(()),
        }
    }

    /// Whether a kubelet may be a client with it.
    pub(super) fn check_kubelet_client(&self, usages: &[String]) -> Result<(), String> {
        self.check_organization()?;
        self.refuse("DNS", |name| matches!(name, GeneralName::DnsName(_)))?;
        self.refuse("Email", |name| matches!(name, GeneralName::Rfc822Name(_)))?;
        self.refuse("IP", |name| matches!(name, GeneralName::IpAddress(_)))?;
        self.refuse("URI", |name| matches!(name, GeneralName::UniformResourceIdentifier(_)))?;
        self.check_common_name()?;
        check_usages(usages, "client auth")
    }

    /// Whether a kubelet may serve with it.
    fn check_kubelet_serving(&self, usages: &[String]) -> Result<(), String> {
        self.check_organization()?;
        let is_server = |name: &GeneralName| {
            matches!(name, GeneralName::DnsName(_) | GeneralName::IpAddress(_))
        };
        if !self.names.iter().any(is_server) {
            return Err("DNS or IP subjectAltName is required".to_owned());
        }
        self.refuse("Email", |name| matches!(name, GeneralName::Rfc822Name(_)))?;
        self.refuse("URI", |name| matches!(name, GeneralName::UniformResourceIdentifier(_)))?;
        check_usages(usages, "server auth")?;
        self.check_common_name()
    }

    /// Whether a signer signs it.
    pub(super) fn check(&self, signer: &str, usages: &[String]) -> Result<(), String> {
        match signer {
            CLIENT => check_client_usages(usages),
            KUBELET_CLIENT => self.check_kubelet_client(usages),
            KUBELET_SERVING => self.check_kubelet_serving(usages),
            _ => Ok(()),
        }
    }
}

/// The alternative names in an attribute of a request.
fn alternative_names(attribute: &Attribute) -> Result<Vec<GeneralName>, x509_cert::der::Error> {
    let mut names = Vec::new();
    if attribute.oid != ExtensionReq::OID {
        return Ok(names);
    }
    for value in attribute.values.iter() {
        let extensions = ExtensionReq::from_der(&value.to_der()?)?.0;
        for extension in extensions.iter().filter(|held| held.extn_id == SubjectAltName::OID) {
            names.extend(SubjectAltName::from_der(extension.extn_value.as_bytes())?.0);
        }
    }
    Ok(names)
}

/// Usages of a kubelet's certificate: keys that are not RSA cannot encipher others.
fn check_usages(usages: &[String], purpose: &str) -> Result<(), String> {
    let mut held: BTreeSet<&str> = usages.iter().map(String::as_str).collect();
    let mut all = ["digital signature", "key encipherment", purpose];
    all.sort_unstable();
    held.insert("key encipherment");
    match held == BTreeSet::from(all) {
        true => Ok(()),
        false => Err(format!("usages did not match [{}]", all.join(" "))),
    }
}

fn check_client_usages(usages: &[String]) -> Result<(), String> {
    for usage in usages {
        if !["digital signature", "key encipherment", "client auth"].contains(&usage.as_str()) {
            return Err(format!("invalid usage for client certificate: {usage}"));
        }
    }
    match usages.iter().any(|usage| usage == "client auth") {
        true => Ok(()),
        false => Err("missing required usage for client certificate: client auth".to_owned()),
    }
}
