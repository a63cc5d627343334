//! Custom resource definitions: what their writes do to their status; what they may say is the
//! schema crate's (spec: crd §1, §2).
use crate::kind::{Context, Kind, Members, StatusMeta, set_condition};
use serde_json::{Value, json};
use setpoint_object::field;
use setpoint_object::meta::ObjectExt;
use setpoint_schema::crd;

/// CustomResourceDefinition.
pub(in crate::kind) static KIND: Kind = Kind {
    unconditional_update: false,
    qualified_finalizers: false,
    first_delete: Some(mark),
    default,
    prepare,
    prepare_status,
    validate,
    // Rules in CEL are compiled.
    validates_slowly: true,
    warnings: crd::definition_warnings,
    ..Kind::with_status(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        StatusMeta::Nothing,
        "{}",
    )
};

/// Keeps a deleted definition until its objects are gone.
pub(crate) const CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";

fn default(definition: &mut Members, _version: &str) {
    crd::default_definition(definition);
}

fn storage_version(definition: &Value) -> Option<&str> {
    let versions = definition["spec"]["versions"].as_array()?;
    versions.iter().find(|v| v["storage"] == true)?["name"].as_str()
}

/// Notes the storage version among those that data may be in.
fn prepare(_: &Context<'_>, definition: &mut Value, old: Option<&Value>) {
    let storage = storage_version(definition).map(str::to_owned);
    match old {
        None => {
            let stored: Vec<String> = storage.into_iter().collect();
            definition["status"] = json!({
                "acceptedNames": {"kind": "", "plural": ""},
                "conditions": null,
                "storedVersions": stored,
            });
        }
        Some(_) => note_stored(definition, storage, false),
    }
}

fn note_stored(definition: &mut Value, storage: Option<String>, only_when_empty: bool) {
    let Some(storage) = storage else { return };
    if !definition["status"].is_object() {
        definition["status"] = json!({});
    }
    let stored = &mut definition["status"]["storedVersions"];
    if !stored.is_array() {
        *stored = json!([]);
    }
    if let Some(stored) = stored.as_array_mut()
        && (stored.is_empty() || !only_when_empty && !stored.iter().any(|v| *v == *storage))
    {
        stored.push(storage.into());
    }
}

/// `/status` takes any list of stored versions but an empty one.
fn prepare_status(_: &Context<'_>, definition: &mut Value, _old: &Value) {
    let storage = storage_version(definition).map(str::to_owned);
    note_stored(definition, storage, true);
}

/// A definition, new or changed.
fn validate(definition: &Value, old: Option<&Value>, errors: &mut field::Errors) {
    errors.extend(crd::validate_definition(definition, old));
}

/// The first DELETE: the objects go before the definition does.
fn mark(context: &Context<'_>, definition: &mut Value) {
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
