//! RuntimeClasses.
use crate::kind::at::check;
use crate::kind::{
    FormerVersion, Kind, MetadataChecks, Report, node_label, resources, template, text,
};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::name;
use setpoint_object::time::Timestamp;
use std::collections::HashSet;

/// RuntimeClass.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks::WHOLE_THEN_CHANGE,
    create_on_update: true,
    unconditional_update: false,
    qualified_finalizers: false,
    validate,
    validate_change,
    warnings,
    update_warnings: |class, _| warnings(class),
    cells: Some(cells),
    rules: "handler, overhead, tolerations; immutable handler",
    formers: &[FormerVersion::retired("v1beta1")],
    ..Kind::plain("node.k8s.io", "RuntimeClass")
};

fn warnings(class: &Value) -> Vec<String> {
    let labels = class["scheduling"]["nodeSelector"].as_object().into_iter().flatten();
    let messages = labels.filter_map(|(key, _)| node_label::deprecation(key));
    messages.map(|message| format!("scheduling.nodeSelector: {message}")).collect()
}

/// Validates a class.
fn validate(class: &Value, old: Option<&Value>, errors: &mut Report) {
    check(class, old, errors, |at| {
        at.get("handler").named(name::dns1123_label);
        let overhead = at.get("overhead");
        resources::overhead(&overhead, overhead.get("podFixed").value);
        let scheduling = at.get("scheduling");
        scheduling.get("nodeSelector").labels();
        let tolerations = scheduling.get("tolerations");
        template::tolerations(&tolerations, false);
        let mut seen = HashSet::new();
        for toleration in tolerations.items() {
            let key =
                ["key", "operator", "value", "effect"].map(|name| text(toleration.value, name));
            if !seen.insert(key) {
                toleration.duplicate();
            }
        }
    });
}
/// The handler never changes.
fn validate_change(class: &Value, old: Option<&Value>, errors: &mut Report) {
    if let Some(old) = old {
        check(class, None, errors, |at| at.get("handler").immutable(&old["handler"]));
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![cell::name(object), cell::text(object, "handler").into(), cell::age(object, now)]
}
