//! What a signer reports: a certificate with its times, or why there is none.
use super::keys::is_key_of;
use crate::kind::at::{At, check, same_in_all};
use crate::kind::certificates::pem;
use crate::kind::condition::{conditions, is_true};
use crate::kind::{Context, Report};
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;
use std::time::Duration;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

/// The conditions with which a request ends.
const ENDS: [&str; 3] = [ISSUED, DENIED, FAILED];
const ISSUED: &str = "Issued";
const DENIED: &str = "Denied";
const FAILED: &str = "Failed";

/// Maximum length of a chain, in bytes.
const CHAIN_BYTES_MAX: usize = 100 * 1024;
/// How far the begin of a certificate may be from the present.
const SKEW: Duration = Duration::from_secs(5 * 60);
/// Minimum lifetime of a certificate.
const LIFETIME_MIN: i64 = 60 * 60;
/// Minimum time between the refresh and both ends of a certificate.
const REFRESH: Duration = Duration::from_secs(10 * 60);

/// Validates a write through `/status`. Each step hides those that follow.
pub(super) fn validate(context: &Context<'_>, request: &Value, old: &Value, errors: &mut Report) {
    if !errors.is_empty() {
        return;
    }
    check(request, None, errors, |at| {
        let status = at.get("status");
        ends(&status.get("conditions"));
        conditions(&status.get("conditions"));
        if at.n_errors() > 0 {
            return;
        }
        let has_ended = |status: &Value, end: &str| is_true(&status["conditions"], end);
        let before = &old["status"];
        let same_or = |wanted: &Value, why: &str| {
            if !same_in_all(status.value, wanted) {
                status.invalid_bare(why);
            }
        };
        if ENDS.iter().any(|end| has_ended(before, end)) {
            same_or(before, "immutable after PodCertificateRequest is issued, denied, or failed");
        } else if has_ended(status.value, DENIED) || has_ended(status.value, FAILED) {
            same_or(
                &json!({"conditions": status.value["conditions"]}),
                "non-condition status fields must be empty when denying or failing the PodCertificateRequest",
            );
        } else if has_ended(status.value, ISSUED) {
            issued(&status, &request["spec"], context.now, &old["spec"], at);
        } else {
            same_or(
                before,
                r#"status is immutable unless transitioning to "Issued", "Denied", or "Failed""#,
            );
        }
    });
}

/// At most one of the conditions with which a request ends, and no others.
fn ends(list: &At<'_, '_>) {
    let mut n_ends = 0;
    for (i, condition) in list.list().iter().enumerate() {
        // The API shows the index as a member.
        let index = format!("[{i}]");
        let condition = list.shown_as(&index, condition);
        let (kind, state) = (condition.get("type"), condition.get("status"));
        if !ENDS.contains(&kind.text()) {
            kind.choice(&ENDS);
            continue;
        }
        n_ends += 1;
        if n_ends > 1 {
            kind.invalid(
                r#"There may be at most one condition with type "Issued", "Denied", or "Failed""#,
            );
        }
        state.choice(&["True"]);
    }
}

/// A certificate that was issued: it is for the key of the request, and its times are right.
fn issued(status: &At<'_, '_>, spec: &Value, now: Timestamp, stored: &Value, root: &At<'_, '_>) {
    let chain = status.get("certificateChain");
    if chain.text().len() > CHAIN_BYTES_MAX {
        return chain.too_long(CHAIN_BYTES_MAX);
    }
    let wrong = |why: &str| chain.invalid_as(&chain.text().into(), why);
    let mut blocks = pem::blocks(chain.text());
    let Some(first) = blocks.next() else {
        return wrong("issued certificate chain must contain at least one certificate");
    };
    if first.kind != "CERTIFICATE" {
        return wrong("issued certificate chain must consist entirely of CERTIFICATE PEM blocks");
    }
    let Some(leaf) = read(&first.content) else {
        return wrong("leaf certificate does not parse as valid X.509");
    };
    names(&chain, &leaf);
    match is_key_of(stored, leaf.public_key()) {
        Err((member, why)) => return root.get("spec").get(member).invalid_bare(why),
        Ok(false) => return wrong("leaf certificate was not issued to the requested public key"),
        Ok(true) => {}
    }
    let times = ["notBefore", "notAfter", "beginRefreshAt"].map(|member| status.get(member));
    let [not_before, not_after, refresh] = &times;
    for (time, why) in [
        (not_before, "must be present and consistent with the issued certificate"),
        (not_after, "must be present and consistent with the issued certificate"),
        (refresh, "must be present and in the range [notbefore+10min, notafter-10min]"),
    ] {
        if !time.is_set() {
            time.required(why);
        }
    }
    if root.n_errors() > 0 {
        return;
    }
    let of = |time: &At<'_, '_>| Timestamp::parse(time.text()).unwrap_or_default();
    let seconds = |time: Timestamp| i64::try_from(time.0.as_secs()).unwrap_or(i64::MAX);
    let (begin, end) =
        (leaf.validity().not_before.timestamp(), leaf.validity().not_after.timestamp());
    if seconds(of(not_before)) != begin {
        return not_before
            .invalid("must be set to the NotBefore time encoded in the leaf certificate");
    }
    if of(not_before).since(now).max(now.since(of(not_before))) > SKEW {
        return not_before
            .invalid("must be set to within 5 minutes of kube-apiserver's current time");
    }
    if seconds(of(not_after)) != end {
        return not_after
            .invalid("must be set to the NotAfter time encoded in the leaf certificate");
    }
    let lifetime = end.saturating_sub(begin);
    let shown = Value::from(lifetime.saturating_mul(1_000_000_000));
    let seconds_max = spec["maxExpirationSeconds"].as_i64().unwrap_or_default();
    if lifetime < LIFETIME_MIN {
        return chain.invalid_as(&shown, "leaf certificate lifetime must be >= 1 hour");
    }
    if lifetime > seconds_max {
        let why = format!(
            "leaf certificate lifetime must be <= spec.maxExpirationSeconds ({seconds_max})"
        );
        return chain.invalid_as(&shown, why);
    }
    if of(refresh).0 < of(not_before).0.saturating_add(REFRESH) {
        return refresh.invalid("must be at least 10 minutes after status.notBefore");
    }
    if of(refresh).0 > of(not_after).0.saturating_sub(REFRESH) {
        return refresh.invalid("must be at least 10 minutes before status.notAfter");
    }
    for block in blocks {
        if block.kind != "CERTIFICATE" {
            // The misspelling is the API's.
            return wrong(
                "issued certificate chain must consist entirely of CERTFICATE PEM blocks",
            );
        }
        if read(&block.content).is_none() {
            return wrong("intermediate certificate does not parse as valid X.509");
        }
    }
}

fn read(der: &[u8]) -> Option<X509Certificate<'_>> {
    let (rest, certificate) = X509Certificate::from_der(der).ok()?;
    rest.is_empty().then_some(certificate)
}

/// Reports malformed names of a certificate.
fn names(chain: &At<'_, '_>, leaf: &X509Certificate<'_>) {
    let names = leaf.subject_alternative_name().ok().flatten();
    let names = names.map_or(&[][..], |names| &names.value.general_names);
    for name in names {
        if let GeneralName::DNSName(name) = name {
            let wrong = |why: &str| chain.invalid_as(&(*name).into(), why);
            if name.is_empty() {
                wrong("leaf certificate should not contain empty DNSName");
            }
            if name.contains("..") {
                wrong("leaf certificate's DNSName should not contain '..'");
            }
            if name.starts_with('.') || name.ends_with('.') {
                wrong("leaf certificate's DNSName should not start or end with '.'");
            }
        }
    }
    for name in names {
        if let GeneralName::RFC822Name(name) = name
            && !is_address(name)
        {
            chain.invalid_as(
                &(*name).into(),
                "leaf certificate should not contain invalid EmailAddress",
            );
        }
    }
}

/// Whether a text is a plain address: a part without spaces, and a domain.
fn is_address(text: &str) -> bool {
    let is_part = |part: &str| {
        let is_plain =
            |b: u8| b.is_ascii_graphic() && !br#"()<>[]:;@\,""#.contains(&b) || b >= 0x80;
        !part.is_empty()
            && part.bytes().all(is_plain)
            && !part.starts_with('.')
            && !part.ends_with('.')
            && !part.contains("..")
    };
    text.rsplit_once('@').is_some_and(|(local, domain)| is_part(local) && is_part(domain))
}
