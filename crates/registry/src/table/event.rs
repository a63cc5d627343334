//! Events, in both groups that serve them.

use super::age::age_of;
use super::cell::{self, at, int, text};
use serde_json::Value;
use setpoint_object::time::Timestamp;

/// Where the parts of an event are: the two groups name them differently.
struct Names {
    object: &'static str,
    message: &'static str,
    source: &'static str,
    reporter: &'static str,
    first: &'static str,
    last: &'static str,
    count: &'static str,
}

pub(super) fn core(object: &Value, now: Timestamp) -> Vec<Value> {
    let names = Names {
        object: "involvedObject",
        message: "message",
        source: "source",
        reporter: "reportingComponent",
        first: "firstTimestamp",
        last: "lastTimestamp",
        count: "count",
    };
    event(object, now, &names)
}

pub(super) fn events(object: &Value, now: Timestamp) -> Vec<Value> {
    let names = Names {
        object: "regarding",
        message: "note",
        source: "deprecatedSource",
        reporter: "reportingController",
        first: "deprecatedFirstTimestamp",
        last: "deprecatedLastTimestamp",
        count: "deprecatedCount",
    };
    event(object, now, &names)
}

fn event(event: &Value, now: Timestamp, names: &Names) -> Vec<Value> {
    let first = cell::text_or(event, names.first, text(event, "eventTime"));
    let series = at(event, "series");
    let (last, count) = if series.is_null() {
        (cell::text_or(event, names.last, first), int(event, names.count).max(1))
    } else {
        (text(series, "lastObservedTime"), int(series, "count"))
    };
    let object = at(event, names.object);
    let kind = text(object, "kind").to_lowercase();
    let target = match text(object, "name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let source = at(event, names.source);
    let component = cell::text_or(source, "component", text(event, names.reporter));
    let instance = cell::text_or(source, "host", text(event, "reportingInstance"));
    let source = match instance {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    };
    vec![
        age_of(last, now).into(),
        text(event, "type").into(),
        text(event, "reason").into(),
        target.into(),
        text(object, "fieldPath").into(),
        source.into(),
        text(event, names.message).trim().into(),
        age_of(first, now).into(),
        count.into(),
        cell::name(event),
    ]
}
