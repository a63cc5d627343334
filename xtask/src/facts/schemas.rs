//! Downloads the published schemas and selects the needed definitions.

use super::emit::Resource;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Definitions by reverse-domain name.
pub(crate) type Definitions = BTreeMap<String, Value>;

/// The version of the package the tables are generated from.
const PACKAGE: &str = "kubernetes-validate>=1.37,<1.38";
/// Prefix of a reference to a definition.
const REFERENCE: &str = "#/$defs/";

/// Installs the package into a virtual environment below `folder` and returns the package's folder.
pub(crate) fn install(folder: &Path) -> Result<PathBuf> {
    let packages = folder.join("packages");
    if !packages.join("kubernetes_validate").exists() {
        let venv = folder.join("venv");
        command(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
        let mut pip = Command::new(venv.join("bin/pip"));
        pip.args(["install", "--quiet", "--no-deps", "--target"]).arg(&packages).arg(PACKAGE);
        command(&mut pip)?;
    }
    Ok(packages)
}

fn command(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("run {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}

/// The definitions of `release` that the served resources refer to, and those of meta/v1.
pub(crate) fn read(package: &Path, release: &str, resources: &[Resource]) -> Result<Definitions> {
    let path = package
        .join("kubernetes_validate/kubernetes-json-schema")
        .join(format!("v{release}.0-local/_definitions.json"));
    let mut file: Value = super::read_json(&path)?;
    let Some(Value::Object(all)) = file.get_mut("$defs").map(Value::take) else {
        bail!("{} has no $defs", path.display())
    };
    let mut served = BTreeSet::new();
    for row in resources {
        served.insert((row.group.clone(), row.version.clone(), row.kind.clone()));
        served.insert((row.group.clone(), row.version.clone(), format!("{}List", row.kind)));
        for sub in &row.subresources {
            served.insert(sub.kind.clone());
        }
    }
    let mut selected = BTreeSet::new();
    let mut pending: Vec<String> = all
        .iter()
        .filter(|(name, definition)| {
            name.starts_with("io.k8s.apimachinery.pkg.apis.meta.v1.")
                || kinds(definition).iter().any(|kind| served.contains(kind))
        })
        .map(|(name, _)| name.clone())
        .collect();
    while let Some(name) = pending.pop() {
        let definition = all.get(&name).with_context(|| format!("definition {name}"))?;
        if selected.insert(name) {
            references(definition, &mut pending);
        }
    }
    Ok(all.into_iter().filter(|(name, _)| selected.contains(name)).collect())
}

/// The (group, version, kind)s that a definition is the body of.
pub(crate) fn kinds(definition: &Value) -> Vec<(String, String, String)> {
    let text = |value: &Value, key: &str| {
        value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    definition
        .get("x-kubernetes-group-version-kind")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|kind| (text(kind, "group"), text(kind, "version"), text(kind, "kind")))
        .collect()
}

/// The name a schema refers to.
pub(crate) fn reference(schema: &Value) -> Option<&str> {
    schema.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix(REFERENCE))
}

fn references(schema: &Value, out: &mut Vec<String>) {
    match schema {
        Value::Object(members) => {
            out.extend(reference(schema).map(str::to_owned));
            members.values().for_each(|value| references(value, out));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, out)),
        _ => {}
    }
}
