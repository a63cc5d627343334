//! CustomResourceDefinitions: the effects of writes on their status. Their validation is in the
//! schema crate (spec: crd §1, §2).
mod former;

use crate::features::Feature;
use crate::kind::{
    Context, Fill as _, FormerVersion, Kind, Members, Report, StatusMeta, StatusRule, set_condition,
};
use serde_json::{Value, json};
use setpoint_object::meta::ObjectExt;
use setpoint_schema::crd;

/// CustomResourceDefinition.
pub(in crate::kind) static KIND: Kind = Kind {
    formers: &[FormerVersion {
        version: "v1beta1",
        same_messages: false,
        restore: Some(former::restore),
        until: None,
        convert: former::convert,
    }],
    name_fault: crd::name_fault,
    unconditional_update: false,
    qualified_finalizers: false,
    begin_termination: Some(begin_termination),
    status: Some(StatusRule { has_tables: false, ..StatusRule::new(StatusMeta::All, "{}") }),
    disabled: &[(
        Some(Feature::CRDObservedGenerationTracking),
        &["status.observedGeneration", "status.conditions[].observedGeneration"],
    )],
    default,
    prepare,
    validate,
    validate_status,
    // Rules in CEL are compiled.
    validates_slowly: true,
    warnings: crd::definition_warnings,
    update_warnings: |new, old| {
        let known = crd::definition_warnings(old);
        let all = crd::definition_warnings(new).into_iter();
        all.filter(|warning| !known.contains(warning)).collect()
    },
    rules: "names, versions, schemas, rules in CEL, columns, scale, selectable fields, conversion, approval; immutable names; accepted names of `status`",
    ..Kind::plain("apiextensions.k8s.io", "CustomResourceDefinition")
};

/// Finalizer: keeps a deleted definition until its objects are deleted.
pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The storage version is among `status.storedVersions`, of which there are never none.
fn default(definition: &mut Members, _version: &str) {
    crd::default_definition(definition);
    let storage = definition.get("spec").and_then(storage_version).map(str::to_owned);
    if let Some(storage) = storage
        && let Some(status) = definition.object_or_new("status")
        && status.get("storedVersions").and_then(Value::as_array).is_none_or(Vec::is_empty)
    {
        status.insert("storedVersions".to_owned(), json!([storage]));
    }
}

fn storage_version(spec: &Value) -> Option<&str> {
    let versions = spec["versions"].as_array()?;
    versions.iter().find(|v| v["storage"] == true)?["name"].as_str()
}

/// Adds the storage version to `status.storedVersions`.
fn prepare(_: &Context<'_>, definition: &mut Value, old: Option<&Value>) {
    drop_empty_webhook(definition);
    let storage = storage_version(&definition["spec"]).map(str::to_owned);
    match old {
        None => {
            let stored: Vec<String> = storage.into_iter().collect();
            definition["status"] = json!({
                "acceptedNames": {"kind": "", "plural": ""},
                "conditions": null,
                "storedVersions": stored,
            });
        }
        Some(_) => note_stored(definition, storage),
    }
}

/// A webhook without a client and versions is none.
fn drop_empty_webhook(definition: &mut Value) {
    let conversion = definition.pointer_mut("/spec/conversion").and_then(Value::as_object_mut);
    if let Some(conversion) = conversion
        && let Some(webhook) = conversion.get("webhook")
        && webhook["clientConfig"].is_null()
        && webhook["conversionReviewVersions"].as_array().is_none_or(Vec::is_empty)
    {
        conversion.remove("webhook");
    }
}

fn note_stored(definition: &mut Value, storage: Option<String>) {
    let Some(storage) = storage else { return };
    if !definition["status"].is_object() {
        definition["status"] = json!({});
    }
    let stored = &mut definition["status"]["storedVersions"];
    if !stored.is_array() {
        *stored = json!([]);
    }
    if let Some(stored) = stored.as_array_mut()
        && !stored.iter().any(|version| *version == *storage)
    {
        stored.push(storage.into());
    }
}

/// Validates a new or changed definition.
fn validate(definition: &Value, old: Option<&Value>, errors: &mut Report) {
    errors.extend(crd::validate_definition(definition, old));
}

/// Validates what a write through `/status` reports.
fn validate_status(definition: &Value, _old: Option<&Value>, errors: &mut Report) {
    errors.extend(crd::validate_definition_status(definition));
}

/// The first DELETE: the objects are deleted before the definition.
fn begin_termination(context: &Context<'_>, definition: &mut Value) {
    let mut finalizers: Vec<String> =
        definition.finalizers().into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|f| f == CLEANUP_FINALIZER) {
        finalizers.push(CLEANUP_FINALIZER.to_owned());
        definition.set_meta("finalizers", finalizers.into());
    }
    let condition = json!({
        "type": "Terminating",
        "status": "True",
        "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    });
    set_condition(definition, condition, context.now);
}
