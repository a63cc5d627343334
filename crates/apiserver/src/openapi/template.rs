//! Encoded paths of custom kinds, with gaps for the names of a kind and its list.
//!
//! The paths of two custom kinds of one group version differ in these names only, if the kinds have
//! the same scope, verbs and subresources. Most of a document's time was spent on building the same
//! path for one kind after the other.

use super::path::{Path, Place};
use super::row::{Kind, Row, Sub};
use super::{Dialect, phrase, write_value};
use memchr::memmem;
use std::collections::HashMap;

/// The list of a template. No group, version, verb or subresource contains it, because these have
/// no upper case letters. Descriptions of operations do not contain it.
const LIST: &str = "NameOfTheList";

/// The kind of a template for kinds with this article, as unique, and as long as [`LIST`].
fn kind_with(article: &str) -> &'static str {
    match article {
        "a " => "NameOfTheKind",
        "an " => "AnNameOfAKind",
        _ => "NamesOfAKinds",
    }
}

/// The templates of one document.
#[derive(Debug, Default)]
pub(super) struct Templates<'a>(HashMap<Shape<'a>, Template>);

/// The parameters of a path except the names, of which only the article matters.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Shape<'a> {
    group: &'a str,
    version: &'a str,
    is_namespaced: bool,
    /// Of the kind, in descriptions.
    article: &'static str,
    verbs: &'a [&'a str],
    place: Part<'a>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Part<'a> {
    Collection,
    Everywhere,
    Item,
    /// Name, verbs, and the kind if it is not the row's.
    Sub(&'a str, &'a [&'a str], Option<Kind<'a>>),
}

/// An encoded path in parts. After each part follows a name, except after the last.
#[derive(Debug)]
struct Template {
    parts: Vec<(Vec<u8>, Name)>,
    tail: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum Name {
    Kind,
    List,
}

impl<'a> Templates<'a> {
    /// Appends a path of a v3 document. `false`: it has no template.
    pub(super) fn write(&mut self, path: &Path<'a>, out: &mut Vec<u8>) -> bool {
        let row = path.row;
        // Names as they are in JSON.
        let is_plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let has_names = is_plain(row.kind.kind) && is_plain(&row.list_kind);
        // A template is shared by rows that differ in their names only.
        let is_usual = row.has_own_schema() && !row.returns_deleted;
        if !is_usual || path.dialect != Dialect::V3 || !has_names {
            return false;
        }
        let place = match path.place {
            Place::Collection => Part::Collection,
            Place::Everywhere => Part::Everywhere,
            Place::Item => Part::Item,
            Place::Sub(sub) => {
                let other = (sub.kind != row.kind).then_some(sub.kind);
                Part::Sub(sub.name, &sub.verbs, other)
            }
            // Custom kinds do not have them.
            Place::SubPath(_)
            | Place::WatchCollection
            | Place::WatchEverywhere
            | Place::WatchItem
            | Place::Resources => return false,
        };
        let shape = Shape {
            group: row.kind.group,
            version: row.kind.version,
            is_namespaced: row.namespaced,
            article: phrase::article(row.kind.kind),
            verbs: &row.verbs,
            place,
        };
        let template = self.0.entry(shape).or_insert_with(|| Template::of(path));
        template.push(out, row);
        true
    }
}

impl Template {
    fn of(path: &Path<'_>) -> Self {
        let own = path.row.kind;
        let name = kind_with(phrase::article(own.kind));
        let kind = Kind { kind: name, ..own };
        let sub = match path.place {
            Place::Sub(sub) if sub.kind == own => Some(Sub { kind, ..sub.clone() }),
            Place::Sub(sub) => Some(sub.clone()),
            _ => None,
        };
        let row = Row {
            kind,
            list_kind: LIST.to_owned(),
            subresources: Vec::new(),
            open_api: None,
            keeps_unknown_fields: false,
            ..path.row.clone()
        };
        let place = sub.as_ref().map_or(path.place, Place::Sub);
        let mut text = Vec::new();
        write_value(&mut text, &Path { row: &row, place, ..*path }.build());
        let mut names: Vec<(usize, Name)> = memmem::find_iter(&text, name)
            .map(|at| (at, Name::Kind))
            .chain(memmem::find_iter(&text, LIST).map(|at| (at, Name::List)))
            .collect();
        names.sort_unstable_by_key(|(at, _)| *at);
        let (mut parts, mut from) = (Vec::with_capacity(names.len()), 0);
        for (at, name) in names {
            parts.push((text[from..at].to_vec(), name));
            // Both have the same length.
            from = at + LIST.len();
        }
        Self { parts, tail: text.split_off(from) }
    }

    fn push(&self, out: &mut Vec<u8>, row: &Row<'_>) {
        for (part, name) in &self.parts {
            out.extend_from_slice(part);
            out.extend_from_slice(match name {
                Name::Kind => row.kind.kind.as_bytes(),
                Name::List => row.list_kind.as_bytes(),
            });
        }
        out.extend_from_slice(&self.tail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi::Texts;
    use crate::openapi::path;
    use setpoint_registry::SchemaLanguage;

    fn row<'a>(kind: &'a str, resource: &'a str, namespaced: bool) -> Row<'a> {
        let kind = Kind { group: "a-b.example.io", version: "v1beta1", kind };
        let verbs = vec!["create", "delete", "deletecollection", "get", "list", "patch", "update"];
        let scale = Kind { group: "autoscaling", version: "v1", kind: "Scale" };
        let sub = |name, kind| Sub { name, kind, verbs: vec!["get", "patch", "update"] };
        Row {
            kind,
            list_kind: format!("{}List", kind.kind),
            resource,
            namespaced,
            verbs,
            subresources: vec![sub("scale", scale), sub("status", kind)],
            language: SchemaLanguage::OpenApi,
            has_watch_paths: false,
            returns_deleted: false,
            cbor: false,
            open_api: None,
            keeps_unknown_fields: false,
            selectable: Vec::new(),
        }
    }

    #[test]
    fn a_path_from_a_template_equals_the_one_that_is_built() {
        let mut other = row("NodeClass", "nodeclasses", false);
        (other.list_kind, other.verbs) = ("AllClasses".to_owned(), vec!["get", "list", "watch"]);
        let rows = [
            row("Widget", "widgets", true),
            row("Gadget", "gadgets", true),
            row("Cluster", "clusters", false),
            other,
            row("Issuer", "issuers", true),
            row("Rules", "rules", true),
        ];
        let mut templates = Templates::default();
        for (name, path) in path::all(&rows, Dialect::V3, Texts::PLAIN) {
            let (mut built, mut copied) = (Vec::new(), Vec::new());
            write_value(&mut built, &path.build());
            assert!(templates.write(&path, &mut copied), "{name}");
            assert_eq!(String::from_utf8(copied), String::from_utf8(built), "{name}");
        }
        // Of the five paths of a namespaced kind with each article, and the four of the others.
        assert_eq!(templates.0.len(), 3 * 5 + 4 + 4);
    }
}
