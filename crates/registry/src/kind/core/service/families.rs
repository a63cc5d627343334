//! Families of addresses: what a Service gets that leaves some of its addresses, families and their
//! policy open, and what a control plane cannot give it. The rules are those of kube-apiserver.
//!
//! | policy | families |
//! |---|---|
//! | `SingleStack` | one: that of the address, else the primary one |
//! | `PreferDualStack` | both if the control plane has both; an update leaves them alone |
//! | `RequireDualStack` | both |
//!
//! A Service without addresses and without selector may have any families: who writes its endpoints
//! knows them.
use super::{is_external, rules};
use crate::kind::{Context, Report, list, text};
use serde_json::{Map, Value, json};
use setpoint_object::cidr::{Families, Family, parse_address};
use setpoint_object::field;
use std::borrow::Cow;

const SINGLE: &str = "SingleStack";
const PREFER: &str = "PreferDualStack";
const REQUIRE: &str = "RequireDualStack";

/// Brings `clusterIP` and `clusterIPs` in line for clients that know only the first.
pub(super) fn normalize(service: &mut Value, old: Option<&Value>) {
    let address = text(&service["spec"], "clusterIP").to_owned();
    let given = list(&service["spec"], "clusterIPs");
    let wanted = match old.map(|old| &old["spec"]) {
        None if !address.is_empty() && given.is_empty() => json!([address]),
        None => return,
        Some(old) if address == text(old, "clusterIP") => match old.get("clusterIPs") {
            Some(before) if given.is_empty() => before.clone(),
            _ => return,
        },
        Some(old) if list(old, "clusterIPs") != given => return,
        Some(_) if address.is_empty() => Value::Null,
        Some(_) => json!([address]),
    };
    set(service, "clusterIPs", wanted);
}

/// A stored Service with the families that one has which was stored before there were any.
pub(crate) fn completed(service: &Value, families: Families) -> Cow<'_, Value> {
    let spec = &service["spec"];
    if is_external(service) || !list(spec, "ipFamilies").is_empty() {
        return Cow::Borrowed(service);
    }
    let mut completed = service.clone();
    normalize(&mut completed, None);
    let primary = families.primary;
    let spec = &completed["spec"];
    let (names, policy) = match text(spec, "clusterIP") {
        "None" if has_selector(spec) => (vec![primary], SINGLE),
        "None" => (vec![primary, primary.other()], REQUIRE),
        _ => {
            let addresses = list(spec, "clusterIPs").iter().filter_map(Value::as_str);
            let names: Vec<Family> = addresses.map(family_of).collect();
            let policy = if names.len() == 2 { REQUIRE } else { SINGLE };
            (names, policy)
        }
    };
    if !names.is_empty() {
        let names: Vec<&str> = names.into_iter().map(Family::as_str).collect();
        set(&mut completed, "ipFamilies", names.into());
        set(&mut completed, "ipFamilyPolicy", policy.into());
    }
    Cow::Owned(completed)
}

/// Whether an update leaves the families and addresses of a Service as they are, although a new one
/// would have others: a control plane that has got a second family does not change Services that
/// prefer two.
pub(crate) fn keeps_addresses(service: &Value, old: &Value) -> bool {
    let (spec, before) = (&service["spec"], &old["spec"]);
    text(spec, "type") == text(before, "type")
        && matches!(text(spec, "type"), "ClusterIP" | "NodePort" | "LoadBalancer")
        && spec["ipFamilyPolicy"] == PREFER
        && (before["ipFamilyPolicy"].is_null() || before["ipFamilyPolicy"] == PREFER)
        && is_same(spec, before, "clusterIPs")
        && is_same(spec, before, "ipFamilies")
}

/// Completes the policy and the families.
pub(super) fn begin(
    context: &Context<'_>,
    service: &mut Value,
    old: Option<&Value>,
    errors: &mut Report,
) {
    let old = old.map(|old| completed(old, context.families));
    let old = old.as_deref();
    if is_external(service) || old.is_some_and(|old| keeps_addresses(service, old)) {
        return;
    }
    if service["spec"]["ipFamilyPolicy"].is_null() {
        let policy = match old.map(|old| &old["spec"]["ipFamilyPolicy"]) {
            Some(before) if !before.is_null() => before.clone(),
            _ if is_bare_headless(&service["spec"]) => REQUIRE.into(),
            _ => SINGLE.into(),
        };
        set(service, "ipFamilyPolicy", policy);
    }
    rules::validate_addresses(service, old, errors);
    if !errors.is_empty() {
        return;
    }
    let Some(spec) = service.get_mut("spec") else { return };
    if let Some(old) = old {
        change(spec, &old["spec"], errors);
    }
    fit_policy(spec, errors);
    infer(spec, context.families, errors);
    if errors.is_empty() {
        complete(spec, context.families, errors);
    }
}

/// A change of the policy alone releases the second address and family; without one, they stay.
fn change(spec: &mut Value, before: &Value, errors: &mut Report) {
    let members = [
        ("clusterIPs", "must be 'SingleStack' to release the secondary cluster IP"),
        ("ipFamilies", "must be 'SingleStack' to release the secondary IP family"),
    ];
    let is_single = spec["ipFamilyPolicy"] == SINGLE;
    for (member, refusal) in members {
        let (new, old) = (list(spec, member).len(), list(before, member).len());
        if is_single && new > 1 && is_same(spec, before, member) {
            if let Some(list) = spec[member].as_array_mut() {
                list.truncate(1);
            }
        } else if !is_single && new > 0 && new < old {
            errors.push(invalid_policy(spec, refusal));
        }
    }
}

/// One family has one address.
fn fit_policy(spec: &Value, errors: &mut Report) {
    if spec["ipFamilyPolicy"] != SINGLE {
        return;
    }
    for (member, noun) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
        if list(spec, member).len() == 2 {
            let refusal = format!(
                "must be 'RequireDualStack' or 'PreferDualStack' when multiple {noun} are specified"
            );
            errors.push(invalid_policy(spec, &refusal));
        }
    }
}

/// Addresses tell their families.
fn infer(spec: &mut Value, families: Families, errors: &mut Report) {
    let mut names: Vec<Value> = list(spec, "ipFamilies").to_vec();
    let n_given = names.len();
    let addresses = list(spec, "clusterIPs").iter().filter_map(Value::as_str);
    for (i, address) in addresses.enumerate().skip(n_given).take_while(|(_, text)| *text != "None")
    {
        let family = family_of(address);
        if families.has(family) {
            names.push(family.as_str().into());
        } else {
            let path = field::Path::new("spec.clusterIPs").index(i);
            let refusal = format!("{family} is not configured on this cluster");
            errors.push(field::Error::invalid(path, &spec["clusterIPs"], refusal));
        }
    }
    if names.len() > n_given {
        set_spec(spec, "ipFamilies", names.into());
    }
}

/// Adds the families that the policy asks for.
fn complete(spec: &mut Value, families: Families, errors: &mut Report) {
    let mut names: Vec<Value> = list(spec, "ipFamilies").to_vec();
    let is_any = is_bare_headless(spec);
    if !is_any {
        if spec["ipFamilyPolicy"] == REQUIRE && !families.is_dual {
            let refusal = "this cluster is not configured for dual-stack services";
            errors.push(invalid_policy(spec, refusal));
        }
        for (i, name) in names.iter().enumerate() {
            let family = name.as_str().and_then(Family::named);
            if !family.is_some_and(|family| families.has(family)) {
                let path = field::Path::new("spec.ipFamilies").index(i);
                let refusal = "not configured on this cluster";
                errors.push(field::Error::invalid(path, name, refusal));
            }
        }
        if !errors.is_empty() {
            return;
        }
    }
    if names.is_empty() {
        names.push(families.primary.as_str().into());
    }
    if spec["ipFamilyPolicy"] != SINGLE
        && (is_any || families.is_dual)
        && let [one] = &*names
        && let Some(one) = one.as_str().and_then(Family::named)
    {
        names.push(one.other().as_str().into());
    }
    set_spec(spec, "ipFamilies", names.into());
}

fn has_selector(spec: &Value) -> bool {
    spec["selector"].as_object().is_some_and(|selector| !selector.is_empty())
}

fn is_bare_headless(spec: &Value) -> bool {
    text(spec, "clusterIP") == "None" && !has_selector(spec)
}

/// The family of an address that is well-formed.
fn family_of(address: &str) -> Family {
    match parse_address(address) {
        Some(address) => Family::of(address),
        None if address.contains(':') => Family::V6,
        None => Family::V4,
    }
}

/// Whether two lists are the same; a missing one is empty.
fn is_same(spec: &Value, before: &Value, member: &str) -> bool {
    list(spec, member) == list(before, member)
}

fn invalid_policy(spec: &Value, detail: &str) -> field::Error {
    field::Error::invalid(field::Path::new("spec.ipFamilyPolicy"), &spec["ipFamilyPolicy"], detail)
}

/// Sets a member of the spec; null removes it.
fn set(service: &mut Value, member: &str, value: Value) {
    if let Some(spec) = service.get_mut("spec") {
        set_spec(spec, member, value);
    }
}

fn set_spec(spec: &mut Value, member: &str, value: Value) {
    let Some(spec): Option<&mut Map<String, Value>> = spec.as_object_mut() else { return };
    match value {
        Value::Null => _ = spec.remove(member),
        value => _ = spec.insert(member.to_owned(), value),
    }
}
