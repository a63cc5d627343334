//! A request for a certificate, and what each signer demands of it.

use setpoint_jwt::attribute_text;
use std::collections::{BTreeMap, BTreeSet};
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{
    Ia5String, ObjectIdentifier, OctetString, PrintableStringRef, SetOfVec, Utf8StringRef,
};
use x509_cert::der::{self, Any, Decode as _, Encode as _};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::{Name, RelativeDistinguishedName};
use x509_cert::spki::SubjectPublicKeyInfoOwned;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName as RequestedName, ParsedExtension};
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::X509Name;

/// Client certificates for the API server.
pub(super) const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
/// Client certificates of kubelets.
pub(super) const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Serving certificates of kubelets.
pub(super) const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
/// Whatever older versions of the API asked for.
pub(super) const LEGACY: &str = "kubernetes.io/legacy-unknown";

/// The last arcs of `2.5.4` of organizations and common names.
const ORGANIZATION: u8 = 10;
const COMMON_NAME: u8 = 3;
/// Attributes of which a subject has one value, the last one.
const SINGLE: [u8; 2] = [COMMON_NAME, 5];
/// The attributes of a subject that a certificate has, in its order, as in Go: country, province,
/// locality, street, postal code, organization, unit, common name, serial number.
const ATTRIBUTES: [u8; 9] = [6, 8, 7, 9, 17, ORGANIZATION, 11, COMMON_NAME, 5];

/// A request for a certificate.
#[derive(Debug, Clone)]
pub(super) struct Requested {
    /// The subject in the form of a certificate: [`ATTRIBUTES`], each with all its values.
    pub(super) subject: Name,
    organizations: Vec<String>,
    /// The user that a client certificate stands for.
    pub(super) common_name: String,
    pub(super) public_key: SubjectPublicKeyInfoOwned,
    /// DNS names, e-mail addresses, addresses and URIs, in this order; others are dropped.
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
        setpoint_jwt::verify_request(&signed)
            .map_err(|error| format!("unable to verify certificate request signature: {error}"))?;
        let malformed = |error: der::Error| error.to_string();
        let info = &signed.certification_request_info;
        let mut values = values(&info.subject);
        let of = |values: &BTreeMap<u8, Vec<String>>, kind| values.get(&kind).cloned();
        let organizations = of(&values, ORGANIZATION).unwrap_or_default();
        let common_name = of(&values, COMMON_NAME).and_then(|mut all| all.pop());
        Ok(Self {
            subject: subject(&mut values).map_err(malformed)?,
            organizations,
            common_name: common_name.unwrap_or_default(),
            public_key: SubjectPublicKeyInfoOwned::from_der(info.subject_pki.raw)
                .map_err(malformed)?,
            names: alternative_names(&signed).map_err(malformed)?,
        })
    }

    fn check_organization(&self) -> Result<(), String> {
        match self.organizations == ["system:nodes"] {
            true => Ok(()),
            false => Err("subject organization is not system:nodes".to_owned()),
        }
    }

    fn check_common_name(&self) -> Result<(), String> {
        match self.common_name.starts_with("system:node:") {
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

/// The values of a subject by the last arc of their type, `2.5.4.…`. Others are not read.
fn values(subject: &X509Name<'_>) -> BTreeMap<u8, Vec<String>> {
    let mut values: BTreeMap<u8, Vec<String>> = BTreeMap::new();
    for attribute in subject.iter_attributes() {
        if let &[0x55, 0x04, kind] = attribute.attr_type().as_bytes() {
            values.entry(kind).or_default().push(attribute_text(attribute));
        }
    }
    values
}

pub(super) fn subject(values: &mut BTreeMap<u8, Vec<String>>) -> Result<Name, der::Error> {
    let mut parts = Vec::new();
    for kind in ATTRIBUTES {
        let mut held = values.remove(&kind).unwrap_or_default();
        if SINGLE.contains(&kind) {
            held = held.pop().filter(|value| !value.is_empty()).into_iter().collect();
        }
        if held.is_empty() {
            continue;
        }
        // A set in the order of DER, which is cheap for `SetOfVec` to check.
        let mut set = BTreeMap::new();
        for value in held {
            let attribute = attribute(kind, &value)?;
            set.insert(attribute.to_der()?, attribute);
        }
        let set = SetOfVec::try_from(set.into_values().collect::<Vec<_>>())?;
        parts.push(RelativeDistinguishedName(set));
    }
    Ok(x509_cert::name::RdnSequence(parts))
}

fn attribute(kind: u8, value: &str) -> Result<AttributeTypeAndValue, der::Error> {
    let value = match PrintableStringRef::new(value) {
        Ok(printable) => Any::encode_from(&printable)?,
        Err(_) => Any::encode_from(&Utf8StringRef::new(value)?)?,
    };
    let oid = ObjectIdentifier::from_bytes(&[0x55, 0x04, kind])?;
    Ok(AttributeTypeAndValue { oid, value })
}

/// The alternative names that a certificate has, sorted by their kinds.
fn alternative_names(
    request: &X509CertificationRequest<'_>,
) -> Result<Vec<GeneralName>, der::Error> {
    let mut names = Vec::new();
    for attribute in request.certification_request_info.iter_attributes() {
        let ParsedCriAttribute::ExtensionRequest(requested) = attribute.parsed_attribute() else {
            continue;
        };
        for extension in &requested.extensions {
            let ParsedExtension::SubjectAlternativeName(held) = extension.parsed_extension() else {
                continue;
            };
            for name in &held.general_names {
                names.push(match name {
                    RequestedName::DNSName(name) => {
                        (0, GeneralName::DnsName(Ia5String::new(name)?))
                    }
                    RequestedName::RFC822Name(name) => {
                        (1, GeneralName::Rfc822Name(Ia5String::new(name)?))
                    }
                    RequestedName::IPAddress(bytes) => {
                        (2, GeneralName::IpAddress(OctetString::new(*bytes)?))
                    }
                    RequestedName::URI(name) => {
                        (3, GeneralName::UniformResourceIdentifier(Ia5String::new(name)?))
                    }
                    _ => continue,
                });
            }
        }
    }
    names.sort_by_key(|(kind, _)| *kind);
    Ok(names.into_iter().map(|(_, name)| name).collect())
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
