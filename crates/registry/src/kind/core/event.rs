//! Events: one object, served by the core group and by `events.k8s.io` with different field names.
use crate::kind::at::{At, check, same};
use crate::kind::{
    Charged, Kind, Members, MetadataChecks, NameRule, Report, Selectable, not_supported, text,
};
use crate::table::{age, cell};
use serde_json::Value;
use setpoint_object::name;
use setpoint_object::time::Timestamp;

/// Event.
pub(in crate::kind) static KIND: Kind = Kind {
    // The older form is not checked strictly.
    names: NameRule::Segment,
    metadata_last: true,
    changed_metadata: MetadataChecks::NONE,
    may_own: false,
    create_on_update: true,
    propagates: false,
    expires: true,
    charged: Charged::Never,
    validate,
    convert: Some(convert),
    selectable: &CORE_LABELS,
    unknown_label: not_supported,
    cells: Some(core),
    rules: "namespace; reporter, action, reason and lengths if it has a time",
    ..Kind::plain("", "Event")
};

/// The same object in `events.k8s.io`.
pub(in crate::kind) static EVENTS: Kind = Kind {
    storage: Some(("", "v1")),
    create_on_update: true,
    propagates: false,
    expires: true,
    charged: Charged::Never,
    validate_before: |event, old, errors| {
        check(event, old, errors, |at| legacy(at, "reportingController"));
    },
    validate: validate_new,
    convert: Some(convert),
    selectable: &EVENTS_LABELS,
    unknown_label: not_supported,
    cells: Some(events),
    rules: "the same, no fields of the older form, series; only a series changes",
    ..Kind::plain("events.k8s.io", "Event")
};

/// What a limit of the rate of Events is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LimitType {
    /// All Events.
    Server,
    /// Those of one namespace.
    Namespace,
    /// Those of one user.
    User,
    /// Those of one source about one object.
    SourceAndObject,
}
impl LimitType {
    /// All types.
    pub(crate) const ALL: [Self; 4] =
        [Self::Server, Self::Namespace, Self::User, Self::SourceAndObject];
    /// The type with a name in a configuration.
    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|limit| limit.as_str() == name)
    }
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Server => "Server",
            Self::Namespace => "Namespace",
            Self::User => "User",
            Self::SourceAndObject => "SourceAndObject",
        }
    }
    /// The source and the object of an Event, as one text.
    pub(crate) fn source_and_object(event: Option<&Value>) -> String {
        let Some(event) = event else { return String::new() };
        let part = |of: &str, members: &[&str]| -> String {
            members.iter().map(|member| text(&event[of], member)).collect()
        };
        let source = part("source", &["component", "host"]);
        let object = part("involvedObject", &["kind", "namespace", "name", "uid", "apiVersion"]);
        format!("{source}{object}")
    }
}

const CORE_LABELS: [Selectable; 11] = [
    Selectable::new("involvedObject.kind"),
    Selectable::new("involvedObject.namespace"),
    Selectable::new("involvedObject.name"),
    Selectable::new("involvedObject.uid"),
    Selectable::new("involvedObject.apiVersion"),
    Selectable::new("involvedObject.resourceVersion"),
    Selectable::new("involvedObject.fieldPath"),
    Selectable::new("reason"),
    Selectable::new("reportingComponent"),
    Selectable {
        path: "source.component",
        or_path: "reportingComponent",
        ..Selectable::new("source")
    },
    Selectable::new("type"),
];

const EVENTS_LABELS: [Selectable; 10] = [
    Selectable::new("regarding.kind"),
    Selectable::new("regarding.namespace"),
    Selectable::new("regarding.name"),
    Selectable::new("regarding.uid"),
    Selectable::new("regarding.apiVersion"),
    Selectable::new("regarding.resourceVersion"),
    Selectable::new("regarding.fieldPath"),
    Selectable::new("reason"),
    Selectable::new("reportingController"),
    Selectable::new("type"),
];

/// Limits of an Event's texts, in bytes.
const TEXT_BYTES_MAX: usize = 128;
const NOTE_BYTES_MAX: usize = 1024;

/// Validates an Event of the core group.
fn validate(event: &Value, old: Option<&Value>, errors: &mut Report) {
    check(event, old, errors, |at| legacy(at, "reportingComponent"));
}

/// An Event is in the namespace of the object that it is about; for cluster-scoped objects in
/// `default`. One with a time says what was done and who reports it.
fn legacy(at: &At<'_, '_>, reporter: &str) {
    let about = at.get("involvedObject.namespace");
    let namespace = at.text_of("metadata.namespace");
    let disagrees = || about.invalid_as(&about.text().into(), "does not match event.namespace");
    if !at.has("eventTime") {
        let agrees = match about.text() {
            "" => matches!(namespace, "" | "default"),
            about => about == namespace,
        };
        if !agrees {
            disagrees();
        }
        return;
    }
    if about.text().is_empty() && !matches!(namespace, "default" | "kube-system") {
        disagrees();
    }
    let controller = at.shown_as(reporter, at.get("reportingComponent").value);
    controller.need();
    for fault in name::qualified_name(controller.text()) {
        controller.invalid_as(&controller.text().into(), fault);
    }
    let short = |member: &str, most: usize| {
        if at.text_of(member).len() > most {
            at.get(member).invalid_union(format!("can have at most {most} characters"));
        }
    };
    for member in ["reportingInstance", "action", "reason"] {
        at.get(member).need();
        short(member, TEXT_BYTES_MAX);
    }
    short("message", NOTE_BYTES_MAX);
}

/// Validates an Event of `events.k8s.io`, which has no fields of the older form, after the rules of
/// that form. It is stored in the core group's form.
fn validate_new(event: &Value, old: Option<&Value>, errors: &mut Report) {
    check(event, old, errors, |at| {
        if at.has("series") {
            if at.int_of("series.count") < 2 {
                at.get("series.count").invalid_union("should be at least 2");
            }
            at.get("series.lastObservedTime").need();
        }
    });
    let Some(old) = old else {
        return check(event, None, errors, |at| {
            at.get("eventTime").need();
            let kind = at.text_of("type");
            if !["Normal", "Warning"].contains(&kind) {
                at.get("type").invalid_union(format!("has invalid value: {kind}"));
            }
            for member in ["firstTimestamp", "lastTimestamp", "count", "source"] {
                let is_set = match member {
                    "count" => at.int_of(member) != 0,
                    _ => !same(at.get(member).value, &Value::Null),
                };
                if is_set {
                    at.get(member).invalid_union("needs to be unset");
                }
            }
        });
    };
    check(event, None, errors, |at| {
        for (member, shown) in [
            ("involvedObject", "involvedObject"),
            ("reason", "reason"),
            ("message", "message"),
            ("source", "source"),
            ("firstTimestamp", "firstTimestamp"),
            ("lastTimestamp", "lastTimestamp"),
            ("count", "count"),
            // Twice, as in the original.
            ("reason", "reason"),
            ("type", "type"),
            ("eventTime", "eventTime"),
            ("action", "action"),
            ("related", "related"),
            ("reportingComponent", "reportingController"),
            ("reportingInstance", "reportingInstance"),
        ] {
            let at = at.shown_as(shown, at.get(member).value);
            match (at.value, &old[member]) {
                (Value::Null | Value::String(_), before @ (Value::Null | Value::String(_)))
                    if !member.ends_with("Time") =>
                {
                    at.immutable_text(before);
                }
                // A missing number is zero.
                (Value::Null, before) if member == "count" && !before.is_null() => {
                    at.invalid_as(&0.into(), "field is immutable");
                }
                (_, before) => at.immutable(before),
            }
        }
    });
}

/// Field names in the core group and in `events.k8s.io`.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];
fn convert(event: &mut Value, from: &str, to: &str) -> bool {
    let Some(members) = event.as_object_mut() else { return true };
    match (from, to) {
        ("v1", "events.k8s.io/v1") => {
            NAMES.iter().for_each(|(core, events)| rename(members, core, events));
            // Only the core group has empty ones.
            for name in ["reportingController", "reportingInstance"] {
                if members.get(name).is_some_and(|value| value == "") {
                    members.remove(name);
                }
            }
        }
        ("events.k8s.io/v1", "v1") => {
            NAMES.iter().for_each(|(core, events)| rename(members, events, core));
            for name in ["reportingComponent", "reportingInstance"] {
                members.entry(name).or_insert_with(|| "".into());
            }
        }
        _ => return false,
    }
    true
}
fn rename(members: &mut Members, from: &str, to: &str) {
    if let Some(value) = members.remove(from) {
        members.insert(to.to_owned(), value);
    }
}

/// The field names of an event in one of the two groups.
struct Names {
    object: &'static str,
    message: &'static str,
    source: &'static str,
    reporter: &'static str,
    first: &'static str,
    last: &'static str,
    count: &'static str,
}
fn core(object: &Value, now: Timestamp) -> Vec<Value> {
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
fn events(object: &Value, now: Timestamp) -> Vec<Value> {
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
    let first = cell::text_or(event, names.first, cell::text(event, "eventTime"));
    let series = cell::at(event, "series");
    let (last, count) = if series.is_null() {
        (cell::text_or(event, names.last, first), cell::int(event, names.count).max(1))
    } else {
        (cell::text(series, "lastObservedTime"), cell::int(series, "count"))
    };
    let object = cell::at(event, names.object);
    let kind = cell::text(object, "kind").to_lowercase();
    let target = match cell::text(object, "name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let source = cell::at(event, names.source);
    let component = cell::text_or(source, "component", cell::text(event, names.reporter));
    let instance = cell::text_or(source, "host", cell::text(event, "reportingInstance"));
    let source = match instance {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    };
    vec![
        age::age_of(last, now).into(),
        cell::text(event, "type").into(),
        cell::text(event, "reason").into(),
        target.into(),
        cell::text(object, "fieldPath").into(),
        source.into(),
        cell::text(event, names.message).trim().into(),
        age::age_of(first, now).into(),
        count.into(),
        cell::name(event),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_converts_to_the_other_group_and_back() {
        let core = json!({"involvedObject": {"kind": "Pod"}, "message": "m", "reason": "r", "count": 3,
            "source": {"component": "c"}, "reportingComponent": "", "reportingInstance": "",
            "eventTime": null, "type": "Normal"});
        let mut event = core.clone();
        assert!(convert(&mut event, "v1", "events.k8s.io/v1"));
        assert_eq!(
            event,
            json!({"regarding": {"kind": "Pod"}, "note": "m", "reason": "r", "deprecatedCount": 3,
            "deprecatedSource": {"component": "c"}, "eventTime": null, "type": "Normal"})
        );
        assert!(convert(&mut event, "events.k8s.io/v1", "v1"));
        assert_eq!(event, core);
        assert!(!convert(&mut event, "v1", "v2"));
    }
}
