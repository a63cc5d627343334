//! Reads the Go declarations of the API types: declared order, fields omitted when empty, declared
//! defaults, protobuf numbers.
//!
//! Not a full Go parser: the API packages are gofmt'ed and have one field per line.

use super::schemas::Definitions;
use super::{GoField, GoFields, Presence};
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Maximum nesting of inlined structs.
const INLINE_MAX: usize = 8;

/// One package: its types and string constants.
#[derive(Debug, Default)]
struct Package {
    types: BTreeMap<String, Declared>,
    constants: BTreeMap<String, String>,
}
#[derive(Debug)]
enum Declared {
    Struct(Vec<Member>),
    /// `type ResourceList map[…]…`, `type Verbs []string`.
    Collection,
    /// `type Rule = v1.Rule`: import path and name.
    Alias(String, String),
    Scalar,
}
#[derive(Debug, Clone)]
struct Member {
    /// Import path (empty: same package) and name of the type; `*`, `[]` and `map[` are recorded in
    /// `form`.
    path: String,
    ty: String,
    form: Form,
    json: String,
    /// The protobuf number in the tag; `None` without one.
    protobuf: Option<u8>,
    default: Option<String>,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Value,
    Pointer,
    Collection,
}

/// Reads the declarations of `definitions`.
pub(crate) fn read(sources: &Path, definitions: &Definitions) -> Result<GoFields> {
    let mut packages: BTreeMap<String, Package> = BTreeMap::new();
    let mut out = GoFields::new();
    for name in definitions.keys() {
        let Some((path, ty)) = go_name(name) else { continue };
        load(sources, &path, &mut packages)?;
        if !matches!(declared(&packages, &path, &ty), Some(Declared::Struct(_))) {
            continue;
        }
        let mut fields = Vec::new();
        collect(sources, &path, &ty, &mut packages, &mut fields, Some(&[]), 0)?;
        out.insert(name.clone(), fields);
    }
    Ok(out)
}

/// `io.k8s.api.core.v1.Pod` → (`k8s.io/api/core/v1`, `Pod`).
fn go_name(name: &str) -> Option<(String, String)> {
    let (package, ty) = name.strip_prefix("io.k8s.")?.rsplit_once('.')?;
    // The published names already shorten groups such as `rbac.authorization.k8s.io` to the Go
    // package's last word.
    Some((format!("k8s.io/{}", package.replace('.', "/")), ty.to_owned()))
}

fn declared<'a>(
    packages: &'a BTreeMap<String, Package>,
    path: &str,
    ty: &str,
) -> Option<&'a Declared> {
    packages.get(path)?.types.get(ty)
}

fn load(sources: &Path, path: &str, packages: &mut BTreeMap<String, Package>) -> Result<()> {
    if packages.contains_key(path) {
        return Ok(());
    }
    let mut package = Package::default();
    let folder = sources.join(path);
    if folder.is_dir() {
        let mut files: Vec<_> =
            std::fs::read_dir(&folder)?.collect::<std::io::Result<Vec<_>>>()?.into_iter().collect();
        files.sort_by_key(std::fs::DirEntry::file_name);
        for file in files {
            let name = file.file_name().to_string_lossy().into_owned();
            if name.ends_with(".go") && !name.ends_with("_test.go") && !name.starts_with("zz_") {
                let text = std::fs::read_to_string(file.path())
                    .with_context(|| format!("read {}", file.path().display()))?;
                parse(&text, &mut package);
            }
        }
    }
    packages.insert(path.to_owned(), package);
    Ok(())
}

fn parse(text: &str, package: &mut Package) {
    let mut imports: BTreeMap<String, String> = BTreeMap::new();
    let mut lines = text.lines();
    let mut default = None;
    while let Some(line) = lines.next() {
        let bare = line.trim();
        if let Some((alias, path)) = import(bare) {
            imports.insert(alias, path);
        }
        if let Some((name, value)) = constant(bare) {
            package.constants.insert(name, value);
        }
        let Some(rest) = line.strip_prefix("type ") else { continue };
        let Some((name, form)) = rest.split_once(' ') else { continue };
        if form != "struct {" {
            let other = form.strip_prefix("= ").and_then(|form| form.split_once('.'));
            let kind = if let Some((path, ty)) =
                other.and_then(|(alias, ty)| Some((imports.get(alias)?.clone(), ty.to_owned())))
            {
                Declared::Alias(path, ty)
            } else if form.starts_with("map[") || form.starts_with("[]") {
                Declared::Collection
            } else if form.starts_with("struct") {
                Declared::Struct(Vec::new())
            } else {
                Declared::Scalar
            };
            package.types.insert(name.to_owned(), kind);
            continue;
        }
        let mut members = Vec::new();
        for line in lines.by_ref() {
            if line == "}" {
                break;
            }
            let bare = line.trim();
            if let Some(comment) = bare.strip_prefix("//") {
                if let Some(value) = comment.trim().strip_prefix("+default=") {
                    default = Some(value.to_owned());
                }
                continue;
            }
            if let Some(member) = member(bare, &imports, default.take()) {
                members.push(member);
            }
        }
        package.types.insert(name.to_owned(), Declared::Struct(members));
    }
}

fn import(line: &str) -> Option<(String, String)> {
    let (alias, rest) = line.split_once('"')?;
    let path = rest.strip_suffix('"')?;
    if !path.starts_with("k8s.io/") {
        return None;
    }
    let alias = alias.trim().trim_start_matches("import").trim();
    let alias = if alias.is_empty() { path.rsplit('/').next()? } else { alias };
    Some((alias.to_owned(), path.to_owned()))
}

fn constant(line: &str) -> Option<(String, String)> {
    let (left, right) = line.split_once(" = \"")?;
    let value = right.strip_suffix('"')?;
    Some((left.split_whitespace().next()?.to_owned(), value.to_owned()))
}

fn member(
    line: &str,
    imports: &BTreeMap<String, String>,
    default: Option<String>,
) -> Option<Member> {
    let (code, tag) = line.split_once('`')?;
    let json = tag.split_once("json:\"")?.1.split_once('"')?.0.to_owned();
    // `protobuf:"bytes,2,opt,name=volumeSource"`
    let protobuf =
        tag.split_once("protobuf:\"").and_then(|(_, rest)| rest.split(',').nth(1)?.parse().ok());
    let words: Vec<&str> = code.split_whitespace().collect();
    let ty = *words.last()?;
    let (form, ty) = if let Some(rest) = ty.strip_prefix('*') {
        (Form::Pointer, rest)
    } else if ty.starts_with("[]") || ty.starts_with("map[") {
        (Form::Collection, ty)
    } else {
        (Form::Value, ty)
    };
    let (path, ty) = match ty.split_once('.') {
        Some((alias, name)) if form != Form::Collection => {
            (imports.get(alias).cloned().unwrap_or_else(|| alias.to_owned()), name)
        }
        _ => (String::new(), ty),
    };
    Some(Member { path, ty: ty.to_owned(), form, json, protobuf, default })
}

fn collect(
    sources: &Path,
    path: &str,
    ty: &str,
    packages: &mut BTreeMap<String, Package>,
    out: &mut Vec<GoField>,
    // `None` if inlined from a struct without protobuf fields (`TypeMeta`, which is in the
    // envelope).
    protobuf: Option<&[u8]>,
    depth: usize,
) -> Result<()> {
    anyhow::ensure!(depth < INLINE_MAX, "{path}.{ty} inlines too deep");
    load(sources, path, packages)?;
    let members = match declared(packages, path, ty) {
        Some(Declared::Struct(members)) => members.clone(),
        Some(Declared::Alias(path, ty)) => {
            let (path, ty) = (path.clone(), ty.clone());
            return collect(sources, &path, &ty, packages, out, protobuf, depth + 1);
        }
        _ => return Ok(()),
    };
    for member in members {
        let owner = if member.path.is_empty() { path.to_owned() } else { member.path.clone() };
        let mut parts = member.json.split(',');
        let name = parts.next().unwrap_or_default().to_owned();
        let options: Vec<&str> = parts.collect();
        if name == "-" {
            continue;
        }
        // A named list is a message with its items in field 1; no other struct in JSON has one.
        let items: &[u8] = if member.ty == "Verbs" { &[1] } else { &[] };
        let number =
            protobuf.zip(member.protobuf).map(|(way, number)| [way, &[number], items].concat());
        if name.is_empty() {
            collect(sources, &owner, &member.ty, packages, out, number.as_deref(), depth + 1)?;
            continue;
        }
        load(sources, &owner, packages)?;
        let form = match (member.form, declared(packages, &owner, &member.ty)) {
            (Form::Value, Some(Declared::Collection)) => Form::Collection,
            (form, _) => form,
        };
        let is_struct = matches!(declared(packages, &owner, &member.ty), Some(Declared::Struct(_)));
        let time = member.ty == "Time"
            || member.ty == "MicroTime"
            || member.ty == "RawExtension"
            || member.ty == "JSON";
        let empty = options.contains(&"omitempty");
        let zero = options.contains(&"omitzero");
        let presence = match form {
            Form::Pointer if empty || zero => Presence::Pointer,
            Form::Pointer => Presence::Null,
            Form::Collection if empty || zero => Presence::Omitted,
            Form::Collection => Presence::Null,
            Form::Value if is_struct && zero => Presence::Omitted,
            Form::Value if is_struct && time => Presence::Null,
            Form::Value if is_struct => Presence::Always,
            Form::Value if empty || zero => Presence::Omitted,
            Form::Value => Presence::Always,
        };
        let default = member.default.as_deref().and_then(|text| {
            let value = match text.strip_prefix("ref(").and_then(|text| text.strip_suffix(')')) {
                Some(constant) => {
                    Value::String(packages.get(path)?.constants.get(constant)?.clone())
                }
                None => serde_json::from_str(text).ok()?,
            };
            let zero = [Value::from(""), Value::from(0), Value::from(false)].contains(&value);
            (!(zero && presence == Presence::Omitted)).then_some(value)
        });
        out.push(GoField { name, presence, default, protobuf: number.unwrap_or_default() });
    }
    Ok(())
}
