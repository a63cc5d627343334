//! The claims of a StatefulSet's pods.

use super::StatefulSet;
use crate::workload::pod::Pod;
use crate::workload::view::view;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use std::collections::BTreeMap;

view! {
    /// A PersistentVolumeClaim.
    VolumeClaim of core::PersistentVolumeClaim {}
}

/// The name of the claim of a template and a pod.
pub(super) fn name(template: &Value, pod: &str) -> String {
    format!("{}-{pod}", template["metadata"]["name"].as_str().unwrap_or_default())
}

/// The claim of a template for a pod, to be created.
pub(super) fn body(set: &StatefulSet, template: &Value, pod: &str) -> DynamicObject {
    let resource = resource();
    let mut claim = DynamicObject::new(&name(template, pod), &resource).within(set.namespace());
    let texts = |value: &Value| -> BTreeMap<String, String> {
        let members = value.as_object().into_iter().flatten();
        let text =
            |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        members.filter_map(text).collect()
    };
    let mut labels = texts(&template["metadata"]["labels"]);
    labels.extend(texts(&set.spec.selector["matchLabels"]));
    claim.metadata.labels = Some(labels);
    let annotations = texts(&template["metadata"]["annotations"]);
    claim.metadata.annotations = Some(annotations).filter(|all| !all.is_empty());
    claim.data = json!({"spec": template["spec"]});
    claim
}

/// The resource of claims.
pub(super) fn resource() -> ApiResource {
    ApiResource::erase::<core::PersistentVolumeClaim>(&())
}

/// Whether a claim is going with an earlier pod of this name, so that a new pod must wait.
pub(super) fn is_stale(claim: &VolumeClaim, pod: &str) -> bool {
    let is_of_earlier = |owner: &OwnerReference| owner.kind == "Pod" && owner.name == pod;
    claim.metadata.deletion_timestamp.is_some()
        || claim.metadata.owner_references.iter().flatten().any(is_of_earlier)
}

/// The owners that a claim should have by the retention policy, if they differ from those it has.
///
/// | `whenDeleted` | `whenScaled` | owner, pod wanted | owner, pod beyond the wanted ordinals |
/// |---|---|---|---|
/// | Retain | Retain | – | – |
/// | Delete | Retain | set | set |
/// | Retain | Delete | – | pod |
/// | Delete | Delete | set | pod |
///
/// A claim with another controller, or of an earlier set or pod of the same name, is left alone.
pub(super) fn owners(
    claim: &VolumeClaim,
    set: &StatefulSet,
    pod: &Pod,
) -> Option<Vec<OwnerReference>> {
    let deletes = |when: &str| set.spec.persistent_volume_claim_retention_policy[when] == "Delete";
    let is_wanted = set.ordinal(pod.name()).is_some_and(|ordinal| set.wants(ordinal));
    let reference = |api_version: &str, kind: &str, name: &str, uid: &str| OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    let owner = match (deletes("whenDeleted"), deletes("whenScaled")) {
        (_, true) if !is_wanted => Some(reference("v1", "Pod", pod.name(), pod.uid())),
        (true, _) => Some(reference("apps/v1", "StatefulSet", set.name(), set.uid())),
        _ => None,
    };
    let existing = claim.metadata.owner_references.clone().unwrap_or_default();
    let is_ours = |owner: &OwnerReference| {
        (owner.kind == "StatefulSet" && owner.name == set.name())
            || (owner.kind == "Pod" && owner.name == pod.name())
    };
    let is_foreign = |owner: &OwnerReference| match is_ours(owner) {
        true => owner.uid != set.uid() && owner.uid != pod.uid(),
        false => owner.controller == Some(true),
    };
    if existing.iter().any(is_foreign) {
        return None;
    }
    let mut wanted: Vec<_> = existing.iter().filter(|owner| !is_ours(owner)).cloned().collect();
    wanted.extend(owner);
    (wanted != existing).then_some(wanted)
}
