//! How expressions see a node.

use crate::node::{self, Shape, View};
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
    let of_resource = ["apiVersion", "kind", "metadata"];
    let declared = view.node().properties.iter();
    let declared = declared.filter(|(property, _)| !root || !of_resource.contains(&&**property));
    let mut properties: Vec<Property> = declared
        .map(|(property, id)| {
            let member = view.at(*id);
            Property {
                decl: declare(member, member.embedded_resource, &format!("{name}.{property}")),
                required: view.required.contains(property),
                defaulted: member.default.is_some(),
                name: property.clone().into_owned(),
            }
        })
        .collect();
    if root {
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
