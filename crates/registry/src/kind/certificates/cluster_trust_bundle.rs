//! ClusterTrustBundles: trust anchors, perhaps those of a signer.
use crate::kind::certificates::pem;

use crate::kind::at::{At, check};
use crate::kind::{
    Kind, MetadataChecks, NameRule, Report, Selectable, format, not_supported, text, versions,
};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_object::name;
use setpoint_object::time::Timestamp;
use std::collections::BTreeMap;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

/// ClusterTrustBundle.
pub(in crate::kind) static KIND: Kind = Kind {
    storage: Some(("certificates.k8s.io", "v1beta1")),
    convert: Some(versions::SAME_MEMBERS),
    names: NameRule::Any,
    name_fault,
    changed_metadata: MetadataChecks::WHOLE_THEN_CHANGE,
    unconditional_update: false,
    validate,
    validate_change,
    selectable: &[Selectable::new("spec.signerName")],
    selects_namespace: false,
    unknown_label: not_supported,
    cells: Some(cells),
    rules: "name, signer, trust anchors; immutable signer",
    ..Kind::plain("certificates.k8s.io", "ClusterTrustBundle")
};

/// Maximum length of all trust anchors, in bytes.
const ANCHORS_BYTES_MAX: usize = 1024 * 1024;

/// A bundle of a signer has the signer's name as a prefix, with colons for slashes.
fn name_fault(bundle: &Value, name: &str) -> Option<String> {
    let signer = text(&bundle["spec"], "signerName");
    let own = if signer.is_empty() {
        if name.contains(':') {
            return Some(
                "ClusterTrustBundle without signer name must not have \":\" in its name".to_owned(),
            );
        }
        name
    } else {
        let prefix = format!("{}:", signer.replace('/', ":"));
        let Some(own) = name.strip_prefix(&prefix) else {
            return Some(format!(
                "ClusterTrustBundle for signerName {signer} must be named with prefix {prefix}"
            ));
        };
        own
    };
    let is_base = bundle.meta_str("generateName") == name;
    let own = match own.strip_suffix('-').filter(|_| is_base) {
        // Something follows the dash.
        Some(base) => format!("{base}-a"),
        None => own.to_owned(),
    };
    name::dns1123_subdomain(&own).into_iter().next()
}

fn validate(bundle: &Value, old: Option<&Value>, errors: &mut Report) {
    check(bundle, old, errors, |at| {
        let signer = at.get("spec.signerName");
        if !signer.text().is_empty() {
            format::signer(&signer);
        }
        // What is stored may be older than the rules.
        let bundle = at.get("spec.trustBundle");
        if bundle.text() != bundle.stored().as_str().unwrap_or_default() || old.is_none() {
            anchors(&bundle);
        }
    });
}

/// Only certificates of authorities, each once, at least one.
fn anchors(at: &At<'_, '_>) {
    let text = at.text();
    if text.len() > ANCHORS_BYTES_MAX {
        return at.too_long(ANCHORS_BYTES_MAX);
    }
    let wrong = |why: String| at.invalid_as(&"<value omitted>".into(), why);
    let mut places: BTreeMap<Vec<u8>, Vec<usize>> = BTreeMap::new();
    let mut are_valid = true;
    for (i, block) in pem::blocks(text).enumerate() {
        match fault(&block) {
            Some(why) => {
                are_valid = false;
                wrong(format!("entry {i} {why}"));
            }
            None => places.entry(block.content).or_default().push(i),
        }
    }
    if !are_valid {
        return;
    }
    if places.is_empty() {
        wrong("at least one trust anchor must be provided".to_owned());
    }
    let mut repeated: Vec<_> = places.into_values().filter(|places| places.len() > 1).collect();
    repeated.sort();
    for places in repeated {
        let places: Vec<_> = places.iter().map(ToString::to_string).collect();
        wrong(format!("duplicate trust anchor (indices [{}])", places.join(" ")));
    }
}

/// Why a block is no trust anchor.
fn fault(block: &pem::Block<'_>) -> Option<String> {
    if block.kind != "CERTIFICATE" {
        return Some(format!("has bad block type: {}", block.kind));
    }
    if block.has_headers {
        return Some("has PEM block headers".to_owned());
    }
    let parsed = X509Certificate::from_der(&block.content).ok();
    let parsed = parsed.filter(|(rest, _)| rest.is_empty()).map(|(_, certificate)| certificate);
    let constraints = parsed.as_ref().map(|certificate| certificate.basic_constraints());
    match constraints {
        None | Some(Err(_)) => Some("does not parse as X.509".to_owned()),
        Some(Ok(Some(constraints))) if constraints.value.ca => None,
        Some(Ok(_)) => Some("does not have the CA bit set".to_owned()),
    }
}

fn validate_change(bundle: &Value, old: Option<&Value>, errors: &mut Report) {
    if let Some(old) = old {
        check(bundle, None, errors, |at| {
            at.get("spec.signerName").immutable_text(&old["spec"]["signerName"]);
        });
    }
}

fn cells(bundle: &Value, _: Timestamp) -> Vec<Value> {
    let signer = cell::text(bundle, "spec.signerName");
    let signer = if signer.is_empty() { "<none>" } else { signer };
    vec![cell::name(bundle), signer.into()]
}
