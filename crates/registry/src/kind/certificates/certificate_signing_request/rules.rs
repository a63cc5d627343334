//! The rules of certificate requests: what is asked for, and what was decided.
use crate::kind::at::{At, check};
use crate::kind::{Report, format, list, text};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use setpoint_jwt::{RequestSignatureError, attribute_text};
use setpoint_object::field;
use std::collections::HashSet;
use x509_parser::certificate::X509Certificate;
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Name;

/// What a certificate can be used for, sorted.
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];
/// The shortest lifetime of a certificate, in seconds.
const EXPIRATION_MIN: i64 = 600;
const APPROVED: &str = "Approved";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";

/// Validates a new or changed request. The decision and the certificate have endpoints of their
/// own.
pub(super) fn validate(request: &Value, old: Option<&Value>, errors: &mut Report) {
    check(request, old, errors, |at| {
        spec(&at.get("spec"));
        status(&at.get("status"));
    });
    let Some(old) = old else { return };
    decision_is_final(request, old, errors);
    undecided(request, old, errors);
    check(request, None, errors, |at| {
        if certificate(request) != certificate(old) {
            at.get("status.certificate").forbidden("updates may not set certificate content");
        }
    });
}

/// Only the endpoint `approval` decides.
fn undecided(request: &Value, old: &Value, errors: &mut Report) {
    check(request, None, errors, |at| {
        let conditions = at.get("status.conditions");
        for kind in [APPROVED, DENIED] {
            let (before, after) = (of_kind(old, kind), of_kind(request, kind));
            let kind = field::quote(kind);
            if after.len() > before.len() {
                conditions.forbidden(format!("updates may not add a condition of type {kind}"));
            } else if after.len() == before.len() && after != before {
                conditions
                    .forbidden(format!("updates may not modify a condition of type {kind}\n"));
            }
        }
    });
}

/// Validates a decision.
pub(super) fn validate_approval(request: &Value, old: Option<&Value>, errors: &mut Report) {
    check(request, old, errors, |at| status(&at.get("status")));
    if let Some(old) = old {
        decision_is_final(request, old, errors);
    }
}

/// Validates what a signer reports.
pub(super) fn validate_status(request: &Value, old: Option<&Value>, errors: &mut Report) {
    check(request, old, errors, |at| status(&at.get("status")));
    let Some(old) = old else { return };
    decision_is_final(request, old, errors);
    undecided(request, old, errors);
    if !certificate(old).is_empty() && certificate(request) != certificate(old) {
        check(request, None, errors, |at| {
            at.get("status.certificate")
                .forbidden("updates may not modify existing certificate content");
        });
    }
}

fn certificate(request: &Value) -> &str {
    text(&request["status"], "certificate")
}
fn of_kind<'a>(request: &'a Value, kind: &str) -> Vec<&'a Value> {
    let conditions = list(&request["status"], "conditions").iter();
    conditions.filter(|condition| text(condition, "type") == kind).collect()
}
/// A decision is not taken back.
fn decision_is_final(request: &Value, old: &Value, errors: &mut Report) {
    check(request, None, errors, |at| {
        for kind in [APPROVED, DENIED, FAILED] {
            if of_kind(request, kind).len() < of_kind(old, kind).len() {
                let kind = field::quote(kind);
                at.get("status.conditions")
                    .forbidden(format!("updates may not remove a condition of type {kind}"));
            }
        }
    });
}

fn spec(at: &At<'_, '_>) {
    let request = at.get("request");
    if let Err(message) = check_request(request.text()) {
        request.invalid_as(request.value, message);
    }
    let usages = at.get("usages");
    usages.need();
    usages.items().for_each(|usage| usage.one_of_if_set(&USAGES));
    let mut seen = HashSet::new();
    usages.items().for_each(|usage| usage.unique(&mut seen));
    let signer = at.get("signerName");
    if signer.text() == "kubernetes.io/legacy-unknown" {
        signer.invalid("the legacy signerName is not allowed via this API version");
    } else {
        format::signer(&signer);
    }
    let seconds = at.get("expirationSeconds");
    if seconds.int().is_some_and(|seconds| seconds < EXPIRATION_MIN) {
        seconds.invalid("may not specify a duration less than 600 seconds (10 minutes)");
    }
}

fn status(at: &At<'_, '_>) {
    let conditions = at.get("conditions");
    let mut seen = HashSet::new();
    for condition in conditions.items() {
        let (kind, status) = (condition.get("type"), condition.get("status"));
        kind.need();
        if [APPROVED, DENIED, FAILED].contains(&kind.text()) {
            status.one_of(&["True"]);
        } else {
            status.one_of(&["False", "True", "Unknown"]);
        }
        let other = match kind.text() {
            APPROVED => Some(DENIED),
            DENIED => Some(APPROVED),
            _ => None,
        };
        if other.is_some_and(|other| seen.contains(other)) {
            conditions
                .invalid_as(kind.value, "Approved and Denied conditions are mutually exclusive");
        }
        kind.unique(&mut seen);
    }
    let certificate = at.get("certificate");
    if !certificate.text().is_empty()
        && let Err(message) = check_certificate(certificate.text())
    {
        certificate.invalid_as(&"<certificate data>".into(), message);
    }
}

/// The organizations of the subject that a certificate is requested for; none if the request cannot
/// be read.
pub(crate) fn organizations(request: &Value) -> Vec<String> {
    let organizations =
        of_subject(request, |subject| subject.iter_organization().map(attribute_text).collect());
    organizations.unwrap_or_default()
}
/// The common name of the subject that a certificate is requested for; empty if it has none. Of
/// several, the last one counts, as in Go.
///
/// # Errors
///
/// The request cannot be read.
pub(crate) fn common_name(request: &Value) -> Result<String, String> {
    of_subject(request, |subject| {
        subject.iter_common_name().last().map(attribute_text).unwrap_or_default()
    })
}
fn of_subject<T>(request: &Value, read: impl FnOnce(&X509Name<'_>) -> T) -> Result<T, String> {
    let bytes = STANDARD.decode(text(&request["spec"], "request")).map_err(|_| NOT_PEM)?;
    let (_, block) = x509_parser::pem::parse_x509_pem(&bytes).map_err(|_| NOT_PEM)?;
    let (_, request) =
        X509CertificationRequest::from_der(&block.contents).map_err(|_| MALFORMED)?;
    Ok(read(&request.certification_request_info.subject))
}

/// Why a request cannot be read.
const NOT_PEM: &str = "PEM block type must be CERTIFICATE REQUEST";
const MALFORMED: &str = "asn1: structure error: malformed certificate request";

/// A request in PEM, signed with its own key.
fn check_request(encoded: &str) -> Result<(), String> {
    let bytes = STANDARD.decode(encoded).map_err(|_| NOT_PEM)?;
    let (_, block) = x509_parser::pem::parse_x509_pem(&bytes).map_err(|_| NOT_PEM)?;
    if block.label != "CERTIFICATE REQUEST" {
        return Err(NOT_PEM.to_owned());
    }
    let (rest, request) =
        X509CertificationRequest::from_der(&block.contents).map_err(|_| MALFORMED)?;
    if !rest.is_empty() {
        return Err("asn1: syntax error: trailing data".to_owned());
    }
    match setpoint_jwt::verify_request(&request) {
        // A signature of an algorithm that is not known here may be valid.
        Ok(()) | Err(RequestSignatureError::Unsupported) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether a block of a text in PEM has headers.
fn has_headers(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let mut is_inside = false;
    text.lines().any(|line| {
        is_inside = line.starts_with("-----BEGIN ") || is_inside && !line.starts_with("-----END ");
        is_inside && line.contains(':')
    })
}

/// Certificates in PEM.
fn check_certificate(encoded: &str) -> Result<(), String> {
    const NONE: &str = "must contain at least one CERTIFICATE PEM block";
    let bytes = STANDARD.decode(encoded).map_err(|_| NONE)?;
    let mut n_blocks = 0;
    for block in Pem::iter_from_buffer(&bytes) {
        let Ok(block) = block else {
            // The parser takes headers for data.
            if has_headers(&bytes) {
                return Err("no PEM block headers are permitted".to_owned());
            }
            break;
        };
        if block.label != "CERTIFICATE" {
            let label = field::quote(&block.label);
            return Err(format!("only CERTIFICATE PEM blocks are allowed, found {label}"));
        }
        if block.contents.is_empty() {
            return Err("found CERTIFICATE PEM block containing 0 certificates".to_owned());
        }
        // A block may have several.
        let mut rest = &*block.contents;
        while !rest.is_empty() {
            let (after, _) =
                X509Certificate::from_der(rest).map_err(|_| "x509: malformed certificate")?;
            rest = after;
        }
        n_blocks += 1;
    }
    if n_blocks == 0 { Err(NONE.to_owned()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Requests of `system:node:n1` of `system:masters`, with names in BMPString and T61String.
    const REQUESTS: [&str; 2] = [
        "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlJQkNUQ0JzQUlCQURCT01TVXdJd1lEVlFRS0hod0Fjd0I1QUhNQWRBQmxBRzBBT2dCdEFHRUFjd0IwQUdVQQpjZ0J6TVNVd0l3WURWUVFESGh3QWN3QjVBSE1BZEFCbEFHMEFPZ0J1QUc4QVpBQmxBRG9BYmdBeE1Ga3dFd1lICktvWkl6ajBDQVFZSUtvWkl6ajBEQVFjRFFnQUUwNExjdk5rZ0NsQVMxaWhvSTl2QytEOVE0S3hLNExRUXZNQTAKcVEycFhDQXhNcWRMTVloLy9Zd2xRb2Z4TVd1N1VnbjBuajJpQ05laE1TUStVZUVCVzZBQU1Bb0dDQ3FHU000OQpCQU1DQTBnQU1FVUNJQUU5TTkvNlJXUmRYOXhsTUxhL0FjekU3dnN2ZVlRNG9taHJHcDVXRUZUV0FpRUFnekxHClBwK3JRSHFndzZpbzc0Q0RWOHlmR0VDWmJzN251RWpPUG1QcThLOD0KLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==",
        "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIdU1JR1VBZ0VBTURJeEZ6QVZCZ05WQkFvVURuTjVjM1JsYlRwdFlYTjBaWEp6TVJjd0ZRWURWUVFERkE1egplWE4wWlcwNmJtOWtaVHB1TVRCWk1CTUdCeXFHU000OUFnRUdDQ3FHU000OUF3RUhBMElBQk5PQzNMelpJQXBRCkV0WW9hQ1Bid3ZnL1VPQ3NTdUMwRUx6QU5La05xVndnTVRLblN6R0lmLzJNSlVLSDhURnJ1MUlKOUo0OW9nalgKb1RFa1BsSGhBVnVnQURBS0JnZ3Foa2pPUFFRREFnTkpBREJHQWlFQS9Seld2eFVIQ3JIVWc2VE50U1YwbTFQMApuVlJWSmZTeTBKNmlTZ25rLzVNQ0lRQzA1TXlGZ245WVpLYU1KVFd4cEgxOElnMUd3THQwaUFLalp2aU5ubG5HCjdnPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==",
    ];

    #[test]
    fn names_are_read_in_every_encoding() {
        for request in REQUESTS {
            let request = json!({"spec": {"request": request}});
            assert_eq!(organizations(&request), ["system:masters"]);
            assert_eq!(common_name(&request).as_deref(), Ok("system:node:n1"));
        }
        let unread = common_name(&json!({"spec": {"request": "eA=="}}));
        assert_eq!(unread, Err(NOT_PEM.to_owned()));
    }
}
