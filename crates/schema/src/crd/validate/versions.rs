//! `spec` and its versions.
use super::{
    columns, conversion, list, names, preserves_unknown_fields, schema, shown, structural, text,
};
use serde_json::Value;
use setpoint_object::field::{Error, Errors, Path, is_printable};
use setpoint_object::name;
use std::collections::{HashMap, HashSet};

/// The longest deprecation warning, in bytes. The message of the API calls them characters.
const WARNING_BYTES_MAX: usize = 256;

/// Validates the spec. `checks_bundle`: the bundle of the webhook, too.
pub(super) fn spec(crd: &Value, checks_bundle: bool, errors: &mut Errors) {
    let null = Value::Null;
    let spec = crd.get("spec").unwrap_or(&null);
    group(text(spec, "group"), errors);
    let scope = text(spec, "scope");
    if scope.is_empty() {
        errors.push(Error::required(Path::new("spec.scope"), ""));
    } else if !matches!(scope, "Cluster" | "Namespaced") {
        let path = Path::new("spec.scope");
        errors.push(Error::not_supported(path, &scope.into(), &["Cluster", "Namespaced"]));
    }
    let versions = list(crd);
    let path = Path::new("spec.versions");
    // Also those that are not served.
    for (i, version) in versions.iter().enumerate() {
        if version.pointer("/schema/openAPIV3Schema").is_none_or(Value::is_null) {
            let path = path.index(i).child("schema").child("openAPIV3Schema");
            errors.push(Error::required(path, ""));
        }
    }
    if preserves_unknown_fields(crd)
        && versions.iter().filter_map(|v| v.pointer("/schema/openAPIV3Schema")).any(has_default)
    {
        let path = Path::new("spec.preserveUnknownFields");
        let detail = "must be false in order to use defaults in the schema";
        errors.push(Error::invalid(path, &Value::Bool(true), detail));
    }
    let all = Versions::new(versions);
    for (i, version) in versions.iter().enumerate() {
        let path = path.index(i);
        let name = text(version, "name");
        if !name::dns1035_label(name).is_empty() {
            errors.push(Error::invalid(path.child("name"), &name.into(), label_problems(name)));
        }
        deprecation(version, &path, errors);
        of_version(version, &all, &path, false, errors);
    }
    lists(crd, &path, errors);
    if let Some(first) = versions.first().map(|version| text(version, "name"))
        && !first.is_empty()
        && !name::dns1035_label(first).is_empty()
    {
        let path = Path::new("spec.version");
        errors.push(Error::invalid(path, &first.into(), label_problems(first)));
    }
    names::names(spec.get("names").unwrap_or(&null), errors);
    if let Some(first) = versions.first() {
        of_version(first, &all, &Path::new("spec"), true, errors);
    }
    let strategy = spec.get("conversion").map(|conversion| text(conversion, "strategy"));
    let strategy = strategy.filter(|_| preserves_unknown_fields(crd));
    if let Some(strategy) = strategy.filter(|strategy| *strategy != "None") {
        let path = Path::new("spec.conversion.strategy");
        let detail = "must be None if spec.preserveUnknownFields is true";
        errors.push(Error::invalid(path, &strategy.into(), detail));
    }
    conversion::conversion(spec.get("conversion").unwrap_or(&null), checks_bundle, errors);
}

/// Whether a schema, or one inside it, has a default.
fn has_default(schema: &Value) -> bool {
    let several = |name: &str| schema.get(name).and_then(Value::as_array).into_iter().flatten();
    let named = |name: &str| {
        let map = schema.get(name).and_then(Value::as_object);
        map.into_iter().flat_map(|map| map.values())
    };
    let inner = ["items", "allOf", "oneOf", "anyOf"].into_iter().flat_map(several);
    let inner = inner.chain(["properties", "definitions"].into_iter().flat_map(named));
    let single = ["items", "additionalProperties", "not"].into_iter();
    let single = single.filter_map(|name| schema.get(name)).filter(|inner| inner.is_object());
    schema.get("default").is_some_and(|default| !default.is_null())
        || inner.chain(single).any(has_default)
}

fn group(group: &str, errors: &mut Errors) {
    let path = Path::new("spec.group");
    let problems = name::dns1123_subdomain(group);
    if group.is_empty() {
        errors.push(Error::required(path, ""));
    } else if !problems.is_empty() {
        errors.push(Error::invalid(path, &group.into(), problems.join(",")));
    } else if !group.contains('.') {
        errors.push(Error::invalid(
            path,
            &group.into(),
            "should be a domain with at least one dot",
        ));
    }
}

fn label_problems(name: &str) -> String {
    name::dns1035_label(name).join(",")
}

fn lists(crd: &Value, path: &Path, errors: &mut Errors) {
    let versions = list(crd);
    let mut seen: Vec<&str> = versions.iter().map(|version| text(version, "name")).collect();
    seen.sort_unstable();
    if seen.windows(2).any(|pair| pair[0] == pair[1]) {
        let shown = shown::versions(versions, &lifted(versions));
        errors.push(Error::invalid(path.clone(), &shown, "must contain unique version names"));
    }
    if storage_versions(versions).count() != 1 {
        let shown = match crd.pointer("/spec/versions") {
            Some(Value::Array(_)) => shown::versions(versions, &lifted(versions)),
            _ => Value::Null,
        };
        let detail = "must have exactly one version marked as storage version";
        errors.push(Error::invalid(path.clone(), &shown, detail));
    }
}

fn storage_versions(versions: &[Value]) -> impl Iterator<Item = &str> {
    versions
        .iter()
        .filter(|version| version.get("storage") == Some(&Value::Bool(true)))
        .map(|version| text(version, "name"))
}

/// The settings that all versions have, and have equal: the API lifts them out of the list.
fn lifted(all: &[Value]) -> Vec<&'static str> {
    let settings = ["schema", "subresources", "additionalPrinterColumns", "selectableFields"];
    let first = all.first().unwrap_or(&Value::Null);
    let is_equal = |name: &&str| all.iter().all(|other| other.get(*name) == first.get(*name));
    settings.into_iter().filter(is_equal).collect()
}

/// What must be known of all versions to look at one.
struct Versions<'v> {
    /// See [`lifted`].
    lifted: Vec<&'static str>,
    /// Whether the first version of a name has the status subresource: there the API looks it up.
    statuses: HashMap<&'v str, bool>,
    /// Whether a version has it.
    any_status: bool,
}

impl<'v> Versions<'v> {
    fn new(all: &'v [Value]) -> Self {
        let (mut statuses, mut any_status) = (HashMap::with_capacity(all.len()), false);
        for version in all {
            let has_status = version.pointer("/subresources/status").is_some();
            statuses.entry(text(version, "name")).or_insert(has_status);
            any_status |= has_status;
        }
        Self { lifted: lifted(all), statuses, any_status }
    }
}

/// Settings of a version, either its own (`lifted` false, when versions differ) or lifted (when
/// they are equal).
fn of_version(version: &Value, all: &Versions<'_>, path: &Path, lifted: bool, errors: &mut Errors) {
    let here = |name: &str| version.get(name).filter(|_| all.lifted.contains(&name) == lifted);
    if let Some(schema) = here("schema").and_then(|schema| schema.get("openAPIV3Schema")) {
        let path =
            path.child(if lifted { "validation" } else { "schema" }).child("openAPIV3Schema");
        let status = match lifted {
            true => all.any_status,
            false => all.statuses.get(text(version, "name")).is_some_and(|has_status| *has_status),
        };
        schema::validate(schema, status, &path, errors);
    }
    if let Some(subresources) = here("subresources") {
        columns::scale(subresources, &path.child("subresources"), errors);
    }
    if let Some(columns) = here("additionalPrinterColumns") {
        columns::columns(columns, &path.child("additionalPrinterColumns"), errors);
    }
    if let Some(fields) = here("selectableFields") {
        let version_path = path;
        let path = path.child("selectableFields");
        // A schema that all versions share is not that of a version.
        let schema = here("schema").and_then(|schema| schema.get("openAPIV3Schema"));
        match schema.filter(|schema| !schema.is_null()) {
            Some(schema) => {
                let has_fields = fields.as_array().is_some_and(|fields| !fields.is_empty());
                if let Some(detail) = structural::unbuilt(schema).filter(|_| has_fields) {
                    let path = version_path.child("schema.openAPIV3Schema");
                    errors.push(Error::invalid(path, &"".into(), detail));
                }
                columns::selectable(fields, schema, &path, errors);
            }
            None if fields.as_array().is_none_or(Vec::is_empty) => {}
            None => {
                let what = match lifted {
                    true => "validations.schema is included",
                    false => "`version.schema.openAPIV3Schema` is not included",
                };
                errors.push(Error::invalid(
                    path,
                    &"".into(),
                    format!("may only be set when {what}"),
                ));
            }
        }
    }
}

fn deprecation(version: &Value, path: &Path, errors: &mut Errors) {
    let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) else { return };
    let deprecated = version.get("deprecated") == Some(&Value::Bool(true));
    let unprintable = warning.char_indices().find(|(_, c)| !is_printable(*c));
    let path = path.child("deprecationWarning");
    let mut fault = |detail: String| {
        errors.push(Error::invalid(path.clone(), &warning.into(), detail));
    };
    if !deprecated {
        return fault("can only be set for deprecated versions".to_owned());
    }
    if warning.len() > WARNING_BYTES_MAX {
        fault(format!("must be <= {WARNING_BYTES_MAX} characters long"));
    }
    if warning.is_empty() {
        fault("must not be an empty string".to_owned());
    }
    if let Some((at, _)) = unprintable {
        fault(format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        ));
    }
}

/// `status.storedVersions`.
pub(super) fn stored(crd: &Value, errors: &mut Errors) {
    let versions = list(crd);
    let path = Path::new("status.storedVersions");
    let stored = crd.pointer("/status/storedVersions").and_then(Value::as_array);
    let Some(stored) = stored.filter(|stored| !stored.is_empty()) else {
        // Creation stores the storage version: only a definition without one has none.
        if storage_versions(versions).next().is_none() {
            errors.push(Error::invalid(
                path,
                &Value::Null,
                "must have at least one stored version",
            ));
        }
        return;
    };
    let known: HashSet<&str> = versions.iter().map(|version| text(version, "name")).collect();
    for (i, name) in stored.iter().filter_map(Value::as_str).enumerate() {
        if !known.contains(name) {
            errors.push(Error::invalid(
                path.index(i),
                &name.into(),
                format!(
                    "missing from spec.versions; {name} was previously a storage version, and must remain in \
                     spec.versions until a storage migration ensures no data remains persisted in {name} and \
                     removes {name} from status.storedVersions"
                ),
            ));
        }
    }
}
