//! PriorityLevelConfigurations.
use super::flow_schema::conditions;
use crate::kind::at::{At, check, same_in_all};
use crate::kind::{
    Fill, FormerVersion, Kind, Members, MetadataCheck, MetadataChecks, Report, StatusMeta,
};
use crate::table::cell;
use serde_json::{Value, json};
use setpoint_object::time::Timestamp;

/// PriorityLevelConfiguration.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks::before(&[MetadataCheck::Whole]),
    default,
    validate,
    validate_status,
    cells: Some(cells),
    rules: "shares, queues, the fixed specs of the mandatory ones",
    formers: &[former("v1beta1"), former("v1beta2"), former("v1beta3")],
    ..Kind::with_status(
        "flowcontrol.apiserver.k8s.io",
        "PriorityLevelConfiguration",
        StatusMeta::Nothing,
        "{}",
    )
};

const fn former(version: &'static str) -> FormerVersion {
    FormerVersion { convert: rename_shares, ..FormerVersion::retired(version) }
}

/// The name that the shares of a priority level had before `v1beta3`. In protobuf they have a
/// number, which is the same.
fn rename_shares(level: &mut Value) {
    let limited = level.pointer_mut("/spec/limited").and_then(Value::as_object_mut);
    if let Some(limited) = limited
        && let Some(shares) = limited.remove("assuredConcurrencyShares")
    {
        limited.insert("nominalConcurrencyShares".to_owned(), shares);
    }
}

fn default(object: &mut Members, _version: &str) {
    let Some(spec) = object.object("spec") else { return };
    if let Some(exempt) = spec.object("exempt") {
        exempt.absent("nominalConcurrencyShares", 0);
        exempt.absent("lendablePercent", 0);
    }
    let Some(limited) = spec.object("limited") else { return };
    limited.absent("nominalConcurrencyShares", 30);
    limited.absent("lendablePercent", 0);
    if let Some(queuing) = limited.object("limitResponse").and_then(|r| r.object("queuing")) {
        // Zero counts as missing.
        for (name, value) in [("queues", 64), ("handSize", 8), ("queueLengthLimit", 50)] {
            if queuing.get(name).and_then(Value::as_i64).unwrap_or(0) == 0 {
                queuing.insert(name.to_owned(), value.into());
            }
        }
    }
}

/// The annotation in which an older version keeps that the shares are none.
const PRESERVE_ZERO: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";
/// The largest number of queues.
const QUEUES_MAX: i64 = 10_000_000;
/// The bits of the hash that deals a request its queues.
const HASH_BITS: f64 = 60.0;

/// Validates a level: exempt or limited.
fn validate(level: &Value, old: Option<&Value>, errors: &mut Report) {
    check(level, old, errors, |at| {
        let annotations = at.get("metadata.annotations");
        if annotations.value.get(PRESERVE_ZERO).is_some() {
            annotations.forbidden(format!("annotation '{PRESERVE_ZERO}' is forbidden"));
        }
        let spec = at.get("spec");
        let kind = spec.get("type");
        if (at.text_of("metadata.name") == "exempt") != (kind.text() == "Exempt") {
            kind.invalid_as(
                &kind.text().into(),
                "must be 'Exempt' if and only if `name` is 'exempt'",
            );
        }
        let (exempt, limited) = (spec.get("exempt"), spec.get("limited"));
        match kind.text() {
            "Exempt" => {
                if limited.is_set() {
                    limited.forbidden("must be nil if the type is not Limited");
                }
                shares(&exempt);
            }
            "Limited" => {
                if exempt.is_set() {
                    exempt.forbidden("must be nil if the type is Limited");
                }
                if limited.is_set() {
                    validate_limited(&limited);
                } else {
                    limited.required("must not be empty when type is Limited");
                }
            }
            _ => kind.choice(&["Exempt", "Limited"]),
        }
        let name = at.text_of("metadata.name");
        let Some(fixed) = mandatory(name) else { return };
        let is_free = |member: &String| name == "exempt" && member == "exempt";
        let members = |spec: &Value| {
            let members = spec.as_object().into_iter().flatten();
            let members = members.filter(|(member, _)| !is_free(member));
            members.map(|(member, value)| (member.clone(), value.clone())).collect::<Value>()
        };
        if !same_in_all(&members(spec.value), &members(&fixed)) {
            let except = if name == "exempt" { " except the 'spec.exempt' field" } else { "" };
            spec.invalid(format!("spec of '{name}'{except} must equal the fixed value"));
        }
    });
}
/// The spec that a level of this name has, if it is one of the two that every server has. The
/// shares of the exempt one are free.
fn mandatory(name: &str) -> Option<Value> {
    match name {
        "exempt" => Some(json!({
            "type": "Exempt",
            "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0},
        })),
        "catch-all" => Some(json!({
            "type": "Limited",
            "limited": {
                "nominalConcurrencyShares": 5,
                "limitResponse": {"type": "Reject"},
                "lendablePercent": 0,
            },
        })),
        _ => None,
    }
}
fn validate_status(level: &Value, old: Option<&Value>, errors: &mut Report) {
    check(level, old, errors, |at| conditions(&at.get("status")));
}

fn shares(at: &At<'_, '_>) {
    nominal(at);
    at.get("lendablePercent").between(0, 100);
}
fn nominal(at: &At<'_, '_>) {
    let count = at.get("nominalConcurrencyShares");
    if count.int().is_some_and(|count| count < 0) {
        count.invalid("must be a non-negative integer");
    }
}
fn validate_limited(at: &At<'_, '_>) {
    nominal(at);
    validate_response(at);
    at.get("lendablePercent").between(0, 100);
    let borrowing = at.get("borrowingLimitPercent");
    if borrowing.int().is_some_and(|percent| percent < 0) {
        borrowing.invalid("if specified, must be a non-negative integer");
    }
}
fn validate_response(at: &At<'_, '_>) {
    let response = at.get("limitResponse");
    let queuing = response.get("queuing");
    match response.text_of("type") {
        "Reject" if queuing.is_set() => {
            queuing.forbidden("must be nil if limited.limitResponse.type is not Limited")
        }
        "Reject" => {}
        "Queue" if queuing.is_set() => validate_queuing(&queuing),
        "Queue" => {
            queuing.required("must not be empty if limited.limitResponse.type is Limited");
        }
        _ => response.get("type").choice(&["Queue", "Reject"]),
    }
}
fn validate_queuing(at: &At<'_, '_>) {
    let [limit, queues, hand] =
        ["queueLengthLimit", "queues", "handSize"].map(|member| at.int_of(member));
    for (member, number) in [("queueLengthLimit", limit), ("queues", queues), ("handSize", hand)] {
        if number <= 0 {
            at.get(member).invalid_as(&number.into(), "must be positive");
        } else if member == "queues" && number > QUEUES_MAX {
            at.get(member).invalid(format!("must not be greater than {QUEUES_MAX}"));
        }
    }
    if hand <= 0 {
        return;
    }
    if hand > queues {
        at.get("handSize").invalid(format!("should not be greater than queues ({queues})"));
    } else if bits(queues, hand) > HASH_BITS {
        at.get("handSize").invalid(format!(
            "required entropy bits of deckSize {queues} and handSize {hand} should not be greater than {HASH_BITS}"
        ));
    }
}
/// The bits that choose a hand of so many queues.
fn bits(queues: i64, hand: i64) -> f64 {
    ((queues as f64).log2() * hand as f64).ceil()
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    let number = |path: &str| match cell::at(object, path).as_i64() {
        Some(number) => Value::from(number),
        None => Value::from(cell::NONE),
    };
    vec![
        cell::name(object),
        cell::text(object, "spec.type").into(),
        number("spec.limited.nominalConcurrencyShares"),
        number("spec.limited.limitResponse.queuing.queues"),
        number("spec.limited.limitResponse.queuing.handSize"),
        number("spec.limited.limitResponse.queuing.queueLengthLimit"),
        cell::age(object, now),
    ]
}
