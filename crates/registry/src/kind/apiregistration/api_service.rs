//! APIServices.
use crate::kind::{Fill, Kind, Members, StatusMeta};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// APIService.
pub(in crate::kind) static KIND: Kind = Kind {
    unconditional_update: false,
    qualified_finalizers: false,
    default,
    cells: Some(cells),
    ..Kind::with_status("apiregistration.k8s.io", "APIService", StatusMeta::Nothing, "{}")
};

fn default(object: &mut Members, _version: &str) {
    if let Some(service) = object.object("spec").and_then(|spec| spec.object("service")) {
        service.absent("port", 443);
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
