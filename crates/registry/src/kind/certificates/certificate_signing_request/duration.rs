//! Whether certificates have the duration that their requests ask for.
use crate::kind::Counter;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use x509_parser::certificate::X509Certificate;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

/// The signers whose names are no text of users.
const OF_KUBERNETES: &str = "kubernetes.io/";
/// What all others are counted as.
const OTHER: &str = "other";
/// How much a duration may differ: what signers of short certificates add before the present, and
/// a twentieth.
const TOLERANCE_SECONDS: i64 = 5 * 60;

/// Counts a change by which a certificate came to a request with a duration.
pub(super) fn count(new: &Value, old: &Value) -> Vec<(Counter, String)> {
    let issued = |request: &Value| {
        let certificate = request["status"]["certificate"].as_str();
        certificate.filter(|encoded| !encoded.is_empty()).map(str::to_owned)
    };
    let wanted = old["spec"]["expirationSeconds"].as_i64();
    let (None, Some(wanted), Some(issued)) = (issued(old), wanted, issued(new)) else {
        return Vec::new();
    };
    let signer = old["spec"]["signerName"].as_str().unwrap_or_default();
    let signer = if signer.starts_with(OF_KUBERNETES) { signer } else { OTHER };
    let mut counts = vec![(Counter::RequestedDuration, signer.to_owned())];
    if seconds(&issued).is_some_and(|seconds| is_honored(wanted, seconds)) {
        counts.push((Counter::HonoredDuration, signer.to_owned()));
    }
    counts
}

/// The seconds for which a certificate in PEM is valid.
fn seconds(encoded: &str) -> Option<i64> {
    let bytes = STANDARD.decode(encoded).ok()?;
    let block = Pem::iter_from_buffer(&bytes).next()?.ok()?;
    let (_, certificate) = X509Certificate::from_der(&block.contents).ok()?;
    let validity = certificate.validity();
    Some(validity.not_after.timestamp() - validity.not_before.timestamp())
}

fn is_honored(wanted: i64, seconds: i64) -> bool {
    // Twentieths of seconds.
    let difference = (wanted - seconds).saturating_abs().saturating_mul(20);
    difference < (TOLERANCE_SECONDS * 20).saturating_add(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn durations_may_differ_by_five_minutes_and_a_twentieth() {
        assert!(is_honored(600, 600) && is_honored(600, 929) && is_honored(600, 271));
        assert!(!is_honored(600, 930) && !is_honored(600, 270));
    }

    #[test]
    fn certificates_are_counted_once_by_the_signers_of_kubernetes() {
        let certificate = |days: u64| {
            let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
            params.not_before = rcgen::date_time_ymd(2026, 1, 1);
            params.not_after = params.not_before + std::time::Duration::from_secs(86_400 * days);
            let key = rcgen::KeyPair::generate().unwrap();
            STANDARD.encode(params.self_signed(&key).unwrap().pem())
        };
        let request = |signer: &str, days: Option<u64>, issued: Option<u64>| {
            let wanted = days.map(|days| days * 86_400);
            let issued = issued.map(certificate);
            json!({
                "spec": {"signerName": signer, "expirationSeconds": wanted},
                "status": {"certificate": issued},
            })
        };
        let counted = |signer: &str, wanted: Option<u64>, issued: Option<u64>| {
            count(&request(signer, wanted, issued), &request(signer, wanted, None))
        };
        let both = |label: &str| {
            let of = |counter| (counter, label.to_owned());
            vec![of(Counter::RequestedDuration), of(Counter::HonoredDuration)]
        };
        let own = "kubernetes.io/kube-apiserver-client";
        assert_eq!(counted(own, Some(10), Some(10)), both(own));
        assert_eq!(counted(own, Some(10), Some(20)), both(own)[..1]);
        assert_eq!(counted("example.com/signer", Some(10), Some(10)), both("other"));
        assert_eq!(counted(own, None, Some(10)), []);
        assert_eq!(counted(own, Some(10), None), []);
        let issued = request(own, Some(10), Some(10));
        assert_eq!(count(&issued, &issued), [], "it had one");
    }
}
