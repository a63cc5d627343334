//! APIServices.
use crate::kind::at::{At, check};
use crate::kind::data::decoded_len;
use crate::kind::{
    Context, Fill, Kind, Members, MetadataCheck, MetadataChecks, NameRule, Report, StatusMeta,
    StatusRule, set_condition, text,
};
use crate::table::cell;
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;
use setpoint_object::{field, name};

/// APIService.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks::before(&[MetadataCheck::Change, MetadataCheck::Whole]),
    // `v1.` is the core group's.
    names: NameRule::WholeSegment,
    name_fault,
    unconditional_update: false,
    qualified_finalizers: false,
    status: Some(StatusRule { has_tables: false, ..StatusRule::new(StatusMeta::Nothing, "{}") }),
    default,
    prepare,
    validate,
    validate_status,
    cells: Some(cells),
    rules: "name, priorities, service; conditions of `status`",
    ..Kind::plain("apiregistration.k8s.io", "APIService")
};

fn default(object: &mut Members, _version: &str) {
    if let Some(service) = object.object("spec").and_then(|spec| spec.object("service")) {
        service.absent("port", 443);
    }
}

/// A new API of this server is available.
fn prepare(context: &Context<'_>, service: &mut Value, old: Option<&Value>) {
    if old.is_none() && service["spec"]["service"].is_null() {
        let condition = json!({
            "type": "Available",
            "status": "True",
            "reason": "Local",
            "message": "Local APIServices are always available",
        });
        set_condition(service, condition, context.now);
    }
}

/// The name is made of version and group. What is no segment of a path is reported as that.
fn name_fault(service: &Value, name: &str) -> Option<String> {
    let spec = &service["spec"];
    let expected = format!("{}.{}", text(spec, "version"), text(spec, "group"));
    let is_wrong = name != expected && name::path_segment(name).is_empty();
    is_wrong
        .then(|| format!("must be `spec.version+\".\"+spec.group`: {}", field::quote(&expected)))
}

/// The highest priority of a group and of a version.
const GROUP_PRIORITY_MAX: i64 = 20_000;
const VERSION_PRIORITY_MAX: i64 = 1000;

/// Validates an API: its name, its priorities and the Service that serves it.
fn validate(service: &Value, old: Option<&Value>, errors: &mut Report) {
    check(service, old, errors, |at| {
        let spec = at.get("spec");
        let (group, version) = (spec.get("group"), spec.get("version"));
        if group.text().is_empty() && version.text() != "v1" {
            group.required("only v1 may have an empty group and it better be legacy kube");
        }
        group.named_if_set(name::dns1123_subdomain);
        for fault in name::dns1035_label(version.text()) {
            version.invalid_as(&version.text().into(), fault);
        }
        for (member, most) in [
            ("groupPriorityMinimum", GROUP_PRIORITY_MAX),
            ("versionPriority", VERSION_PRIORITY_MAX),
        ] {
            let number = spec.int_of(member);
            if !(1..=most).contains(&number) {
                spec.get(member)
                    .invalid_as(&number.into(), format!("must be positive and less than {most}"));
            }
        }
        backend(&spec);
    });
}
fn validate_status(service: &Value, old: Option<&Value>, errors: &mut Report) {
    check(service, old, errors, |at| {
        for condition in at.each("status.conditions") {
            condition.get("status").choice(&["True", "False", "Unknown"]);
        }
    });
}
fn backend(spec: &At<'_, '_>) {
    let (insecure, bundle) = (spec.is("insecureSkipTLSVerify"), spec.get("caBundle"));
    let has_bundle = !bundle.text().is_empty();
    let Some(service) = spec.given("service") else {
        if has_bundle {
            let size = format!("{} bytes", decoded_len(bundle.text()));
            bundle.invalid_as(&size.into(), "local APIServices may not have a caBundle");
        }
        if insecure {
            spec.get("insecureSkipTLSVerify")
                .invalid("local APIServices may not have insecureSkipTLSVerify");
        }
        return;
    };
    service.get("namespace").need();
    service.get("name").need();
    let port = service.get("port");
    if port.int().is_some_and(|port| !(1..=65_535).contains(&port)) {
        port.invalid("port is not valid: must be between 1 and 65535, inclusive");
    }
    if insecure && has_bundle {
        spec.get("insecureSkipTLSVerify").invalid("may not be true if caBundle is present");
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let service = cell::at(object, "spec.service");
    let service = match service.is_null() {
        true => "Local".to_owned(),
        false => format!("{}/{}", cell::text(service, "namespace"), cell::text(service, "name")),
    };
    let available = match cell::condition(object, "status.conditions", "Available") {
        None => "Unknown".to_owned(),
        Some(found) if cell::text(found, "status") == "True" => "True".to_owned(),
        Some(found) => format!("{} ({})", cell::text(found, "status"), cell::text(found, "reason")),
    };
    vec![cell::name(object), service.into(), available.into(), cell::age(object, now)]
}
