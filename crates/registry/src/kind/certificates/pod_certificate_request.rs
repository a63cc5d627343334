//! PodCertificateRequests: what an agent asks a signer for on behalf of a pod.
mod keys;
mod status;

use crate::kind::at::{At, check, same_in_all};
use crate::kind::{
    ANNOTATIONS_BYTES_MAX, Context, Kind, NeededRight, Needs, Report, RequiredOn, Selectable,
    StatusMeta, StatusRule, format, list, not_supported, text,
};
use crate::table::cell;
use serde_json::{Value, json};
use setpoint_object::field::{self, Path, quote};
use setpoint_object::name;
use setpoint_object::time::Timestamp;

/// PodCertificateRequest.
pub(in crate::kind) static KIND: Kind = Kind {
    unconditional_update: false,
    validate,
    validate_change,
    validate_status_in: status::validate,
    // Signatures of RSA and on P-521 take some milliseconds.
    validates_slowly: true,
    needs: Needs { status_rights, ..Needs::NONE },
    selectable: &[
        Selectable::new("spec.signerName"),
        Selectable::new("spec.podName"),
        Selectable::new("spec.nodeName"),
    ],
    selects_namespace: false,
    unknown_label: not_supported,
    cells: Some(cells),
    rules: "signer, names and uids, lifetime, key and proof of its possession; immutable; conditions, certificate and times of `status`",
    status: Some(StatusRule { resets: &["spec"], ..StatusRule::new(StatusMeta::Identity, "{}") }),
    ..Kind::plain("certificates.k8s.io", "PodCertificateRequest")
};

/// Maximum length of a uid, in bytes.
const UID_BYTES_MAX: usize = 128;
/// The bounds of `maxExpirationSeconds`: an hour; a day for signers of Kubernetes, and 91 days for
/// others.
const SECONDS_MIN: i64 = 60 * 60;
const KUBERNETES_SECONDS_MAX: i64 = 24 * 60 * 60;
const SECONDS_MAX: i64 = 91 * 24 * 60 * 60;

/// A new request. What is stored does not change, and is not checked again.
fn validate(request: &Value, old: Option<&Value>, errors: &mut Report) {
    if old.is_some() {
        return;
    }
    check(request, None, errors, |at| {
        let spec = at.get("spec");
        let signer = spec.get("signerName");
        format::signer(&signer);
        annotations(&spec.get("unverifiedUserAnnotations"));
        for (named, uid) in [
            ("podName", "podUID"),
            ("serviceAccountName", "serviceAccountUID"),
            ("nodeName", "nodeUID"),
        ] {
            let (named, uid) = (spec.get(named), spec.get(uid));
            for fault in name::dns1123_subdomain(named.text()) {
                named.invalid_as(&named.text().into(), fault);
            }
            if uid.text().is_empty() {
                uid.invalid_as(&"".into(), "must not be empty");
            }
            if uid.text().len() > UID_BYTES_MAX {
                uid.too_long(UID_BYTES_MAX);
            }
        }
        let seconds = spec.get("maxExpirationSeconds");
        let Some(number) = seconds.int() else { return seconds.required("must be set") };
        let most = if format::is_signer_of_kubernetes(signer.text()) {
            KUBERNETES_SECONDS_MAX
        } else {
            SECONDS_MAX
        };
        if !(SECONDS_MIN..=most).contains(&number) {
            seconds.invalid(format!("must be in the range [{SECONDS_MIN}, {most}]"));
        }
        keys::validate(&spec);
    });
}

/// Annotations for the signer: every key has a domain.
fn annotations(at: &At<'_, '_>) {
    for (key, _) in at.all() {
        format::prefixed_key(at, &key.to_lowercase());
    }
    let size: usize = at.all().map(|(key, value)| key.len() + value.text().len()).sum();
    if size > ANNOTATIONS_BYTES_MAX {
        at.too_long(ANNOTATIONS_BYTES_MAX);
    }
}

fn validate_change(request: &Value, old: Option<&Value>, errors: &mut Report) {
    if old.is_none_or(|old| same_in_all(&request["spec"], &old["spec"])) {
        return;
    }
    check(request, None, errors, |at| {
        at.get("spec").report(|path| field::Error {
            kind: field::ErrorKind::Invalid,
            path,
            shown: Some(shown(&request["spec"])),
            detail: "field is immutable".to_owned(),
        });
    });
}

/// A spec as the API shows it: the names and the order of a Go struct.
fn shown(spec: &Value) -> String {
    const MEMBERS: [(&str, &str, bool); 12] = [
        ("SignerName", "signerName", true),
        ("PodName", "podName", true),
        ("PodUID", "podUID", true),
        ("ServiceAccountName", "serviceAccountName", true),
        ("ServiceAccountUID", "serviceAccountUID", true),
        ("NodeName", "nodeName", true),
        ("NodeUID", "nodeUID", true),
        ("MaxExpirationSeconds", "maxExpirationSeconds", false),
        ("PKIXPublicKey", "pkixPublicKey", false),
        ("ProofOfPossession", "proofOfPossession", false),
        ("StubPKCS10Request", "stubPKCS10Request", false),
        ("UnverifiedUserAnnotations", "unverifiedUserAnnotations", false),
    ];
    let members = MEMBERS.iter().filter_map(|(name, member, is_text)| {
        let value = match spec.get(*member) {
            None if *is_text => Value::from(""),
            value => value.cloned().unwrap_or_default(),
        };
        let member = field::show(&json!({*name: value}));
        Some(member.get(1..member.len() - 1)?.to_owned())
    });
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

/// Who changes the status must be able to sign for the signer.
fn status_rights(context: &Context<'_>, _: &str, new: &Value, old: &Value) -> Vec<NeededRight> {
    if same_in_all(&new["status"], &old["status"]) {
        return Vec::new();
    }
    let signer = text(&old["spec"], "signerName");
    let detail = format!(
        "User {} is not permitted to \"sign\" for signer {}",
        quote(context.user),
        quote(signer)
    );
    vec![NeededRight {
        field: Path::new("spec").child("signerName"),
        detail,
        on: RequiredOn::Signer(signer.to_owned()),
        verbs: vec!["sign".to_owned()],
    }]
}

fn cells(request: &Value, _: Timestamp) -> Vec<Value> {
    const STATES: [&str; 3] = ["Issued", "Denied", "Failed"];
    let conditions = list(&request["status"], "conditions").iter().rev();
    let mut kinds = conditions.map(|condition| text(condition, "type"));
    let state = kinds.find(|kind| STATES.contains(kind)).unwrap_or("Pending");
    let of_spec = |path: &str| Value::from(cell::text(request, path));
    vec![
        cell::name(request),
        of_spec("spec.podName"),
        of_spec("spec.serviceAccountName"),
        of_spec("spec.nodeName"),
        of_spec("spec.signerName"),
        state.into(),
        cell::labels(request, "spec.unverifiedUserAnnotations").into(),
    ]
}
