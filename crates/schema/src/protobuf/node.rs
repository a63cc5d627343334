//! An object's JSON, read by its type: texts are borrowed, members are fields, free-form JSON stays
//! text.

use serde::de::{Deserialize, DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use setpoint_facts::{DEFINITIONS, Definition, FIELDS_MAX, Type};
use std::borrow::Cow;
use std::fmt;

/// A value of a known type.
#[derive(Debug)]
pub(super) enum Node<'a> {
    /// The zero value.
    Null,
    Bool(bool),
    Int(i64),
    Num(f64),
    Text(Cow<'a, str>),
    /// JSON as it is written.
    Raw(&'a str),
    List(Vec<Self>),
    /// By key.
    Map(Vec<(Cow<'a, str>, Self)>),
    Struct(Box<Members<'a>>),
}

/// The members of a struct.
#[derive(Debug)]
pub(super) struct Members<'a> {
    /// Index of the definition.
    pub(super) definition: u16,
    /// The values of fields, in the order of the text.
    values: Vec<Node<'a>>,
    /// By field: the number of values up to its own; 0 if it has none.
    places: [u16; FIELDS_MAX],
}

impl<'a> Members<'a> {
    fn none(definition: u16) -> Self {
        Self { definition, values: Vec::new(), places: [0; FIELDS_MAX] }
    }

    /// The value of a field, by its position in the definition: the last one that is given.
    pub(super) fn get(&self, field: usize) -> Option<&Node<'a>> {
        let place = self.places.get(field)?.checked_sub(1)?;
        self.values.get(usize::from(place))
    }

    fn set(&mut self, field: usize, value: Node<'a>) {
        let Some(place) = self.places.get_mut(field) else { return };
        match place.checked_sub(1).and_then(|at| self.values.get_mut(usize::from(at))) {
            // Given before.
            Some(before) => *before = value,
            None => {
                self.values.push(value);
                // At most FIELDS_MAX.
                *place = u16::try_from(self.values.len()).unwrap_or_default();
            }
        }
    }
}

/// Reads a value of a type.
#[derive(Debug, Clone, Copy)]
pub(super) struct Of(pub(super) Type);

/// The struct or free-form type that a type refers to.
fn definition(ty: Type) -> Option<&'static Definition> {
    match ty {
        Type::Ref(at) => DEFINITIONS.get(usize::from(at)),
        _ => None,
    }
}

/// The last word of a free-form type's name.
pub(super) fn short_name(definition: &'static Definition) -> &'static str {
    definition.name.rsplit('.').next().unwrap_or_default()
}

/// The type of the schemas in schemas.
fn schema() -> Type {
    const NAME: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
    setpoint_facts::definition(NAME).map_or(Type::Any, Type::Ref)
}

impl<'de> DeserializeSeed<'de> for Of {
    type Value = Node<'de>;

    fn deserialize<D: serde::Deserializer<'de>>(self, input: D) -> Result<Node<'de>, D::Error> {
        match definition(self.0) {
            Some(Definition { ty: Type::Any, name, .. }) if !name.contains("JSONSchemaPropsOr") => {
                let raw = <&RawValue>::deserialize(input)?.get();
                Ok(if raw == "null" { Node::Null } else { Node::Raw(raw) })
            }
            // One of two shapes, or a plain value.
            _ => input.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Of {
    type Value = Node<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match definition(self.0) {
            Some(definition) => write!(f, "a {}", short_name(definition)),
            None => write!(f, "a value of type {:?}", self.0),
        }
    }

    fn visit_unit<E: Error>(self) -> Result<Node<'de>, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Node<'de>, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Node<'de>, E> {
        Ok(Node::Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Node<'de>, E> {
        i64::try_from(value).map(Node::Int).map_err(|_| E::custom("an integer beyond 64 bits"))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Node<'de>, E> {
        Ok(Node::Num(value))
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Node<'de>, E> {
        Ok(Node::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Node<'de>, E> {
        Ok(Node::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut input: A) -> Result<Node<'de>, A::Error> {
        let item = match (self.0, definition(self.0)) {
            (Type::List(of), _) => Self(*of),
            (_, Some(definition)) if definition.ty == Type::Any => Self(schema()),
            _ => return Err(A::Error::invalid_type(serde::de::Unexpected::Seq, &self)),
        };
        let mut items = Vec::with_capacity(input.size_hint().unwrap_or_default().min(64));
        while let Some(node) = input.next_element_seed(item)? {
            items.push(node);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut input: A) -> Result<Node<'de>, A::Error> {
        if let Type::Map(of) = self.0 {
            let mut entries = Vec::new();
            while let Some(key) = input.next_key_seed(Key)? {
                entries.push((key, input.next_value_seed(Self(*of))?));
            }
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            return Ok(Node::Map(entries));
        }
        let ty = match definition(self.0) {
            Some(definition) if definition.ty == Type::Any => schema(),
            _ => self.0,
        };
        let (Type::Ref(at), Some(definition)) = (ty, definition(ty)) else {
            return Err(A::Error::invalid_type(serde::de::Unexpected::Map, &self));
        };
        let mut members = Members::none(at);
        while let Some(key) = input.next_key_seed(Key)? {
            let found = definition.position(&key);
            match found.and_then(|at| Some((at, definition.fields.get(at)?))) {
                Some((at, field)) => members.set(at, input.next_value_seed(Self(field.ty))?),
                None => {
                    input.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Node::Struct(Box::new(members)))
    }
}

/// Reads a member's name, borrowed where it holds no escapes.
#[derive(Debug, Clone, Copy)]
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Cow<'de, str>;

    fn deserialize<D: serde::Deserializer<'de>>(self, input: D) -> Result<Self::Value, D::Error> {
        input.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Key {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(value.to_owned()))
    }
}
