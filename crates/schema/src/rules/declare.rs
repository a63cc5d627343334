//! How expressions see a node.

use crate::node::{self, Scalar, Shape, TYPE_AND_METADATA, TypeSchema, View};
use serde_json::Value;
use setpoint_cel::decl::{DeclType, ListType, Property};

/// The type of a node, with sizes; none if expressions cannot see it. `root`: it is the root of a
/// resource, of which they see names and type. `name` is the name of its type.
pub(crate) fn declare(view: View<'_>, root: bool, name: &str) -> Option<DeclType> {
    let validation = view.node().validation.as_deref();
    let max_length = validation.and_then(|v| v.max_length);
    Some(match view.shape {
        Shape::Any => return None,
        Shape::IntOrString => DeclType::int_or_string(max_length),
        Shape::Boolean => DeclType::bool(),
        Shape::Integer => DeclType::int(),
        Shape::Number => DeclType::double(),
        Shape::String => {
            let values = validation.map_or(&[][..], |v| v.enumeration.as_slice());
            let values = values.iter().filter_map(Value::as_str);
            DeclType::text(view.format.as_deref(), max_length, values)
        }
        Shape::Array => {
            let items = view.items()?;
            let items = declare(items, items.embedded_resource, &format!("{name}.@idx"))?;
            let list = match &view.node().list_type {
                node::ListType::Atomic => ListType::Atomic,
                node::ListType::Set => ListType::Set,
                node::ListType::Map(keys) => {
                    ListType::Map(keys.iter().map(|key| key.clone().into_owned()).collect())
                }
            };
            DeclType::list(items, list, validation.and_then(|v| v.max_items))
        }
        Shape::Object => match view.additional {
            Some(values) => {
                let values = view.at(values);
                let values = declare(values, values.embedded_resource, &format!("{name}.@elem"))?;
                DeclType::map(values, validation.and_then(|v| v.max_properties))
            }
            None => object(view, root || view.embedded_resource, name),
        },
    })
}

fn object(view: View<'_>, root: bool, name: &str) -> DeclType {
    let is_hidden = |name: &str| TYPE_AND_METADATA.contains(&name);
    let is_replaced = root && !sees_declared(view);
    let declared = view.declared().filter(|property| !is_replaced || !is_hidden(&property.name));
    let mut properties: Vec<Property> = declared
        .map(|property| {
            let member = view.at(property.id);
            let path = format!("{name}.{}", property.name);
            Property {
                decl: declare(member, member.embedded_resource, &path),
                required: view.required.contains(&property.name),
                defaulted: member.default.is_some(),
                name: property.name.clone().into_owned(),
            }
        })
        .collect();
    if is_replaced {
        let is_required = |name: &str| view.required.iter().any(|required| required == name);
        let text = || DeclType::text(None, None, std::iter::empty());
        let property = |name: &str, decl, required| Property {
            name: name.to_owned(),
            decl: Some(decl),
            required,
            defaulted: false,
        };
        let names = ["name", "generateName"].map(|name| property(name, text(), false));
        let metadata = DeclType::object(format!("{name}.metadata"), names);
        properties.push(property("apiVersion", text(), is_required("apiVersion")));
        properties.push(property("kind", text(), is_required("kind")));
        properties.push(property("metadata", metadata, is_required("metadata")));
    }
    DeclType::object(name.to_owned(), properties)
}

/// Whether expressions see type and metadata of a resource as the definition declares them, with
/// their bounds and all declared fields of `metadata`. The API does that only if type and both
/// names are declared.
fn sees_declared(view: View<'_>) -> bool {
    let is_text = |member: Option<View<'_>>| member.is_some_and(|m| m.shape == Shape::String);
    let metadata = view.declared_property("metadata").filter(|m| m.shape == Shape::Object);
    ["kind", "apiVersion"].into_iter().all(|name| is_text(view.declared_property(name)))
        && metadata.is_some_and(|metadata| {
            ["name", "generateName"].into_iter().all(|name| is_text(metadata.property(name)))
        })
}

/// How expressions of admission policies see a whole object of a type: all of `metadata`, and what
/// is not declared as dynamic values. `kind` is the name of the type.
pub fn object_type(schema: &TypeSchema, kind: &str) -> DeclType {
    whole(schema.view(), true, kind, &mut Vec::new())
}

/// `around`: the named types that the node is part of. A type that is part of itself is dynamic
/// there.
fn whole<'s>(view: View<'s>, root: bool, name: &str, around: &mut Vec<&'s str>) -> DeclType {
    let own = view.node().type_name.as_deref();
    let dynamic = || DeclType::int_or_string(None);
    if own.is_some_and(|own| around.contains(&own)) {
        return dynamic();
    }
    around.extend(own);
    let decl = match view.shape {
        Shape::Array => match view.items() {
            Some(items) => {
                let items = whole(items, items.embedded_resource, &format!("{name}.@idx"), around);
                DeclType::list(items, ListType::Atomic, None)
            }
            None => dynamic(),
        },
        Shape::Object => match view.additional {
            Some(values) => {
                DeclType::map(whole(view.at(values), false, &format!("{name}.@elem"), around), None)
            }
            None if view.node().properties.is_empty() || view.preserve_unknown => dynamic(),
            None => whole_object(view, root, name, around),
        },
        Shape::String if view.format.is_none() => {
            // Built-in types have no formats: their times and bytes are types.
            let format = match view.scalar {
                Scalar::Time | Scalar::MicroTime => Some("date-time"),
                Scalar::Bytes => Some("byte"),
                _ => None,
            };
            DeclType::text(format, None, std::iter::empty())
        }
        _ => declare(view, false, name).unwrap_or_else(dynamic),
    };
    if own.is_some() {
        around.pop();
    }
    decl
}

fn whole_object<'s>(view: View<'s>, root: bool, name: &str, around: &mut Vec<&'s str>) -> DeclType {
    let property = |property: &str, decl| Property {
        name: property.to_owned(),
        decl: Some(decl),
        required: false,
        defaulted: false,
    };
    let mut properties: Vec<Property> = Vec::new();
    for declared in &view.node().properties {
        let member = &*declared.name;
        if !(root && TYPE_AND_METADATA.contains(&member)) {
            let decl = whole(view.at(declared.id), false, &format!("{name}.{member}"), around);
            properties.push(property(member, decl));
        }
    }
    if root {
        let text = || DeclType::text(None, None, std::iter::empty());
        let metadata = crate::builtin::object_meta();
        let metadata = whole(metadata.view(), false, &format!("{name}.metadata"), &mut Vec::new());
        properties.push(property("apiVersion", text()));
        properties.push(property("kind", text()));
        properties.push(property("metadata", metadata));
    }
    DeclType::object(name.to_owned(), properties)
}
