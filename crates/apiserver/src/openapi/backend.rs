//! The parts of backends in the v2 document: their paths, and their new definitions.
//!
//! Definitions of two servers may have the same name. Equal definitions are merged. Otherwise the
//! later one gets the suffix `_v2`, or the next free number, and references to it are renamed
//! (spec: extension §1.4).

use super::row::{self, Row};
use super::{Dialect, Encoding, Texts, V2Part, V2Section, add_v2, schema};
use crate::backend::{Digest, Served, Swagger, digest};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const REFERENCE: &str = "#/definitions/";

/// The definition names in the v2 document.
pub(super) struct Names<'a> {
    served: &'a Served,
    built_in: BTreeSet<&'static str>,
    /// Names of custom definitions, with their group and version.
    custom: BTreeMap<String, (Arc<str>, Arc<str>)>,
    /// Names of the backends' definitions.
    brought: BTreeMap<String, Digest>,
}

impl<'a> Names<'a> {
    /// The names of this server's rows; `roots` are those of the built-in definitions.
    pub(super) fn new(served: &'a Served, roots: &[&'static str]) -> Self {
        let mut custom = BTreeMap::new();
        // They are needed only if there are backends.
        let is_asked = !served.backends.is_empty();
        let groups = if is_asked { &served.groups[..] } else { &[] };
        for group in groups {
            for version in &group.versions {
                if served.backend(&group.name, version).is_some() {
                    continue;
                }
                let rows = row::of_group_version(&served.catalog, &group.name, version);
                for (name, _) in super::custom_schemas(&rows, Dialect::V2) {
                    custom.insert(name, (group.name.clone(), version.clone()));
                }
            }
        }
        let built_in = schema::reachable(if is_asked { roots.to_vec() } else { Vec::new() });
        Self { served, built_in, custom, brought: BTreeMap::new() }
    }

    /// The hash of the definition with this name, if any.
    fn digest(&self, name: &str) -> Option<Digest> {
        if let Some(digest) = self.brought.get(name) {
            return Some(*digest);
        }
        if self.built_in.contains(name) {
            return Some(digest(schema::definition(name, Dialect::V2, Texts::PLAIN)));
        }
        let (group, version) = self.custom.get(name)?;
        let rows: Vec<Row<'_>> = row::of_group_version(&self.served.catalog, group, version);
        let (_, made) =
            super::custom_schemas(&rows, Dialect::V2).find(|(known, _)| known == name)?;
        Some(digest(made.make(Dialect::V2)))
    }

    /// Assigns names to the definitions of a backend.
    pub(super) fn merge(&mut self, swagger: &'a Swagger) -> Merged<'a> {
        let mut merged = Merged { swagger, renamed: BTreeMap::new(), left_out: BTreeSet::new() };
        for (name, (own, _)) in &swagger.definitions {
            let mut new = name.clone();
            let mut n = 2;
            // Terminates: the names in use are finite.
            let is_there = loop {
                match self.digest(&new) {
                    None => break false,
                    Some(known) if known == *own => break true,
                    Some(_) => new = format!("{name}_v{n}"),
                }
                n += 1;
            };
            if is_there {
                merged.left_out.insert(name);
            } else {
                self.brought.insert(new.clone(), *own);
            }
            if new != *name {
                merged.renamed.insert(name, new);
            }
        }
        merged
    }
}

/// A backend's part of the document.
#[derive(Debug)]
pub(super) struct Merged<'a> {
    swagger: &'a Swagger,
    /// New names by old ones.
    renamed: BTreeMap<&'a str, String>,
    /// Definitions that the document has already, by the new name.
    left_out: BTreeSet<&'a str>,
}

impl<'a> Merged<'a> {
    /// The ETag of all inputs.
    pub(super) fn etag(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(&self.swagger.etag);
        for (old, new) in &self.renamed {
            hash.update(format!("{old}={new};"));
        }
        for name in &self.left_out {
            hash.update(format!("{name};"));
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Builds the part in steps; the last returns it.
    pub(super) fn part(
        self,
        encoding: Encoding,
    ) -> impl Iterator<Item = Option<V2Part>> + Send + 'a {
        let mut paths = self.swagger.paths.iter();
        let mut definitions = self.swagger.definitions.iter();
        let mut part = Some(V2Part::default());
        std::iter::from_fn(move || {
            let made = part.as_mut()?;
            if let Some((path, text)) = paths.next() {
                let value = self.follow(text.get());
                add_v2(&mut made.paths, encoding, V2Section::Paths, path.clone(), &value);
            } else if let Some((name, (_, text))) = definitions.next() {
                if !self.left_out.contains(&**name) {
                    let new = self.renamed.get(&**name).unwrap_or(name).clone();
                    let value = self.follow(text.get());
                    add_v2(&mut made.definitions, encoding, V2Section::Definitions, new, &value);
                }
            } else {
                return Some(part.take());
            }
            Some(None)
        })
    }

    /// A parsed text, with its references renamed.
    fn follow(&self, text: &str) -> Value {
        let mut value = serde_json::from_str(text).unwrap_or_default();
        if !self.renamed.is_empty() {
            self.lead(&mut value);
        }
        value
    }

    fn lead(&self, value: &mut Value) {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    if let ("$ref", Value::String(reference)) = (&**name, &mut *member)
                        && let Some(old) = reference.strip_prefix(REFERENCE)
                        && let Some(new) = self.renamed.get(old)
                    {
                        *reference = format!("{REFERENCE}{new}");
                    } else {
                        self.lead(member);
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.lead(item)),
            _ => {}
        }
    }
}
