//! Namespaces.
use crate::kind::{
    Context, Fill, Kind, Members, NameRule, Part, Selectable, StatusMeta, not_supported,
};
use crate::table::cell;
use serde_json::{Value, json};
use setpoint_object::meta::ObjectExt;
use setpoint_object::time::Timestamp;

/// Namespace.
pub(in crate::kind) static KIND: Kind = Kind {
    names: NameRule::Label,
    returns_deleted: true,
    finalizers_in_spec: true,
    begin_termination: Some(begin_termination),
    default,
    prepare,
    parts: &[FINALIZE],
    selectable: &[Selectable::new("status.phase")],
    selects_namespace: false,
    unknown_label: not_supported,
    cells: Some(cells),
    ..Kind::with_status("", "Namespace", StatusMeta::All, r#"{"phase":"Active"}"#)
};

/// `namespaces/finalize`: the controller that empties a namespace removes its finalizers.
const FINALIZE: Part = Part::new("finalize", |merged, sent| {
    merged["spec"]["finalizers"] = sent["spec"]["finalizers"].take()
});

/// The label with the namespace's name. Set as a default, so that the writer owns it.
fn default(namespace: &mut Members, _version: &str) {
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
    if let Some(members) = namespace.as_object_mut() {
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

/// The first DELETE of a namespace: its contents are deleted before it.
fn begin_termination(_: &Context<'_>, namespace: &mut Value) {
    if !namespace["status"].is_object() {
        namespace["status"] = json!({});
    }
    namespace["status"]["phase"] = "Terminating".into();
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![cell::name(object), cell::text(object, "status.phase").into(), cell::age(object, now)]
}
