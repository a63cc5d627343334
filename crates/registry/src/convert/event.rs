//! Events of the core group and of `events.k8s.io`: the same members under other names.
use serde_json::{Map, Value};

/// Names in the core group and in `events.k8s.io`.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

pub(super) fn to_events_group(event: &mut Value) {
    for (core, events) in NAMES {
        rename(event.as_object_mut(), core, events);
    }
}
pub(super) fn to_core_group(event: &mut Value) {
    for (core, events) in NAMES {
        rename(event.as_object_mut(), events, core);
    }
}
fn rename(members: Option<&mut Map<String, Value>>, from: &str, to: &str) {
    if let Some(members) = members
        && let Some(value) = members.remove(from)
    {
        members.insert(to.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_goes_to_the_other_group_and_back() {
        let core = json!({"involvedObject": {"kind": "Pod"}, "message": "m", "reason": "r", "count": 3,
            "source": {"component": "c"}, "reportingComponent": "", "eventTime": null, "type": "Normal"});
        let mut event = core.clone();
        to_events_group(&mut event);
        assert_eq!(
            event,
            json!({"regarding": {"kind": "Pod"}, "note": "m", "reason": "r", "deprecatedCount": 3,
            "deprecatedSource": {"component": "c"}, "reportingController": "", "eventTime": null, "type": "Normal"})
        );
        to_core_group(&mut event);
        assert_eq!(event, core);
    }
}
