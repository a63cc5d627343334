//! Namespaces.
use crate::kind::at::{At, check};
use crate::kind::{
    Context, Fill, Kind, Members, MetadataChecks, NameRule, Part, Report, Selectable, StatusMeta,
    not_supported,
};
use crate::table::cell;
use serde_json::{Value, json};
use setpoint_object::meta::ObjectExt;
use setpoint_object::name;
use setpoint_object::time::Timestamp;

/// Namespace.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks::WHOLE_THEN_CHANGE,
    names: NameRule::Label,
    returns_deleted: true,
    finalizers_in_spec: true,
    begin_termination: Some(begin_termination),
    default,
    prepare,
    validate,
    validate_status,
    parts: &[FINALIZE],
    selectable: &[Selectable::new("status.phase")],
    selects_namespace: false,
    unknown_label: not_supported,
    cells: Some(cells),
    rules: "finalizers; the phase in `status`",
    ..Kind::with_status("", "Namespace", StatusMeta::All, r#"{"phase":"Active"}"#)
};

/// `namespaces/finalize`: the controller that empties a namespace removes its finalizers.
const FINALIZE: Part = Part {
    takes_metadata: true,
    validate: validate_finalizers,
    ..Part::new("finalize", |merged, sent| {
        merged["spec"]["finalizers"] = sent["spec"]["finalizers"].take()
    })
};

/// The label with the namespace's name. Set as a default, so that the writer owns it.
fn default(namespace: &mut Members, _version: &str) {
    if let Some(status) = namespace.object_or_new("status") {
        status.absent("phase", "Active");
    }
    let name = namespace.object("metadata").map(|meta| meta.text("name").to_owned());
    set_name_label(namespace, name.unwrap_or_default());
}
fn set_name_label(namespace: &mut Members, name: String) {
    if name.is_empty() {
        return;
    }
    let Some(meta) = namespace.object_or_new("metadata") else { return };
    let labels = meta.entry("labels").or_insert_with(|| json!({}));
    if !labels.is_object() {
        *labels = json!({});
    }
    labels["kubernetes.io/metadata.name"] = name.into();
}

/// Sets the finalizer of a new namespace, and always the label with its name.
fn prepare(_: &Context<'_>, namespace: &mut Value, old: Option<&Value>) {
    let name = namespace.name().to_owned();
    // A name that is none is refused as a name. By default one that a client gives has a label.
    if name::dns1123_label(&name).is_empty()
        && let Some(members) = namespace.as_object_mut()
    {
        set_name_label(members, name);
    }
    match old {
        Some(old) => namespace["spec"] = old["spec"].clone(),
        None => {
            if !namespace["spec"].is_object() {
                namespace["spec"] = json!({});
            }
            let finalizers = &mut namespace["spec"]["finalizers"];
            if !finalizers.is_array() {
                *finalizers = json!([]);
            }
            if let Some(finalizers) = finalizers.as_array_mut()
                && !finalizers.contains(&json!("kubernetes"))
            {
                finalizers.push("kubernetes".into());
            }
        }
    }
}

/// A namespace as the server itself creates it, without uid and time of creation.
pub(crate) fn fresh(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": KIND.kind,
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
        "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
    })
}

/// The first DELETE of a namespace: its contents are deleted before it.
fn begin_termination(_: &Context<'_>, namespace: &mut Value) {
    if !namespace["status"].is_object() {
        namespace["status"] = json!({});
    }
    namespace["status"]["phase"] = "Terminating".into();
}

/// The name of a finalizer is qualified, or that of Kubernetes.
fn finalizer(at: &At<'_, '_>, name: &str) {
    for fault in name::qualified_name(name) {
        at.invalid_as(&name.into(), fault);
    }
    if !name.contains('/') && !["kubernetes", "orphan", "foregroundDeletion"].contains(&name) {
        at.invalid_as(
            &name.into(),
            "name is neither a standard finalizer name nor is it fully qualified",
        );
    }
}
fn validate(namespace: &Value, old: Option<&Value>, errors: &mut Report) {
    if old.is_none() {
        check(namespace, None, errors, |at| {
            let list = at.get("spec.finalizers");
            at.texts_of("spec.finalizers").for_each(|name| finalizer(&list, name));
        });
    }
}
fn validate_finalizers(namespace: &Value, old: Option<&Value>, errors: &mut Report) {
    check(namespace, old, errors, |at| {
        for item in at.each("spec.finalizers") {
            finalizer(&item, item.text());
        }
    });
}

/// A namespace is terminating from the time it is deleted.
fn validate_status(namespace: &Value, _: Option<&Value>, errors: &mut Report) {
    check(namespace, None, errors, |at| {
        let (phase, shown) = (at.text_of("status.phase"), at.get("status.Phase"));
        let message = match (namespace.deletion_timestamp().is_empty(), phase) {
            (true, "Active") | (false, "Terminating") => return,
            (true, _) => "may only be 'Active' if `deletionTimestamp` is empty",
            (false, _) => "may only be 'Terminating' if `deletionTimestamp` is not empty",
        };
        shown.invalid_as(&phase.into(), message);
    });
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![cell::name(object), cell::text(object, "status.phase").into(), cell::age(object, now)]
}
