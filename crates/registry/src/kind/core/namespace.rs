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
    first_delete: Some(mark),
    default,
    prepare,
    parts: &[FINALIZE],
    selectable: &[Selectable::new("status.phase")],
    selects_namespace: false,
    unknown_label: not_supported,
    cells: Some(cells),
    ..Kind::with_status("", "Namespace", StatusMeta::All, r#"{"phase":"Active"}"#)
};

/// `namespaces/finalize`: whoever empties a namespace takes its finalizers away.
const FINALIZE: Part = Part::new("finalize", |merged, sent| {
    merged["spec"]["finalizers"] = sent["spec"]["finalizers"].take()
});

/// A namespace has its name as a label: by default, so that its writer owns it.
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

/// A namespace has its finalizer from the start and its name as a label always.
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

/// The first DELETE of a namespace: its contents go before it does.
fn mark(_: &Context<'_>, namespace: &mut Value) {
    if !namespace["status"].is_object() {
        namespace["status"] = json!({});
    }
    namespace["status"]["phase"] = "Terminating".into();
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![cell::name(object), cell::text(object, "status.phase").into(), cell::age(object, now)]
}
