//! Requests for certificates.
use crate::plane::{create, with_registry};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use setpoint_jwt::{attribute_text, verify_request};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::prelude::FromDer as _;

/// Requests of the corpus whose signatures are valid.
const VALID: [&[u8]; 16] = [
    include_bytes!("../corpus/certificate_request/p224-sha256"),
    include_bytes!("../corpus/certificate_request/p256-sha1"),
    include_bytes!("../corpus/certificate_request/p256-sha512"),
    include_bytes!("../corpus/certificate_request/p384-sha1"),
    include_bytes!("../corpus/certificate_request/p384-sha512"),
    include_bytes!("../corpus/certificate_request/p521-sha1"),
    include_bytes!("../corpus/certificate_request/p521-sha256"),
    include_bytes!("../corpus/certificate_request/p521-sha384"),
    include_bytes!("../corpus/certificate_request/p521-sha512"),
    include_bytes!("../corpus/certificate_request/pss-sha384"),
    include_bytes!("../corpus/certificate_request/pss1024-sha256"),
    include_bytes!("../corpus/certificate_request/pss1024-sha384"),
    include_bytes!("../corpus/certificate_request/rsa1024-sha1"),
    include_bytes!("../corpus/certificate_request/rsa1024-sha256"),
    include_bytes!("../corpus/certificate_request/rsa1024-sha384"),
    include_bytes!("../corpus/certificate_request/rsa1024-sha512"),
];

/// No signature is valid but those of the corpus, of what they have signed. In PEM, a request is an
/// object or refused.
pub fn check(input: &[u8]) {
    if let Ok((_, request)) = X509CertificationRequest::from_der(input) {
        for attribute in request.certification_request_info.subject.iter_attributes() {
            attribute_text(attribute);
        }
        let signed = request.certification_request_info.raw;
        if verify_request(&request).is_ok() {
            let is_it = |valid: &&[u8]| valid.windows(signed.len()).any(|part| part == signed);
            assert!(VALID.iter().any(is_it), "a forged request");
        }
    }
    if input.starts_with(b"-----BEGIN") {
        with_registry(
            |builder| builder,
            async |registry| {
                let object = json!({
                    "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
                    "metadata": {"name": "a"},
                    "spec": {
                        "request": STANDARD.encode(input), "usages": ["client auth"],
                        "signerName": "kubernetes.io/kube-apiserver-client",
                    },
                });
                let row = ("certificates.k8s.io", "certificatesigningrequests");
                match create(registry, row, "", object.to_string()).await {
                    Ok(created) => {
                        assert_eq!(created["spec"]["request"], object["spec"]["request"])
                    }
                    Err(error) => assert!((400..500).contains(&error.code()), "{error}"),
                }
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_valid_requests_are_valid() {
        for valid in VALID {
            let (_, request) = X509CertificationRequest::from_der(valid).unwrap();
            assert!(verify_request(&request).is_ok());
        }
    }
}
