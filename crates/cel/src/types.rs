//! Types of expressions.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::escape::is_reserved;

/// The type of an expression, of a variable or of an operand.
///
/// Cloning counts references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// The type of an expression with a reported error. It fits everything.
    Error,
    /// Not known before the rule runs. Fits everything.
    Dyn,
    /// The same by another name: a value of a device. No loop goes through it.
    Any,
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// A signed integer of 64 bits.
    Int,
    /// An unsigned integer of 64 bits.
    Uint,
    /// A floating point number of 64 bits.
    Double,
    /// A text.
    String,
    /// A sequence of bytes.
    Bytes,
    /// A point in time.
    Timestamp,
    /// A length of time.
    Duration,
    /// A list, with the type of its elements.
    List(Arc<Type>),
    /// A map, with the types of its keys and its values.
    Map(Arc<Type>, Arc<Type>),
    /// `optional_type(…)`: a value that may be absent.
    Optional(Arc<Type>),
    /// The type of a type: `type(int)`, or `type` alone.
    Type(Option<Arc<Type>>),
    /// A type parameter: in an overload by its name, during a check a free variable.
    Param(Param),
    /// An object with declared fields.
    Object(Arc<ObjectType>),
    /// A type of a library, by its name: see the constants beginning with [`Type::QUANTITY`].
    Opaque(&'static str),
}

/// A type parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Param {
    /// A parameter in the signature of an overload, by its name: `T`.
    Named(&'static str),
    /// A variable made for one use of a signature or of an empty literal.
    Free(u32),
}

/// An object type: a name, and fields with their types.
///
/// Two are the same if they have the same name: names are unique within an environment.
#[derive(Debug)]
pub struct ObjectType {
    /// The name, as messages show it.
    pub name: String,
    /// Types of the fields, by their names in expressions (escaped).
    pub fields: BTreeMap<String, Type>,
    /// Whether it has every other field too. These are dynamic.
    pub open: bool,
}

impl ObjectType {
    /// The type of a field; `None`: it has no such field. A reserved word stands for the field
    /// that is escaped: `x.namespace` is `x.__namespace__`.
    pub fn field(&self, name: &str) -> Option<Type> {
        let escaped = || match is_reserved(name) {
            true => self.fields.get(&format!("__{name}__")),
            false => None,
        };
        let found = self.fields.get(name).or_else(escaped).cloned();
        found.or_else(|| self.open.then_some(Type::Dyn))
    }
}

impl PartialEq for ObjectType {
    fn eq(&self, other: &ObjectType) -> bool {
        self.name == other.name
    }
}

impl Eq for ObjectType {}

impl Type {
    /// A Kubernetes quantity.
    pub const QUANTITY: Type = Type::Opaque("kubernetes.Quantity");
    /// A parsed URL.
    pub const URL: Type = Type::Opaque("kubernetes.URL");
    /// A semantic version.
    pub const SEMVER: Type = Type::Opaque("kubernetes.Semver");
    /// A named format.
    pub const FORMAT: Type = Type::Opaque("kubernetes.NamedFormat");
    /// An IP address.
    pub const IP: Type = Type::Opaque("net.IP");
    /// An IP network.
    pub const CIDR: Type = Type::Opaque("net.CIDR");

    /// The authorizer of an expression.
    pub const AUTHORIZER: Type = Type::Opaque("kubernetes.authorization.Authorizer");
    /// An authorization check of a path.
    pub const PATH_CHECK: Type = Type::Opaque("kubernetes.authorization.PathCheck");
    /// An authorization check of an API group.
    pub const GROUP_CHECK: Type = Type::Opaque("kubernetes.authorization.GroupCheck");
    /// An authorization check of a resource.
    pub const RESOURCE_CHECK: Type = Type::Opaque("kubernetes.authorization.ResourceCheck");
    /// The answer to an authorization check.
    pub const DECISION: Type = Type::Opaque("kubernetes.authorization.Decision");

    /// The name of [`Type::json_patch`].
    pub(crate) const JSON_PATCH: &str = "JSONPatch";

    /// An object type with these fields and no others.
    pub fn object(name: &str, fields: BTreeMap<String, Type>) -> Type {
        Type::Object(Arc::new(ObjectType { name: name.to_owned(), fields, open: false }))
    }

    /// The type of `JSONPatch{…}`: one operation of a patch.
    pub fn json_patch() -> Type {
        let fields = [("op", Type::String), ("path", Type::String), ("from", Type::String)];
        let fields = fields.into_iter().chain([("value", Type::Dyn)]);
        Type::object(Type::JSON_PATCH, fields.map(|(name, ty)| (name.to_owned(), ty)).collect())
    }

    /// The type of `Object{…}` (`Object`) and of the structs in it (`Object.spec`). Its fields are
    /// not known to the checker.
    pub fn apply_configuration(name: &str) -> Type {
        let (name, fields) = (name.to_owned(), BTreeMap::new());
        Type::Object(Arc::new(ObjectType { name, fields, open: true }))
    }

    /// A list of elements of `element`.
    pub fn list(element: Type) -> Type {
        Type::List(Arc::new(element))
    }

    /// A map from `key` to `value`.
    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new(key), Arc::new(value))
    }

    /// An optional `inner`.
    pub fn optional(inner: Type) -> Type {
        Type::Optional(Arc::new(inner))
    }

    /// The type of the type `inner`.
    pub fn type_of(inner: Type) -> Type {
        Type::Type(Some(Arc::new(inner)))
    }

    /// A parameter of a signature.
    pub const fn param(name: &'static str) -> Type {
        Type::Param(Param::Named(name))
    }

    /// Whether the type is known only when the rule runs.
    pub fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn | Type::Any)
    }

    /// The name as `type(x)` has it, without parameters.
    pub(crate) fn name(&self) -> Cow<'static, str> {
        match self {
            Type::Null => "null_type".into(),
            Type::Timestamp => "google.protobuf.Timestamp".into(),
            Type::Duration => "google.protobuf.Duration".into(),
            Type::List(_) => "list".into(),
            Type::Map(..) => "map".into(),
            Type::Optional(_) => "optional_type".into(),
            Type::Type(_) => "type".into(),
            Type::Opaque(name) => (*name).into(),
            other => other.to_string().into(),
        }
    }

    /// The type as errors about the value of a whole expression show it, with the names that
    /// `type(x)` has. Errors about the calls in an expression show it as [`fmt::Display`] does.
    pub fn declared(&self) -> String {
        match self {
            Type::Any => "google.protobuf.Any".to_owned(),
            Type::List(element) => format!("list({})", element.declared()),
            Type::Map(key, value) => format!("map({}, {})", key.declared(), value.declared()),
            Type::Optional(inner) => format!("optional_type({})", inner.declared()),
            Type::Type(Some(inner)) => format!("type({})", inner.declared()),
            other => other.name().into_owned(),
        }
    }

    /// Whether it is dynamic or the type of an error.
    pub fn is_dyn_or_error(&self) -> bool {
        self.is_dyn() || matches!(self, Type::Error)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Error => f.write_str("!error!"),
            Type::Dyn => f.write_str("dyn"),
            Type::Any => f.write_str("any"),
            Type::Null => f.write_str("null"),
            Type::Bool => f.write_str("bool"),
            Type::Int => f.write_str("int"),
            Type::Uint => f.write_str("uint"),
            Type::Double => f.write_str("double"),
            Type::String => f.write_str("string"),
            Type::Bytes => f.write_str("bytes"),
            Type::Timestamp => f.write_str("timestamp"),
            Type::Duration => f.write_str("duration"),
            Type::List(element) => write!(f, "list({element})"),
            Type::Map(key, value) => write!(f, "map({key}, {value})"),
            Type::Optional(inner) => write!(f, "optional_type({inner})"),
            Type::Type(None) => f.write_str("type"),
            Type::Type(Some(inner)) => write!(f, "type({inner})"),
            Type::Param(Param::Named(name)) => f.write_str(name),
            Type::Param(Param::Free(number)) => write!(f, "_var{number}"),
            Type::Object(object) => f.write_str(&object.name),
            Type::Opaque(name) => f.write_str(name),
        }
    }
}
