//! CA bundles of conversion webhooks.
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// The bundle of a definition, base64, when it has one.
pub(super) fn of(crd: &Value) -> Option<&str> {
    crd.pointer("/spec/conversion/webhook/clientConfig/caBundle")?
        .as_str()
        .filter(|b| !b.is_empty())
}

/// Whether a bundle (base64 of PEM) holds at least one certificate block. A definition with another
/// one is never established.
pub fn valid(bundle: &str) -> bool {
    const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
    const END: &str = "-----END CERTIFICATE-----";
    let Some(pem) = STANDARD.decode(bundle).ok().and_then(|pem| String::from_utf8(pem).ok()) else {
        return false;
    };
    let Some((_, rest)) = pem.split_once(BEGIN) else { return false };
    let Some((body, _)) = rest.split_once(END) else { return false };
    let body: String = body.split_whitespace().collect();
    !body.is_empty() && STANDARD.decode(body).is_ok()
}
