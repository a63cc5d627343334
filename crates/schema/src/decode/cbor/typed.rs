//! Bodies that become the struct of a built-in kind.

use super::super::{DecodeError, go_type, scalar};
use super::Typed;
use super::value::{Fault, Keys, Later, Tree, not_a_struct, signed};
use super::wire::{Kind, Reader};
use crate::node::{Scalar, Shape, View};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ciborium_ll::Header;
use serde_json::{Map, Value};

pub(super) fn decode(reader: Reader<'_>, schema: View<'_>) -> Result<Typed, DecodeError> {
    let mut tree = Tree::new(reader);
    // Unlike the members of a struct, an object of its own is named by its package.
    tree.root = go_type::of_field(schema, "", "");
    let value = tree.typed(schema, None, "", "").map_err(|fault| fault.at("value"))?;
    let value = if value.is_null() { Value::Object(Map::new()) } else { value };
    let unknown =
        tree.unknown.map(|index| format!("cbor: found unknown field at map element index {index}"));
    Ok(Typed { value, unknown })
}

impl Tree<'_> {
    /// A value of a built-in type. `owner` and `field` name the place: some types have their own
    /// names.
    fn typed(
        &mut self,
        schema: View<'_>,
        later: Option<Later>,
        owner: &str,
        field: &str,
    ) -> Result<Value, Fault> {
        if self.is_null()? {
            return self.null();
        }
        if schema.shape == Shape::Any && schema.scalar == Scalar::Plain {
            return self.free(schema, later);
        }
        let (later, _) = self.tags(later, false)?;
        if self.is_null()? {
            return self.null();
        }
        let found = self.reader.kind()?;
        let named = || go_type::of_field(schema, owner, field);
        match schema.scalar {
            Scalar::Int32 => return self.typed_integer(found, "int32"),
            Scalar::Int64 => return self.typed_integer(found, "int64"),
            Scalar::Bytes => return self.typed_bytes(found, later),
            Scalar::Quantity | Scalar::Time | Scalar::MicroTime | Scalar::Duration => {
                return self.text(later).map(Value::String);
            }
            Scalar::Plain => {}
        }
        match (schema.shape, found) {
            (Shape::String, Kind::Bytes | Kind::Text) => self.text(later).map(Value::String),
            (Shape::IntOrString, Kind::Bytes | Kind::Text) => self.text(later).map(Value::String),
            (Shape::IntOrString, _) => self.typed_integer(found, "int32"),
            (Shape::Integer, _) => self.typed_integer(found, "int64"),
            (Shape::Number, Kind::Positive | Kind::Negative) => self.any(later),
            (Shape::Number | Shape::Boolean, Kind::Primitives) => {
                let ahead = self.reader;
                match (schema.shape, self.any(later)?) {
                    (Shape::Number, value @ Value::Number(_))
                    | (Shape::Boolean, value @ Value::Bool(_)) => Ok(value),
                    _ => {
                        self.reader = ahead;
                        Err(self.mismatch(found, named()))
                    }
                }
            }
            (Shape::Array, Kind::Array) => {
                self.budget.value(0)?;
                let (mut left, mut items) = (self.pairs()?, Vec::new());
                let item = schema.items();
                while left.next(&mut self.reader).is_some() {
                    items.push(match item {
                        Some(item) => self.typed(item, later, owner, field)?,
                        None => self.any(later)?,
                    });
                }
                Ok(Value::Array(items))
            }
            (Shape::Object, Kind::Map) if !schema.properties.is_empty() => {
                self.structure(schema, later)
            }
            (Shape::Object, Kind::Map) => match schema.additional {
                Some(values) => self.members(later, |tree, later| {
                    tree.typed(schema.at(values), later, owner, field)
                }),
                None => self.map(later),
            },
            (Shape::Object, _) if !schema.properties.is_empty() => {
                Err(not_a_struct(found, named()))
            }
            _ => Err(self.mismatch(found, named())),
        }
    }

    fn null(&mut self) -> Result<Value, Fault> {
        self.budget.value(0)?;
        self.reader.skip()?;
        Ok(Value::Null)
    }

    /// A struct: keys are names of fields.
    fn structure(&mut self, schema: View<'_>, later: Option<Later>) -> Result<Value, Fault> {
        self.budget.value(0)?;
        let owner = schema.node().type_name.as_deref().unwrap_or_default();
        let is_root = self.member.is_empty();
        let before = self.unknown.take();
        let (mut own, mut keys, mut members) = (None, Keys::default(), Map::new());
        let mut pairs = self.pairs()?;
        while let Some(index) = pairs.next(&mut self.reader) {
            let key = keys.add(self, index)?;
            let name = key.name();
            let Some(property) = schema.property(name) else {
                own = own.or(Some(index));
                self.reader.skip()?;
                continue;
            };
            if is_root {
                name.clone_into(&mut self.member);
            }
            self.budget.member(members.len(), name.len())?;
            let read = self.typed(property, later, owner, name);
            let value = match read {
                Err(fault) if is_root => {
                    let place = format!("struct field {}.{name}", self.root);
                    return Err(Fault::Text(fault.at(&place)));
                }
                read => read?,
            };
            members.insert(name.to_owned(), value);
        }
        if is_root {
            self.member.clear();
        }
        self.unknown = before.or(own.or(self.unknown));
        Ok(Value::Object(members))
    }

    /// Free-form JSON, and the schemas inside schemas, which stand where a boolean or a list may
    /// stand too.
    fn free(&mut self, schema: View<'_>, later: Option<Later>) -> Result<Value, Fault> {
        let is_schema =
            go_type::short_name(schema.node()).is_some_and(|name| name.starts_with("JSONSchema"));
        let props = crate::builtin::json_schema_props();
        let (Some(props), true) = (props, is_schema) else { return self.any(later) };
        match self.reader.kind()? {
            Kind::Map => self.typed(props, later, "", ""),
            _ => self.any(later),
        }
    }

    fn typed_integer(&mut self, found: Kind, ty: &'static str) -> Result<Value, Fault> {
        self.budget.value(0)?;
        if !matches!(found, Kind::Positive | Kind::Negative) {
            return Err(self.mismatch(found, ty));
        }
        let integer = self.integer()?;
        if ty == "int32" && i64::try_from(integer).is_ok() && i32::try_from(integer).is_err() {
            let note = format!(" ({integer} overflows int32)");
            return Err(Fault::Type { found, wanted: ty.into(), note });
        }
        let limit = if integer < 0 { "Go's int64" } else { ty };
        signed(found, integer, ty, limit)
    }

    /// Bytes: base64, unless a tag says that nothing was encoded.
    fn typed_bytes(&mut self, found: Kind, later: Option<Later>) -> Result<Value, Fault> {
        const TYPE: &str = "[]uint8";
        match found {
            Kind::Bytes if later.is_some() => {
                let text = STANDARD.encode(self.bytes()?);
                self.budget.value(text.len())?;
                Ok(Value::String(text))
            }
            Kind::Bytes => {
                let mut value = Value::String(self.text(None)?);
                match scalar::canonical(Scalar::Bytes, &mut value) {
                    Err(scalar::Fault::Text(why)) => Err(DecodeError(format!(
                        "cbor: failed to decode base64 from byte string: {why}"
                    ))
                    .into()),
                    _ => Ok(value),
                }
            }
            Kind::Array => {
                let (mut left, mut bytes) = (self.pairs()?, Vec::new());
                while left.next(&mut self.reader).is_some() {
                    let found = self.reader.kind()?;
                    let ahead = self.reader;
                    match self.reader.head()? {
                        Header::Positive(value) => match u8::try_from(value) {
                            Ok(byte) => bytes.push(byte),
                            Err(_) => {
                                let note = format!(" ({value} overflows uint8)");
                                return Err(Fault::Type { found, wanted: "uint8".into(), note });
                            }
                        },
                        _ => {
                            self.reader = ahead;
                            return Err(self.mismatch(found, "uint8"));
                        }
                    }
                }
                let text = STANDARD.encode(bytes);
                self.budget.value(text.len())?;
                Ok(Value::String(text))
            }
            found => Err(self.mismatch(found, TYPE)),
        }
    }
}
