//! Several sources in one volume.
use super::{downward_file, key_to_path, mode, need};
use crate::kind::at::At;
use crate::kind::check::ANNOTATIONS_BYTES_MAX;
use crate::kind::format;
use serde_json::Value;
use setpoint_object::name;
use std::collections::HashSet;

/// Lifetimes of tokens and certificates, in seconds.
const TOKEN_MIN: i64 = 600;
const TOKEN_MAX: i64 = 1 << 32;
const CERTIFICATE_MIN: i64 = 3600;
const CERTIFICATE_MAX: i64 = 91 * 86_400;
const KUBERNETES_CERTIFICATE_MAX: i64 = 86_400;

/// Several sources in one volume: each has one, and no two files have one path.
pub(super) fn projected<'v>(at: &At<'v, '_>) {
    mode(at, "defaultMode");
    let mut paths: HashSet<&'v str> = HashSet::new();
    for source in at.each("sources") {
        let mut n_sources = 0;
        for member in ["secret", "configMap"] {
            let Some(source) = source.given(member) else { continue };
            n_sources += 1;
            need(&source, &["name"]);
            for item in source.each("items") {
                key_to_path(&item);
                let path = item.text_of("path");
                if !path.is_empty() && !paths.insert(path) {
                    at.invalid_as(&source.text_of("name").into(), "conflicting duplicate paths");
                }
            }
        }
        let mut add = |path: &'v Value| {
            let text = path.as_str().unwrap_or_default();
            if !text.is_empty() && !paths.insert(text) {
                at.invalid_as(path, "conflicting duplicate paths");
            }
        };
        if let Some(downward) = source.given("downwardAPI") {
            n_sources += 1;
            for file in downward.list_of("items") {
                downward_file(file, &downward);
                add(&file["path"]);
            }
        }
        if let Some(token) = source.given("serviceAccountToken") {
            n_sources += 1;
            let seconds = token.get("expirationSeconds");
            if seconds.int().is_some_and(|seconds| seconds < TOKEN_MIN) {
                seconds.invalid("may not specify a duration less than 10 minutes");
            }
            if seconds.int().is_some_and(|seconds| seconds > TOKEN_MAX) {
                seconds.invalid("may not specify a duration larger than 2^32 seconds");
            }
            let path = at.shown_as("path", token.get("path").value);
            if path.need() {
                format::unreserved_path(&path, path.text());
            }
        }
        if let Some(bundle) = source.given("clusterTrustBundle") {
            n_sources += 1;
            trust_bundle(&bundle);
            add(bundle.get("path").value);
        }
        if let Some(certificate) = source.given("podCertificate") {
            n_sources += 1;
            pod_certificate(&certificate, &mut add);
        }
        if n_sources > 1 {
            source.forbidden("may not specify more than 1 volume type per source");
        }
    }
}
fn trust_bundle(at: &At<'_, '_>) {
    match (at.has("name"), at.has("signerName")) {
        (true, true) => at.invalid("only one of name and signerName may be used"),
        (true, false) => {
            let name = at.get("name");
            name.need_for("must be a valid object name");
            let text = name.text().rsplit(':').next().unwrap_or_default();
            for fault in name::dns1123_subdomain(text) {
                name.invalid(format!("not a valid clustertrustbundlename: {fault}"));
            }
            if at.has("labelSelector") {
                at.get("labelSelector").invalid("labelSelector must be unset if name is specified");
            }
        }
        (false, true) => {
            let signer = at.get("signerName");
            if signer.need_for("must be a valid signer name") {
                format::signer(&signer);
            }
            at.get("labelSelector").selector();
        }
        (false, false) => at.required("either name or signerName must be specified"),
    }
    let path = at.get("path");
    path.need();
    format::unreserved_path(&path, path.text());
}
/// `add`: takes the path of a file.
fn pod_certificate<'v>(at: &At<'v, '_>, add: &mut impl FnMut(&'v Value)) {
    let signer = at.get("signerName");
    format::signer(&signer);
    let annotations = at.get("userAnnotations");
    for (key, _) in annotations.all() {
        format::prefixed_key(&annotations, &key.to_lowercase());
    }
    let size: usize = annotations.all().map(|(key, value)| key.len() + value.text().len()).sum();
    if size > ANNOTATIONS_BYTES_MAX {
        annotations.too_long(ANNOTATIONS_BYTES_MAX);
    }
    at.get("keyType").choice(&[
        "RSA3072",
        "RSA4096",
        "ECDSAP256",
        "ECDSAP384",
        "ECDSAP521",
        "ED25519",
    ]);
    let seconds = at.get("maxExpirationSeconds");
    if let Some(number) = seconds.int() {
        if number < CERTIFICATE_MIN {
            seconds
                .invalid(format!("if provided, maxExpirationSeconds must be >= {CERTIFICATE_MIN}"));
        }
        let most = if format::is_signer_of_kubernetes(signer.text()) {
            KUBERNETES_CERTIFICATE_MAX
        } else {
            CERTIFICATE_MAX
        };
        if number > most {
            seconds.invalid(format!("if provided, maxExpirationSeconds must be <= {most}"));
        }
    }
    let members = ["credentialBundlePath", "keyPath", "certificateChainPath"];
    for member in members {
        let path = at.get(member);
        format::unreserved_path(&path, path.text());
        add(path.value);
    }
    if members.iter().all(|member| at.text_of(member).is_empty()) {
        at.required(
            "specify at least one of credentialBundlePath, keyPath, and certificateChainPath",
        );
    }
}
