//! `cargo xtask facts`: generates the tables of built-in types.
//!
//! It joins three sources by definition name:
//!
//! - the published JSON schemas of one Kubernetes release (PyPI package `kubernetes-validate`):
//!   names, types, list types, map keys, patch strategies;
//! - `crates/facts/data/fields.json`: data missing from the schemas, extracted from the Go
//!   declarations of the same release: the declared order of fields, which ones are omitted when
//!   empty, declared defaults, protobuf numbers (`cargo xtask facts --go SRC` regenerates it);
//! - `crates/facts/data/resources.json`: the served resources: verbs, names, subresources, columns.
//!
//! The output is Rust source in `crates/facts/src/generated`.

mod emit;
mod golang;
mod overrides;
mod schemas;

use crate::cargo::root;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Paths and release.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder with an installed `kubernetes_validate` package (default: a virtual environment made
    /// under target/facts).
    #[arg(long)]
    package: Option<PathBuf>,
    /// The Kubernetes release.
    #[arg(long, default_value = "1.36")]
    release: String,
    /// Go sources (a folder with `k8s.io/api`, `k8s.io/apimachinery`,
    /// `k8s.io/apiextensions-apiserver`): regenerates `crates/facts/data/fields.json` from them
    /// first.
    #[arg(long)]
    go: Option<PathBuf>,
}

/// How a field of a Go struct is encoded if no value was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Presence {
    /// Omitted if it has its zero value.
    Omitted,
    /// Omitted if absent; a given zero value is written.
    Pointer,
    /// Always written, zero value included.
    Always,
    /// Always written, as `null` if absent.
    Null,
}

/// The Go declaration of one field.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct GoField {
    /// Name on the wire.
    pub(crate) name: String,
    /// Encoding.
    pub(crate) presence: Presence,
    /// Declared default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) default: Option<serde_json::Value>,
    /// Its protobuf numbers: those of the structs it was inlined from, then its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) protobuf: Vec<u8>,
}

/// Fields by definition name, in declared order.
pub(crate) type GoFields = BTreeMap<String, Vec<GoField>>;

/// Runs the chore.
pub(crate) fn run(args: &Args) -> Result<()> {
    let root = root();
    let data = root.join("crates/facts/data");
    let package = match &args.package {
        Some(folder) => folder.clone(),
        None => schemas::install(&root.join("target/facts"))?,
    };
    let resources: Vec<emit::Resource> = read_json(&data.join("resources.json"))?;
    let definitions = schemas::read(&package, &args.release, &resources)?;
    let fields_file = data.join("fields.json");
    if let Some(sources) = &args.go {
        let fields = golang::read(sources, &definitions)?;
        write_fields(&fields_file, &fields)?;
    }
    let mut fields: GoFields = read_json(&fields_file)?;
    let mut definitions = definitions;
    overrides::apply(&mut definitions, &mut fields);
    let files = emit::emit(&definitions, &fields, &resources)?;
    let folder = root.join("crates/facts/src/generated");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    for (name, text) in &files {
        std::fs::write(folder.join(name), text)?;
    }
    println!(
        "{} definitions, {} resources, {} files",
        definitions.len(),
        resources.len(),
        files.len()
    );
    Ok(())
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("parse {}", path.display()))
}

fn write_fields(path: &Path, fields: &GoFields) -> Result<()> {
    let mut text = String::from("{\n");
    for (at, (name, list)) in fields.iter().enumerate() {
        text.push_str(&format!("{}: [\n", serde_json::to_string(name)?));
        for (at, field) in list.iter().enumerate() {
            let comma = if at + 1 == list.len() { "" } else { "," };
            text.push_str(&format!("  {}{comma}\n", serde_json::to_string(field)?));
        }
        text.push_str(if at + 1 == fields.len() { "]\n" } else { "],\n" });
    }
    text.push_str("}\n");
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}
