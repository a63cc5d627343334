//! Namespaces.
use super::Context;
use serde_json::{Value, json};
use setpoint_object::meta::ObjectExt;

/// A namespace has its name as a label: by default, so that its writer owns it.
pub(crate) fn name_label(namespace: &mut Value) {
    let name = namespace.name().to_owned();
    if name.is_empty() {
        return;
    }
    let labels = namespace.meta_mut().entry("labels").or_insert_with(|| json!({}));
    if !labels.is_object() {
        *labels = json!({});
    }
    labels["kubernetes.io/metadata.name"] = name.into();
}
/// A namespace has its finalizer from the start and its name as a label always.
pub(super) fn prepare_namespace(_: &Context<'_>, namespace: &mut Value, old: Option<&Value>) {
    name_label(namespace);
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
pub(super) fn mark_namespace(_: &Context<'_>, namespace: &mut Value) {
    if !namespace["status"].is_object() {
        namespace["status"] = json!({});
    }
    namespace["status"]["phase"] = "Terminating".into();
}
