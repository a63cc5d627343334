//! LimitRanges.
use crate::kind::at::{At, check};
use crate::kind::{Context, Fill, Kind, Members, MetadataCheck, MetadataChecks, Report, resources};
use serde_json::Value;
use setpoint_object::meta::ObjectExt;
use setpoint_object::name;
use setpoint_object::quantity::Quantity;
use std::cmp::Ordering;
use std::collections::{BTreeSet, HashSet};

/// LimitRange.
pub(in crate::kind) static KIND: Kind = Kind {
    changed_metadata: MetadataChecks::before(&[MetadataCheck::Whole]),
    create_on_update: true,
    default,
    prepare,
    validate,
    rules: "types, names of resources, amounts that go together",
    ..Kind::plain("", "LimitRange")
};

/// LimitRange: for containers, the default limit is the maximum; the default request is the default
/// limit, or else the minimum.
fn default(object: &mut Members, _version: &str) {
    let Some(spec) = object.object("spec") else { return };
    for item in spec.each("limits") {
        if item.text("type") == "Container" {
            inherit(item, "max", "default");
            inherit(item, "default", "defaultRequest");
            inherit(item, "min", "defaultRequest");
        }
    }
}

/// A new LimitRange without a name gets one that nobody else has: its uid.
fn prepare(_: &Context<'_>, range: &mut Value, old: Option<&Value>) {
    if old.is_none() && range.name().is_empty() {
        let uid = range["metadata"]["uid"].clone();
        range.set_meta("name", uid);
    }
}

fn inherit(item: &mut Members, from: &str, to: &str) {
    let Some(Value::Object(source)) = item.get(from).cloned() else { return };
    if let Some(target) = item.object_or_new(to) {
        for (name, quantity) in source {
            target.absent(&name, quantity);
        }
    }
}

/// Validates limits: each type once, and amounts that go together.
fn validate(range: &Value, old: Option<&Value>, errors: &mut Report) {
    check(range, old, errors, |at| {
        let mut types = HashSet::new();
        for limit in at.each("spec.limits") {
            let kind = limit.get("type");
            let faults = name::qualified_name(kind.text());
            let is_named = faults.is_empty();
            for fault in faults {
                kind.invalid_as(&kind.text().into(), fault);
            }
            let is_standard = ["Pod", "Container", "PersistentVolumeClaim"].contains(&kind.text());
            if is_named && !is_standard && !kind.text().contains('/') {
                kind.invalid("must be a standard limit type or fully qualified");
            }
            kind.unique(&mut types);
            amounts(&limit);
        }
    });
}

/// The member that limits the limits by the requests.
const RATIO: &str = "maxLimitRequestRatio";

fn amounts(limit: &At<'_, '_>) {
    let kind = limit.text_of("type");
    let mut names = BTreeSet::new();
    let is_storage = |member| limit.get(member).value.get("storage").is_some();
    for member in ["max", "min", "default", "defaultRequest", RATIO] {
        let is_default = member.starts_with("default");
        if member == RATIO
            && kind == "PersistentVolumeClaim"
            && !is_storage("min")
            && !is_storage("max")
        {
            limit.get("limits").required(
                "either minimum or maximum storage value is required, but neither was provided",
            );
        }
        if kind == "Pod" && is_default {
            if limit.get(member).len() > 0 {
                limit.get(member).forbidden("may not be specified when `type` is 'Pod'");
            }
            continue;
        }
        for (name, amount) in limit.entries(member) {
            match kind {
                "Pod" | "Container" => resources::container_name(&amount, name),
                _ => resources::name(&amount, name),
            }
            names.insert(name);
        }
    }
    names.into_iter().for_each(|name| compare(limit, name));
}

/// The most units whose thousandths an `int64` holds.
const MILLI_MAX: i64 = i64::MAX / 1000;

/// The amounts of one resource.
fn compare(limit: &At<'_, '_>, name: &str) {
    let is_pod = limit.text_of("type") == "Pod";
    let amount = |member: &str| -> Option<Quantity> {
        if is_pod && member.starts_with("default") {
            return None;
        }
        Quantity::parse(limit.get(member).value.get(name)?.as_str()?).ok()
    };
    let [min, max, default, request, ratio] =
        ["min", "max", "default", "defaultRequest", RATIO].map(amount);
    let above = |a: &Option<Quantity>, b: &Option<Quantity>| {
        a.as_ref().zip(b.as_ref()).is_some_and(|(a, b)| a.compare(b) == Ordering::Greater)
    };
    let text = |q: &Option<Quantity>| q.as_ref().map_or("", Quantity::as_str).to_owned();
    for (lower, upper, member, shown, nouns) in [
        (&min, &max, "min", &min, ["min value", "max value"]),
        (&min, &request, "defaultRequest", &request, ["min value", "default request value"]),
        (&request, &max, "defaultRequest", &request, ["default request value", "max value"]),
        (
            &request,
            &default,
            "defaultRequest",
            &request,
            ["default request value", "default limit value"],
        ),
        (&min, &default, "default", &min, ["min value", "default value"]),
        (&default, &max, "default", &max, ["default value", "max value"]),
    ] {
        if above(lower, upper) {
            limit.entry(member, name).invalid_as(
                &text(shown).into(),
                format!(
                    "{} {} is greater than {} {}",
                    nouns[0],
                    text(lower),
                    nouns[1],
                    text(upper)
                ),
            );
        }
    }
    let at = limit.entry(RATIO, name);
    if let Some(ratio) = &ratio {
        if ratio.compare(&Quantity::from_units(1)) == Ordering::Less {
            at.invalid(format!("ratio {ratio} is less than 1"));
        }
        if let (Some(min), Some(max)) = (&min, &max) {
            // The API counts units, or thousandths if all three have as many.
            let all = [ratio, min, max];
            let [most, given] = match all.iter().all(|one| one.value() < MILLI_MAX) {
                true => [
                    max.milli_value() as f64 / min.milli_value() as f64,
                    ratio.milli_value() as f64 / 1000.0,
                ],
                false => [max.value() as f64 / min.value() as f64, ratio.value() as f64],
            };
            if given > most {
                at.invalid(format!("ratio {ratio} is greater than max/min = {most:.6}"));
            }
        }
    }
    let overcommits = resources::is_native(name) && !resources::is_huge(name);
    if let (false, Some(default), Some(request)) = (overcommits, &default, &request)
        && default.compare(request) != Ordering::Equal
    {
        limit.entry("defaultRequest", name).invalid(format!(
            "default value {default} must equal to defaultRequest value {request} in {name}"
        ));
    }
}
