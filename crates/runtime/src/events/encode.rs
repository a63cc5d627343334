//! Encodes events for the two APIs.

use serde_json::{Value, json};

use super::{EVENT_WORD_BYTES_MAX, EventApi, correlator::Record, recorder::ACTION};

/// The namespace of an event: the object's, or `default` for a cluster-scoped object (EV-2).
pub(super) fn namespace(record: &Record) -> &str {
    if record.regarding.namespace.is_empty() { "default" } else { &record.regarding.namespace }
}

/// The path of the events of a namespace.
pub(super) fn path(api: EventApi, namespace: &str) -> String {
    match api {
        EventApi::New => format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"),
        EventApi::Core => format!("/api/v1/namespaces/{namespace}/events"),
    }
}

/// The reporting instance of the newer API: `name-host`, in at most 128 bytes.
pub(super) fn instance(component: &str, host: &str) -> String {
    let mut instance = component.to_owned();
    if !host.is_empty() {
        instance.push('-');
        instance.push_str(host);
    }
    cut(&mut instance, EVENT_WORD_BYTES_MAX);
    instance
}

/// Truncates a text at a character boundary.
pub(super) fn cut(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
    }
}

/// The body of a new event.
pub(super) fn created(api: EventApi, record: &Record, host: &str) -> Value {
    let Record { name, group, regarding, note, first, last, count } = record;
    let component = &*group.component;
    let mut event = json!({
        "kind": "Event",
        "metadata": {"name": &**name, "namespace": namespace(record)},
        "type": group.event_type.as_str(),
        "reason": group.reason,
    });
    if let Some(related) = &group.related {
        event["related"] = json!(related);
    }
    match api {
        EventApi::New => {
            event["apiVersion"] = "events.k8s.io/v1".into();
            event["eventTime"] = first.rfc3339_micro().into();
            event["regarding"] = json!(regarding);
            event["note"] = (**note).into();
            event["action"] = group.action.as_str().into();
            event["reportingController"] = component.into();
            event["reportingInstance"] = instance(component, host).into();
            if *count >= 2 {
                event["series"] = series(record);
            }
        }
        EventApi::Core => {
            event["apiVersion"] = "v1".into();
            event["involvedObject"] = json!(regarding);
            event["message"] = (**note).into();
            event["source"] = match host {
                "" => json!({"component": component}),
                host => json!({"component": component, "host": host}),
            };
            // As client-go: the instance is the host, and only a chosen action is named.
            if group.action != ACTION {
                event["action"] = group.action.as_str().into();
            }
            event["reportingComponent"] = component.into();
            event["reportingInstance"] = host.into();
            event["firstTimestamp"] = first.rfc3339().into();
            event["lastTimestamp"] = last.rfc3339().into();
            event["count"] = (*count).into();
        }
    }
    event
}

/// The merge patch of a repeated event. In the newer API nothing else may change.
pub(super) fn more(api: EventApi, record: &Record) -> Value {
    match api {
        EventApi::New => json!({"series": series(record)}),
        EventApi::Core => json!({
            "message": &*record.note,
            "lastTimestamp": record.last.rfc3339(),
            "count": record.count,
        }),
    }
}

fn series(record: &Record) -> Value {
    json!({"count": record.count, "lastObservedTime": record.last.rfc3339_micro()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_is_truncated_at_a_character_boundary() {
        assert_eq!(instance("network", "node-1"), "network-node-1");
        assert_eq!(instance("network", ""), "network");
        let long = instance("n", &"é".repeat(100));
        assert_eq!((long.len(), long.chars().count()), (128, 65));
    }
}
