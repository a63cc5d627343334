//! IngressClasses.
use crate::kind::at::check;
use crate::kind::volume::class_title;
use crate::kind::{
    Fill, FormerVersion, Kind, Members, MetadataCheck, MetadataChecks, Report, format,
};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::name;
use setpoint_object::time::Timestamp;

/// IngressClass.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks::before(&[MetadataCheck::Change, MetadataCheck::Whole]),
    default,
    validate,
    validate_change,
    cells: Some(cells),
    rules: "controller, parameters; immutable controller",
    formers: &[FormerVersion::retired("v1beta1")],
    ..Kind::plain("networking.k8s.io", "IngressClass")
};

/// The annotation that marks the default class.
const DEFAULT_CLASS: [&str; 1] = ["ingressclass.kubernetes.io/is-default-class"];

/// Maximum length of a controller's name, in bytes.
const CONTROLLER_MAX: usize = 250;

fn default(object: &mut Members, _version: &str) {
    if let Some(parameters) = object.object("spec").and_then(|spec| spec.object("parameters")) {
        parameters.absent("scope", "Cluster");
    }
}

/// The controller never changes.
fn validate_change(class: &Value, old: Option<&Value>, errors: &mut Report) {
    if let Some(old) = old {
        check(class, None, errors, |at| {
            at.get("spec.controller").immutable_text(&old["spec"]["controller"]);
        });
    }
}
/// Validates a class.
fn validate(class: &Value, old: Option<&Value>, errors: &mut Report) {
    check(class, old, errors, |at| {
        let controller = at.get("spec.controller");
        if controller.text().len() > CONTROLLER_MAX {
            controller.too_long(CONTROLLER_MAX);
        }
        format::domain_path(&controller);
        let Some(parameters) = at.given("spec.parameters") else { return };
        parameters.get("apiGroup").formed(name::dns1123_subdomain);
        parameters.get("kind").named(name::path_segment);
        parameters.get("name").named(name::path_segment);
        let (scope, namespace) = (parameters.get("scope"), parameters.get("namespace"));
        scope.one_of_given(&["Cluster", "Namespace"]);
        match scope.text() {
            "Namespace" if !namespace.is_set() => {
                namespace.required("`parameters.scope` is set to 'Namespace'");
            }
            "Namespace" => namespace.faults(name::dns1123_label(namespace.text())),
            "Cluster" if namespace.is_set() => {
                namespace.forbidden("`parameters.scope` is set to 'Cluster'");
            }
            _ => {}
        }
    });
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let parameters = cell::at(object, "spec.parameters");
    let shown = if parameters.is_null() {
        cell::NONE.to_owned()
    } else {
        let (kind, name) = (cell::text(parameters, "kind"), cell::text(parameters, "name"));
        match cell::text(parameters, "apiGroup") {
            "" => format!("{kind}/{name}"),
            group => format!("{kind}.{group}/{name}"),
        }
    };
    vec![
        class_title(object, &DEFAULT_CLASS),
        cell::text(object, "spec.controller").into(),
        shown.into(),
        cell::age(object, now),
    ]
}
