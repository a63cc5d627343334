//! ResourceSlices.
use super::{FORMERS, STORAGE, device, v1beta1};
use crate::features::Feature;
use crate::kind::at::{At, check};
use crate::kind::{
    Context, Fill, Kind, Members, Report, Selectable, format, list, resources, template, text,
};
use crate::table::cell;
use serde_json::Value;
use setpoint_object::GroupVersionKind;
use setpoint_object::time::Timestamp;
use setpoint_object::{field, name};

/// ResourceSlice.
pub(in crate::kind) static KIND: Kind = Kind {
    storage: STORAGE,
    formers: FORMERS,
    convert: Some(v1beta1::convert_slice),
    returns_deleted: true,
    default,
    prepare,
    validate,
    disabled: &[
        (Some(Feature::DRADeviceTaints), &["spec.devices[].taints"]),
        (
            Some(Feature::DRAPartitionableDevices),
            &[
                "spec.sharedCounters",
                "spec.perDeviceNodeSelection",
                "spec.devices[].consumesCounters",
                "spec.devices[].nodeName",
                "spec.devices[].nodeSelector",
                "spec.devices[].allNodes",
            ],
        ),
        // They need both.
        (Some(Feature::DRADeviceBindingConditions), &BINDING),
        (Some(Feature::DRAResourceClaimDeviceStatus), &BINDING),
        (
            Some(Feature::DRAConsumableCapacity),
            &["spec.devices[].allowMultipleAllocations", "spec.devices[].capacity.*.requestPolicy"],
        ),
        (
            Some(Feature::DRANodeAllocatableResources),
            &["spec.devices[].nodeAllocatableResourceMappings"],
        ),
        (
            Some(Feature::DRAListTypeAttributes),
            &[
                "spec.devices[].attributes.*.bools",
                "spec.devices[].attributes.*.ints",
                "spec.devices[].attributes.*.strings",
                "spec.devices[].attributes.*.versions",
            ],
        ),
    ],
    selectable: &[Selectable::new("spec.nodeName"), Selectable::new("spec.driver")],
    selects_namespace: false,
    unknown_label,
    cells: Some(cells),
    counts_disabled: true,
    warnings,
    update_warnings: |slice, _| warnings(slice),
    rules: "driver, pool, nodes, devices, counters, policies of capacities; immutable driver, pool and node",
    ..Kind::plain("resource.k8s.io", "ResourceSlice")
};

/// The members of devices that are bound only when conditions are met.
const BINDING: [&str; 3] = [
    "spec.devices[].bindingConditions",
    "spec.devices[].bindingFailureConditions",
    "spec.devices[].bindsToNode",
];

fn unknown_label(gvk: &GroupVersionKind, label: &str) -> String {
    format!("field label not supported for {gvk}: {label}")
}

/// Limits of a slice, as Kubernetes has them.
const DEVICES_MAX: usize = 128;
const FEATURED_DEVICES_MAX: usize = 64;
const COUNTER_SETS_MAX: usize = 8;
const COUNTERS_MAX: usize = 32;
const PROPERTIES_MAX: usize = 32;
const VALUES_MAX: usize = 48;
const CONSUMPTIONS_MAX: usize = 2;
const TAINTS_MAX: usize = 16;
const VALUE_BYTES_MAX: usize = 64;

/// A device takes as much of a resource of the node as is allocated of it.
fn default(slice: &mut Members, _version: &str) {
    let Some(spec) = slice.object("spec") else { return };
    for device in spec.each("devices") {
        let mappings = device.object("nodeAllocatableResourceMappings");
        let mappings = mappings.into_iter().flat_map(Members::values_mut);
        for mapping in mappings.filter_map(Value::as_object_mut) {
            mapping.absent("allocationMultiplier", "1");
        }
    }
}

/// Taints are dated.
fn prepare(context: &Context<'_>, slice: &mut Value, _: Option<&Value>) {
    let devices = slice.pointer_mut("/spec/devices").and_then(Value::as_array_mut);
    for device in devices.into_iter().flatten() {
        let taints = device.get_mut("taints").and_then(Value::as_array_mut);
        for taint in taints.into_iter().flatten().filter(|taint| taint["timeAdded"].is_null()) {
            taint["timeAdded"] = context.now.rfc3339().into();
        }
    }
}

/// Validates a slice: devices of one pool, whose driver and node never change.
fn validate(slice: &Value, old: Option<&Value>, errors: &mut Report) {
    check(slice, old, errors, |at| driver_and_pool(&at.get("spec")));
    if let Some(old) = old {
        check(slice, None, errors, |at| {
            at.get("spec.pool.name").immutable_text(&old["spec"]["pool"]["name"]);
            at.get("spec.driver").immutable_text(&old["spec"]["driver"]);
            at.get("spec.nodeName").immutable(&old["spec"]["nodeName"]);
        });
    }
    check(slice, old, errors, |at| rules(&at.get("spec")));
}

fn driver_and_pool(spec: &At<'_, '_>) {
    format::driver(&spec.get("driver"));
    let pool = spec.get("pool");
    device::pool_name(&pool.get("name"));
    let count = pool.int_of("resourceSliceCount");
    if count <= 0 {
        pool.get("resourceSliceCount").invalid_as(&count.into(), "must be greater than zero");
    }
    if pool.int_of("generation") < 0 {
        pool.get("generation").invalid("must be greater than or equal to zero");
    }
}

fn rules(spec: &At<'_, '_>) {
    nodes(spec);
    if spec.has("sharedCounters") && spec.has("devices") {
        spec.invalid_union("only one of `sharedCounters` or `devices` is allowed");
    }
    let devices = spec.get("devices");
    let has_features = devices.list().iter().any(|device| {
        let has_lists = |attribute: &Value| LISTS.iter().any(|member| !attribute[member].is_null());
        ["taints", "consumesCounters"].iter().any(|member| !list(device, member).is_empty())
            || device["attributes"]
                .as_object()
                .is_some_and(|all| all.iter().any(|(_, attribute)| has_lists(attribute)))
    });
    let most = if has_features { FEATURED_DEVICES_MAX } else { DEVICES_MAX };
    let has_own_nodes = spec.is("perDeviceNodeSelection");
    device::set(&devices, most, "name", |device| validate_device(device, has_own_nodes));
    device::set(&spec.get("sharedCounters"), COUNTER_SETS_MAX, "name", |set| {
        set.get("name").named(name::dns1123_label);
        counters(&set.get("counters"));
    });
}

/// Exactly one way to say which nodes have the devices.
fn nodes(spec: &At<'_, '_>) {
    let mut given = named_nodes(spec, "must be either unset or set to a non-empty string");
    if let Some(selector) = spec.given("nodeSelector") {
        let terms = selector.get("nodeSelectorTerms");
        if terms.len() != 1 {
            terms.invalid("must have exactly one node selector term");
        }
    }
    given.extend(flag(spec, "allNodes"));
    given.extend(flag(spec, "perDeviceNodeSelection"));
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    one_way(spec, &given, ONE, ", but multiple fields are set");
}

/// Exactly one way to say which nodes have a device.
fn nodes_of_device(at: &At<'_, '_>) {
    let mut given = named_nodes(at, "must not be empty");
    given.extend(flag(at, "allNodes"));
    const ONE: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
    one_way(at, &given, ONE, "");
}

/// The members that say which nodes there are, and are given: a name and a selector. `empty`: what
/// is wrong with an empty name.
fn named_nodes(at: &At<'_, '_>, empty: &str) -> Vec<&'static str> {
    let mut given = Vec::new();
    if let Some(node) = at.given("nodeName") {
        if node.text().is_empty() {
            node.invalid(empty);
        } else {
            given.push("nodeName");
            node.faults(name::dns1123_subdomain(node.text()));
        }
    }
    if let Some(selector) = at.given("nodeSelector") {
        given.push("nodeSelector");
        template::node_selector(&selector, true);
    }
    given
}

/// A member that is true, if it is given.
fn flag(at: &At<'_, '_>, member: &'static str) -> Option<&'static str> {
    let flag = at.given(member)?;
    if !at.is(member) {
        flag.invalid("must be either unset or set to true");
    }
    at.is(member).then_some(member)
}

/// One of some members is given. `several`: what is added to the rule if there are more.
fn one_way(at: &At<'_, '_>, given: &[&str], rule: &str, several: &str) {
    match given {
        [] => at.required(rule),
        [_] => {}
        _ => {
            let shown = format!("{{`{}`}}", given.join("`, `"));
            at.invalid_as(&shown.into(), format!("{rule}{several}"));
        }
    }
}

fn validate_device(at: &At<'_, '_>, has_own_nodes: bool) {
    device::name(&at.get("name"));
    let (attributes, capacity) = (at.get("attributes"), at.get("capacity"));
    let n_properties = attributes.len() + capacity.len();
    if n_properties > PROPERTIES_MAX {
        at.invalid_as(
            &n_properties.into(),
            format!(
                "the total number of attributes and capacities must not exceed {PROPERTIES_MAX}"
            ),
        );
    }
    let values = attributes.value.as_object().into_iter().flatten();
    let n_values: usize = values.map(|(_, attribute)| n_values(attribute)).sum();
    if n_values > VALUES_MAX {
        let detail = format!("the total number of attribute values must not exceed {VALUES_MAX}");
        at.invalid_as(&n_values.into(), detail);
    }
    for (name, attribute) in attributes.all() {
        device::qualified(&attributes, name);
        validate_attribute(&attributes.keyed_as(&device::shown_key(name), attribute.value));
    }
    let is_shared = at.is("allowMultipleAllocations");
    for (name, amount) in capacity.all() {
        device::qualified(&capacity, name);
        let key = device::shown_key(name);
        let amount = capacity.keyed_as(&key, amount.value);
        super::capacity::capacity(&amount, is_shared);
    }
    let taints = at.get("taints");
    if taints.at_most(TAINTS_MAX) {
        taints.items().for_each(|taint| device::taint(&taint));
    }
    device::set(&at.get("consumesCounters"), CONSUMPTIONS_MAX, "counterSet", |consumption| {
        consumption.get("counterSet").named(name::dns1123_label);
        counters(&consumption.get("counters"));
    });
    if has_own_nodes {
        nodes_of_device(at);
    } else if ["nodeName", "nodeSelector", "allNodes"].iter().any(|member| at.has(member)) {
        at.invalid_as(&Value::Null, "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec");
    }
    device::binding(at);
    let mappings = at.get("nodeAllocatableResourceMappings");
    mappings.all().for_each(|(name, entry)| mapping(&entry, name, &capacity));
}

/// How much of a resource of the node a device takes.
fn mapping(at: &At<'_, '_>, resource: &str, capacity: &At<'_, '_>) {
    if !resources::is_native(resource) {
        at.invalid_as(&resource.into(), "must be a node allocatable resource name");
    }
    let (multiplier, key) = (at.get("allocationMultiplier"), at.get("capacityKey"));
    if !multiplier.is_set() && !key.is_set() {
        at.invalid_as(
            &"".into(),
            "at least one of allocationMultiplier or capacityKey must be set",
        );
    }
    resources::positive(&multiplier, "must be positive");
    match key.text() {
        "" if key.is_set() => key.invalid("capacityKey must not be an empty string"),
        name if key.is_set() && capacity.value.get(name).is_none() => key.not_found(),
        _ => {}
    }
}

/// The members of an attribute, of which it has one.
const ATTRIBUTES: [&str; 4] = ["bool", "int", "string", "version"];
const LISTS: [&str; 4] = ["bools", "ints", "strings", "versions"];

/// The values of an attribute: a list without values counts as one.
fn n_values(attribute: &Value) -> usize {
    let listed: usize = LISTS.iter().map(|member| list(attribute, member).len()).sum();
    listed.max(1)
}

fn validate_attribute(at: &At<'_, '_>) {
    let string = |at: &At<'_, '_>| {
        if at.text().len() > VALUE_BYTES_MAX {
            at.too_long(VALUE_BYTES_MAX);
        }
    };
    let version = |at: &At<'_, '_>| {
        if !is_version(at.text()) {
            at.invalid("must be a string compatible with semver.org spec 2.0.0");
        }
        string(at);
    };
    at.given("string").iter().for_each(&string);
    at.given("version").iter().for_each(&version);
    for member in LISTS {
        let Some(values) = at.given(member) else { continue };
        if values.len() == 0 {
            values.invalid("must not be empty if specified");
        }
        match member {
            "strings" => values.items().for_each(|value| string(&value)),
            "versions" => values.items().for_each(|value| version(&value)),
            _ => {}
        }
    }
    let members = ATTRIBUTES.iter().chain(&LISTS);
    match members.filter(|member| at.has(member)).count() {
        0 => at.invalid_union("exactly one value must be specified"),
        1 => {}
        _ => at.report(|path| field::Error {
            shown: Some(shown(at.value)),
            ..field::Error::invalid(path, &Value::Null, "exactly one value must be specified")
        }),
    }
}
/// An attribute as the API shows it: a struct of Go.
fn shown(attribute: &Value) -> String {
    let members = [
        ("IntValue", "int"),
        ("BoolValue", "bool"),
        ("StringValue", "string"),
        ("VersionValue", "version"),
        ("IntValues", "ints"),
        ("BoolValues", "bools"),
        ("StringValues", "strings"),
        ("VersionValues", "versions"),
    ];
    device::shown(members.map(|(name, member)| (name, &attribute[member])))
}
/// Drivers should have lower-case names.
fn warnings(slice: &Value) -> Vec<String> {
    let driver = text(&slice["spec"], "driver");
    let warning = || {
        let driver = field::quote(driver);
        format!(
            "spec.driver: driver names should be lowercase; {driver} contains uppercase characters"
        )
    };
    (driver != driver.to_lowercase()).then(warning).into_iter().collect()
}

/// A version as semver.org has it: three numbers, then identifiers of a pre-release and of a build.
fn is_version(text: &str) -> bool {
    let (text, build) = text.split_once('+').map_or((text, None), |(t, b)| (t, Some(b)));
    let (text, before) = text.split_once('-').map_or((text, None), |(t, b)| (t, Some(b)));
    let is_number = |text: &str| {
        !text.is_empty()
            && text.bytes().all(|b| b.is_ascii_digit())
            && (text == "0" || !text.starts_with('0'))
    };
    let is_word = |text: &str| {
        !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let is_identifier =
        |text: &str| is_number(text) || is_word(text) && text.bytes().any(|b| !b.is_ascii_digit());
    text.split('.').count() == 3
        && text.split('.').all(is_number)
        && before.is_none_or(|before| before.split('.').all(is_identifier))
        && build.is_none_or(|build| build.split('.').all(is_word))
}

/// Counters by name.
fn counters(at: &At<'_, '_>) {
    if at.need() && at.at_most(COUNTERS_MAX) {
        for (name, _) in at.all() {
            for fault in name::dns1123_label(name) {
                at.invalid_as(&name.into(), fault);
            }
        }
    }
}

fn cells(object: &Value, now: Timestamp) -> Vec<Value> {
    vec![
        cell::name(object),
        cell::text(object, "spec.nodeName").into(),
        cell::text(object, "spec.driver").into(),
        cell::text(object, "spec.pool.name").into(),
        cell::age(object, now),
    ]
}
