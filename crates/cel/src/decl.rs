//! The types that expressions see in a JSON tree: those that a schema declares.
//!
//! The schema of a custom resource says that a JSON text is a timestamp, that a list is a set, and
//! which properties an object has. A [`DeclType`] is made of it once per version. The checker reads
//! its [`Type`], the estimate of costs its sizes, and values show a tree through it without
//! copying.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::types::Type;

/// The most bytes of a request, from which sizes follow where a schema has no bounds.
///
/// 3 MiB, as in Kubernetes.
pub const REQUEST_BYTES_MAX: u64 = 3 * 1024 * 1024;
/// The least bytes of a text as JSON: its quotes.
const TEXT_SIZE_MIN: u64 = 2;
/// Bytes of a date as JSON: `"2006-01-02"`.
const DATE_SIZE: u64 = 12;
/// The least bytes of a point in time as JSON: `"2006-01-02T15:04:05"`.
const DATE_TIME_SIZE_MIN: u64 = 21;
/// The most bytes of a point in time as JSON, to the nanosecond.
const DATE_TIME_SIZE_MAX: u64 = 32;
/// The least bytes of a length of time as JSON: `"0"`.
const DURATION_SIZE_MIN: u64 = 3;
/// The most bytes of a length of time as JSON.
const DURATION_SIZE_MAX: u64 = 32;

/// The declared type of one node, with what is known of its size.
#[derive(Clone, Debug)]
pub struct DeclType {
    /// The shape of the JSON.
    pub kind: DeclKind,
    /// The type of expressions.
    pub ty: Type,
    /// The most elements of a list or entries of a map, bytes of a text or of bytes. 0 for what has
    /// no size.
    pub max_elements: u64,
    /// The least bytes a value takes as JSON, quotes and brackets included.
    pub min_size: u64,
}

/// The kinds of declared types.
#[derive(Clone, Debug)]
pub enum DeclKind {
    /// Any JSON: numbers without point and exponent are `int`, objects are maps.
    Dyn,
    /// `boolean`.
    Bool,
    /// `integer`.
    Int,
    /// `number`: numbers without a point are doubles too.
    Double,
    /// `string` without a format that has a type of its own.
    String,
    /// `string` with format `byte`: base64.
    Bytes,
    /// `string` with format `date-time`.
    Timestamp,
    /// `string` with format `date`.
    Date,
    /// `string` with format `duration`.
    Duration,
    /// `array`.
    List {
        /// The type of the elements.
        items: Arc<DeclType>,
        /// How lists compare and add.
        list: ListType,
    },
    /// `object` with `additionalProperties`.
    Map {
        /// The type of the values.
        values: Arc<DeclType>,
    },
    /// `object` with properties.
    Object(Arc<ObjectDecl>),
}

/// How the lists of a node compare and add (`x-kubernetes-list-type`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// Element by element; `+` appends.
    #[default]
    Atomic,
    /// In any order; `+` makes the union.
    Set,
    /// In any order, elements with the same values of these properties (JSON names) are the same
    /// one; `+` merges.
    Map(Arc<[String]>),
}

/// An object type with declared properties.
#[derive(Clone, Debug, Default)]
pub struct ObjectDecl {
    /// The type's name, unique within its environment.
    pub name: String,
    /// The properties by the name expressions use (`__dash__` and so on).
    pub fields: BTreeMap<String, FieldDecl>,
}

/// A declared property.
#[derive(Clone, Debug)]
pub struct FieldDecl {
    /// The name in JSON.
    pub json: String,
    /// The type.
    pub decl: DeclType,
    /// Whether the property must be there.
    pub required: bool,
}

/// A property from which an object type is made.
#[derive(Clone, Debug)]
pub struct Property {
    /// The name in JSON.
    pub name: String,
    /// The type; none if expressions cannot see it.
    pub decl: Option<DeclType>,
    /// Whether the property must be there.
    pub required: bool,
    /// Whether the schema has a default for it.
    pub defaulted: bool,
}

impl DeclType {
    fn new(kind: DeclKind, ty: Type, max_elements: u64, min_size: u64) -> DeclType {
        DeclType { kind, ty, max_elements, min_size }
    }

    /// A number or a text (`x-kubernetes-int-or-string`), of at most so many characters.
    pub fn int_or_string(max_length: Option<u64>) -> DeclType {
        DeclType::new(DeclKind::Dyn, Type::Dyn, text_bytes_max(max_length), 1)
    }

    /// `boolean`.
    pub fn bool() -> DeclType {
        DeclType::new(DeclKind::Bool, Type::Bool, 0, 4)
    }

    /// `integer`.
    pub fn int() -> DeclType {
        DeclType::new(DeclKind::Int, Type::Int, 0, 1)
    }

    /// `number`.
    pub fn double() -> DeclType {
        DeclType::new(DeclKind::Double, Type::Double, 0, 1)
    }

    /// `string` with a format, of at most so many characters, or one of some values.
    pub fn text<'a>(
        format: Option<&str>,
        max_length: Option<u64>,
        mut values: impl Iterator<Item = &'a str>,
    ) -> DeclType {
        match format {
            Some("byte") => DeclType::new(
                DeclKind::Bytes,
                Type::Bytes,
                max_length.unwrap_or(REQUEST_BYTES_MAX - 2),
                TEXT_SIZE_MIN,
            ),
            Some("duration") => DeclType::new(
                DeclKind::Duration,
                Type::Duration,
                DURATION_SIZE_MAX,
                DURATION_SIZE_MIN,
            ),
            Some("date") => DeclType::new(DeclKind::Date, Type::Timestamp, DATE_SIZE, DATE_SIZE),
            Some("date-time") => DeclType::new(
                DeclKind::Timestamp,
                Type::Timestamp,
                DATE_TIME_SIZE_MAX,
                DATE_TIME_SIZE_MIN,
            ),
            _ => {
                let size = match (max_length, values.next()) {
                    (None, Some(value)) => {
                        values.map(str::len).fold(value.len(), usize::max) as u64
                    }
                    _ => text_bytes_max(max_length),
                };
                DeclType::new(DeclKind::String, Type::String, size, TEXT_SIZE_MIN)
            }
        }
    }

    /// `array` of at most so many items.
    pub fn list(items: DeclType, list: ListType, max_items: Option<u64>) -> DeclType {
        let max = max_items.unwrap_or((REQUEST_BYTES_MAX - 2) / (items.min_size + 1));
        let ty = Type::list(items.ty.clone());
        DeclType::new(DeclKind::List { items: Arc::new(items), list }, ty, max, 2)
    }

    /// `object` with `additionalProperties`, of at most so many.
    pub fn map(values: DeclType, max_properties: Option<u64>) -> DeclType {
        // Two quotes, a colon, a comma and a key of two bytes.
        let max = max_properties.unwrap_or((REQUEST_BYTES_MAX - 2) / (values.min_size + 6));
        let ty = Type::map(Type::String, values.ty.clone());
        DeclType::new(DeclKind::Map { values: Arc::new(values) }, ty, max, 2)
    }

    /// `object` with properties. `name` is unique among the objects of a schema.
    ///
    /// Properties whose names expressions cannot spell are left out.
    pub fn object(name: String, properties: impl IntoIterator<Item = Property>) -> DeclType {
        let mut fields = BTreeMap::new();
        let mut min_size = 2;
        for property in properties {
            let Some(decl) = property.decl else { continue };
            if property.required && !property.defaulted {
                min_size += property.name.len() as u64 + decl.min_size + 4;
            }
            if let Some(escaped) = crate::escape::escape(&property.name) {
                let field = FieldDecl { json: property.name, decl, required: property.required };
                fields.insert(escaped, field);
            }
        }
        let types =
            fields.iter().map(|(name, field)| (name.clone(), field.decl.ty.clone())).collect();
        let ty = Type::object(&name, types);
        DeclType::new(DeclKind::Object(Arc::new(ObjectDecl { name, fields })), ty, 0, min_size)
    }

    /// An object that is not of a schema, such as the request that a policy sees: expressions spell
    /// its fields as they are, `namespace` too, which a schema's properties cannot be.
    pub fn declared(
        name: String,
        fields: impl IntoIterator<Item = (String, DeclType)>,
    ) -> DeclType {
        let field = |(json, decl): (String, DeclType)| {
            (json.clone(), FieldDecl { json, decl, required: false })
        };
        let fields: BTreeMap<_, _> = fields.into_iter().map(field).collect();
        let types =
            fields.iter().map(|(name, field)| (name.clone(), field.decl.ty.clone())).collect();
        let ty = Type::object(&name, types);
        DeclType::new(DeclKind::Object(Arc::new(ObjectDecl { name, fields })), ty, 0, 2)
    }

    /// The same with another name of the object, and of those below it by their paths from here.
    pub fn named(&self, name: &str) -> DeclType {
        let (kind, ty) = match &self.kind {
            DeclKind::List { items, list } => {
                let items = items.named(&format!("{name}.@idx"));
                let ty = Type::list(items.ty.clone());
                (DeclKind::List { items: Arc::new(items), list: list.clone() }, ty)
            }
            DeclKind::Map { values } => {
                let values = values.named(&format!("{name}.@elem"));
                let ty = Type::map(Type::String, values.ty.clone());
                (DeclKind::Map { values: Arc::new(values) }, ty)
            }
            DeclKind::Object(object) => {
                let fields = object.fields.iter().map(|(step, field)| {
                    let decl = field.decl.named(&format!("{name}.{step}"));
                    (step.clone(), FieldDecl { decl, ..field.clone() })
                });
                let fields: BTreeMap<_, _> = fields.collect();
                let types =
                    fields.iter().map(|(step, field)| (step.clone(), field.decl.ty.clone()));
                let ty = Type::object(name, types.collect());
                (DeclKind::Object(Arc::new(ObjectDecl { name: name.to_owned(), fields })), ty)
            }
            _ => return self.clone(),
        };
        DeclType { kind, ty, ..*self }
    }

    /// The type of a list's items or of a map's values.
    pub fn element(&self) -> Option<&DeclType> {
        match &self.kind {
            DeclKind::List { items, .. } => Some(items),
            DeclKind::Map { values } => Some(values),
            _ => None,
        }
    }

    /// The type of a property, by its name in JSON.
    pub fn field(&self, json: &str) -> Option<&DeclType> {
        let DeclKind::Object(object) = &self.kind else { return None };
        object.fields.get(&crate::escape::escape(json)?).map(|field| &field.decl)
    }

    /// How often a value of this type is in a request at most.
    pub fn cardinality_max(&self) -> u64 {
        REQUEST_BYTES_MAX / (self.min_size + 1)
    }
}

/// Bytes of a text of at most so many characters.
fn text_bytes_max(max_length: Option<u64>) -> u64 {
    max_length.map_or(REQUEST_BYTES_MAX - 2, |characters| characters.saturating_mul(4))
}
