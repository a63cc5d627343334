//! PodTemplates.
use crate::kind::at::check;
use crate::kind::{Kind, Members, Report, pod_default, template, workload};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// PodTemplate.
pub(in crate::kind) static KIND: Kind = Kind {
    returns_deleted: true,
    default,
    validate,
    warnings,
    update_warnings: |object, old| {
        if workload::has_stepped(object, old) { warnings(object) } else { Vec::new() }
    },
    pod_spec: "template.spec",
    cells: Some(cells),
    rules: "the template, as a Pod",
    ..Kind::plain("", "PodTemplate")
};

fn default(object: &mut Members, _version: &str) {
    pod_default::template(object);
}

fn validate(object: &Value, old: Option<&Value>, errors: &mut Report) {
    check(object, old, errors, |at| template::template(&at.get("template")));
}

fn warnings(object: &Value) -> Vec<String> {
    template::template_warnings(&object["template"], "template")
}

fn cells(object: &Value, _now: Timestamp) -> Vec<Value> {
    let [names, images] = cell::containers(object, "template.spec.containers");
    vec![cell::name(object), names, images, cell::labels(object, "template.metadata.labels").into()]
}
