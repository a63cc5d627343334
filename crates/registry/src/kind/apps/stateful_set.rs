//! StatefulSets.
use crate::features::{Feature, FeatureGates};
use crate::kind::at::{At, check};
use crate::kind::format::{at_most_all, count_of, count_or_percent};
use crate::kind::workload::{REVISIONS, TEMPLATE_CONTAINERS, name_and_ready, rest_is_same};
use crate::kind::{
    Fill, Kind, Members, MetadataCheck, MetadataChecks, NameRule, Report, StatusMeta, StatusRule,
    pod_default, template, text, workload,
};
use crate::table::cell;
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;
use setpoint_object::{field, name};
use std::collections::HashSet;

/// StatefulSet.
pub(in crate::kind) static KIND: Kind = Kind {
    names: NameRule::Label,
    default,
    default_of,
    validate,
    validate_status,
    warnings: |set| {
        let mut all = workload::template_warnings(set);
        all.extend(own_warnings(set, "spec.volumeClaimTemplates", ""));
        all
    },
    update_warnings: |set, old| {
        let mut all = workload::update_warnings(set, old);
        // The API's path of an update has one more step.
        all.extend(own_warnings(set, "spec.volumeClaimTemplates", ".Spec"));
        all
    },
    disabled: &[(
        Some(Feature::MaxUnavailableStatefulSet),
        &["spec.updateStrategy.rollingUpdate.maxUnavailable"],
    )],
    pod_spec: "spec.template.spec",
    cells: Some(cells),
    rules: "selector, template with its claims, strategies, claim templates; the fields that an update may change; `status`",
    status: Some(StatusRule {
        checks: MetadataChecks { before: &[], after: &[MetadataCheck::Change] },
        ..StatusRule::new(StatusMeta::All, r#"{"availableReplicas":0,"replicas":0}"#)
    }),
    ..Kind::plain("apps", "StatefulSet")
};

/// Warnings about what is not the template.
fn own_warnings(set: &Value, path: &str, step: &str) -> Vec<String> {
    let mut all = Vec::new();
    for (i, claim) in crate::kind::list(&set["spec"], "volumeClaimTemplates").iter().enumerate() {
        all.extend(template::claim_warnings(&claim["spec"], &format!("{path}[{i}]{step}")));
    }
    if set["spec"]["revisionHistoryLimit"].as_i64().is_some_and(|limit| limit < 0) {
        all.push("spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended".to_owned());
    }
    all
}

fn default(object: &mut Members, _version: &str) {
    let Some(spec) = object.object("spec") else { return };
    spec.absent("podManagementPolicy", "OrderedReady");
    if let Some(strategy) = spec.object_or_new("updateStrategy") {
        if strategy.text("type").is_empty() {
            strategy.insert("type".to_owned(), "RollingUpdate".into());
            strategy.absent("rollingUpdate", json!({}));
        }
        if strategy.text("type") == "RollingUpdate"
            && let Some(rolling) = strategy.object("rollingUpdate")
        {
            rolling.absent("partition", 0);
        }
    }
    if let Some(policy) = spec.object_or_new("persistentVolumeClaimRetentionPolicy") {
        policy.absent("whenDeleted", "Retain");
        policy.absent("whenScaled", "Retain");
    }
    spec.absent("replicas", 1);
    spec.absent("revisionHistoryLimit", REVISIONS);
    for claim in spec.each("volumeClaimTemplates") {
        claim.insert("apiVersion".to_owned(), Value::from("v1"));
        claim.insert("kind".to_owned(), Value::from("PersistentVolumeClaim"));
        pod_default::volume_claim(claim);
    }
    pod_default::template(spec);
}

fn default_of(object: &mut Members, features: FeatureGates) {
    if !features.is_on(Feature::MaxUnavailableStatefulSet) {
        return;
    }
    let strategy = object.object("spec").and_then(|spec| spec.object("updateStrategy"));
    let rolls = |strategy: &&mut Members| strategy.text("type") == "RollingUpdate";
    let rolling = strategy.filter(rolls).and_then(|strategy| strategy.object("rollingUpdate"));
    if let Some(rolling) = rolling {
        rolling.absent("maxUnavailable", 1);
    }
}

/// The members of a stored spec that an update may change.
const MUTABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

fn validate(object: &Value, old: Option<&Value>, errors: &mut Report) {
    check(object, old, errors, |at| {
        let spec = at.get("spec");
        strategies(&spec);
        for member in ["whenDeleted", "whenScaled"] {
            let policy = spec.get("persistentVolumeClaimRetentionPolicy");
            if policy.is_set() {
                policy.get(member).choice(&["Retain", "Delete"]);
            }
        }
        if old.is_none() {
            for claim in spec.each("volumeClaimTemplates") {
                template::claim_spec(&claim.get("spec"));
            }
        }
        for member in ["replicas", "minReadySeconds", "ordinals.start"] {
            spec.get(member).not_negative();
        }
        if old.is_none() {
            spec.get("serviceName").named_if_set(name::dns1123_label);
        }
        if workload::selector(&spec, "statefulset", true) {
            template_with_claims(&spec);
            // The API checks its metadata twice, and reports both.
            template::metadata(&spec.get("template"));
        }
        workload::runs_always(&spec.get("template"), KIND.kind);
    });
    let Some(old) = old else { return };
    if !rest_is_same(&object["spec"], &old["spec"], &MUTABLE) {
        errors.push(field::Error::forbidden(
            field::Path::new("spec"),
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ));
    }
}

/// The template as its pods will be: the claims are volumes, and host name and subdomain are those
/// of the set.
fn template_with_claims(spec: &At<'_, '_>) {
    let at = spec.get("template");
    let claims = spec.list_of("volumeClaimTemplates");
    let is_plain = claims.is_empty() && !at.has("spec.hostname") && !at.has("spec.subdomain");
    if is_plain {
        return template::template(&at);
    }
    let names: HashSet<&str> =
        claims.iter().map(|claim| text(&claim["metadata"], "name")).collect();
    let own = at.list_of("spec.volumes").iter();
    let own = own.filter(|volume| !names.contains(text(volume, "name"))).cloned();
    let claims = names
        .iter()
        .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
    let volumes: Vec<Value> = claims.chain(own).collect();
    let mut template = at.value.clone();
    if let Some(pod) = template.get_mut("spec").and_then(Value::as_object_mut) {
        pod.remove("hostname");
        pod.remove("subdomain");
        pod.insert("volumes".to_owned(), volumes.into());
    }
    template::template(&at.with(&template));
}

fn strategies(spec: &At<'_, '_>) {
    let policy = spec.get("podManagementPolicy");
    if !["OrderedReady", "Parallel"].contains(&policy.text()) {
        policy.invalid_as(&policy.text().into(), "must be 'OrderedReady' or 'Parallel'");
    }
    let strategy = spec.get("updateStrategy");
    let rolling = strategy.get("rollingUpdate");
    match strategy.text_of("type") {
        "OnDelete" => {
            if rolling.is_set() {
                rolling.invalid("only allowed for updateStrategy 'RollingUpdate'");
            }
        }
        "RollingUpdate" => {
            rolling.get("partition").not_negative();
            let unavailable = rolling.get("maxUnavailable");
            if unavailable.is_set() {
                count_or_percent(&unavailable);
                if count_of(unavailable.value) == 0 {
                    unavailable.invalid("cannot be 0");
                }
                at_most_all(&unavailable);
            }
        }
        _ => strategy.invalid("must be 'RollingUpdate' or 'OnDelete'"),
    }
}

fn validate_status(object: &Value, old: Option<&Value>, errors: &mut Report) {
    check(object, old, errors, |at| {
        workload::status(
            &at.get("status"),
            &[
                "replicas",
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
                "observedGeneration",
                "collisionCount",
            ],
            &["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"],
            "status.readyReplicas",
        );
    });
    check(object, None, errors, |at| {
        workload::collisions(&at.get("status"), old.unwrap_or(&Value::Null));
    });
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let [name, ready] = name_and_ready(object);
    let [names, images] = cell::containers(object, TEMPLATE_CONTAINERS);
    vec![name, ready, cell::age(object, now), names, images]
}
