//! Writes through `/status`: they change only `status` and, depending on the kind, some metadata.
use super::Write;
use super::metadata::put_back;
use crate::kind::{StatusMeta, disabled};
use serde_json::Value;
use setpoint_object::meta::ObjectExt;

/// Restores everything that this endpoint does not write.
pub(super) fn prepare(write: &Write<'_>, new: &mut Value, old: &Value) {
    let meta = write.resource.status.map_or(StatusMeta::All, |rule| rule.meta);
    match meta {
        StatusMeta::All => {}
        StatusMeta::ButLabels => put_back_meta(new, old, "labels"),
        StatusMeta::Pod => {
            put_back_meta(new, old, "ownerReferences");
            put_back_meta(new, old, "deletionTimestamp");
        }
        StatusMeta::Identity => {
            const KEPT: [&str; 6] = [
                "labels",
                "annotations",
                "finalizers",
                "ownerReferences",
                "generation",
                "deletionTimestamp",
            ];
            KEPT.iter().for_each(|name| put_back_meta(new, old, name));
        }
        StatusMeta::Nothing => {
            let managed =
                new.get_mut("metadata").and_then(|m| m.get_mut("managedFields")).map(Value::take);
            if let (Some(members), Some(metadata)) = (new.as_object_mut(), old.get("metadata")) {
                members.insert("metadata".into(), metadata.clone());
            }
            new.set_meta("managedFields", managed.unwrap_or(Value::Null));
        }
    }
    let Some(members) = new.as_object_mut() else { return };
    members.retain(|name, _| is_writable(name) || old.get(name).is_some());
    for (name, value) in old.as_object().into_iter().flatten() {
        if !is_writable(name) {
            put_back(members, name, Some(value));
        }
    }
    disabled::drop_from(write.resource.kind, new, Some(old), write.inner.features);
    (write.resource.kind.prepare_status)(&write.context(), new, old);
}
fn is_writable(name: &str) -> bool {
    matches!(name, "status" | "metadata" | "apiVersion" | "kind")
}
fn put_back_meta(new: &mut Value, old: &Value, name: &str) {
    let stored = old.meta().and_then(|m| m.get(name));
    put_back(new.meta_mut(), name, stored);
}
