//! Webhook configurations, validating and mutating.
use crate::kind::{Fill, Kind, Members};
use crate::table::cell;
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;

/// ValidatingWebhookConfiguration.
pub(in crate::kind) static VALIDATING: Kind = Kind {
    unconditional_update: false,
    default: |object, _| webhooks(object, false),
    cells: Some(cells),
    ..Kind::plain("admissionregistration.k8s.io", "ValidatingWebhookConfiguration")
};

/// MutatingWebhookConfiguration.
pub(in crate::kind) static MUTATING: Kind = Kind {
    unconditional_update: false,
    default: |object, _| webhooks(object, true),
    cells: Some(cells),
    ..Kind::plain("admissionregistration.k8s.io", "MutatingWebhookConfiguration")
};

/// Webhook configurations.
fn webhooks(object: &mut Members, mutating: bool) {
    for webhook in object.each("webhooks") {
        webhook.absent("failurePolicy", "Fail");
        webhook.absent("matchPolicy", "Equivalent");
        webhook.absent("namespaceSelector", json!({}));
        webhook.absent("objectSelector", json!({}));
        webhook.absent("timeoutSeconds", 10);
        if mutating {
            webhook.absent("reinvocationPolicy", "Never");
        }
        let service = webhook.object("clientConfig").and_then(|config| config.object("service"));
        if let Some(service) = service {
            service.absent("port", 443);
        }
        webhook.each("rules").for_each(|rule| rule.absent("scope", "*"));
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![cell::name(object), cell::len(object, "webhooks").into(), cell::age(object, now)]
}
