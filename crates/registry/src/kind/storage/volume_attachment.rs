//! VolumeAttachments.
use crate::features::Feature;
use crate::kind::at::{At, check};
use crate::kind::core::persistent_volume;
use crate::kind::{
    FormerVersion, Kind, MetadataCheck, MetadataChecks, Report, StatusMeta, StatusRule, format,
};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::name;
use setpoint_object::time::Timestamp;

/// VolumeAttachment.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks::before(&[MetadataCheck::Whole]),
    unconditional_update: false,
    returns_deleted: true,
    validate,
    validate_status,
    disabled: &[
        (Some(Feature::MutableCSINodeAllocatableCount), &["status.attachError.errorCode"]),
        (Some(Feature::MutableCSINodeAllocatableCount), &["status.detachError.errorCode"]),
    ],
    cells: Some(cells),
    rules: "attacher, source, node; immutable",
    status: Some(StatusRule {
        checks: MetadataChecks::before(&[MetadataCheck::Whole]),
        ..StatusRule::new(StatusMeta::Identity, r#"{"attached":false}"#)
    }),
    formers: &[FormerVersion::retired("v1beta1")],
    ..Kind::plain("storage.k8s.io", "VolumeAttachment")
};

/// Maximum length of a reported error, and of what a driver reports, in bytes.
const ERROR_BYTES_MAX: usize = 1024;
const METADATA_BYTES_MAX: usize = 256 * 1024;

/// Validates an attachment: it never changes.
fn validate(attachment: &Value, old: Option<&Value>, errors: &mut Report) {
    check(attachment, old, errors, |at| {
        let spec = at.get("spec");
        format::driver(&spec.get("attacher"));
        let source = spec.get("source");
        const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        let name = source.get("persistentVolumeName");
        match (source.has("inlineVolumeSpec"), name.is_set()) {
            (false, false) => source.required(ONE),
            (true, true) => source.forbidden(ONE),
            (false, true) => _ = name.need_for("must specify non empty persistentVolumeName"),
            (true, false) => persistent_volume::inline_rules(&source.get("inlineVolumeSpec")),
        }
        let node = spec.get("nodeName");
        for fault in name::dns1123_subdomain(node.text()) {
            node.invalid_as(&node.text().into(), fault);
        }
        status(&at.get("status"));
        if name.is_set() {
            name.faults(name::dns1123_subdomain(name.text()));
        }
    });
    if let Some(old) = old {
        check(attachment, None, errors, |at| at.get("spec").immutable(&old["spec"]));
    }
}
fn status(at: &At<'_, '_>) {
    let metadata = at.get("attachmentMetadata");
    let n_bytes: usize = metadata.all().map(|(key, value)| key.len() + value.text().len()).sum();
    if n_bytes > METADATA_BYTES_MAX {
        metadata.too_long(METADATA_BYTES_MAX);
    }
    for member in ["attachError", "detachError"] {
        let error = at.get(member);
        if error.text_of("message").len() > ERROR_BYTES_MAX {
            // The API reports the other limit here.
            error.get("message").too_long(METADATA_BYTES_MAX);
        }
        error.get("errorCode").between(0, i32::MAX.into());
    }
}
fn validate_status(attachment: &Value, old: Option<&Value>, errors: &mut Report) {
    check(attachment, old, errors, |at| status(&at.get("status")));
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cell::name(object),
        cell::text(object, "spec.attacher").into(),
        cell::text(object, "spec.source.persistentVolumeName").into(),
        cell::text(object, "spec.nodeName").into(),
        (cell::at(object, "status.attached") == true).into(),
        cell::age(object, now),
    ]
}
