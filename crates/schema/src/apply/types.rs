//! The schema as field ownership sees it: every node is a map, a list or a scalar, granular or
//! atomic.

use crate::node::{ListType, Node, Scalar, Shape, Str, View};
use serde_json::Value;
use std::borrow::Cow;

/// The definition of an opaque value, which is a leaf.
const RAW_EXTENSION: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";

/// The type of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Type<'a> {
    /// As the schema declares it.
    Declared {
        view: View<'a>,
        /// Of a custom resource: key fields have the defaults their schema gives them, and no
        /// others.
        custom: bool,
        /// This node or one around it preserves unknown fields.
        preserve: bool,
    },
    /// Nothing is declared: maps are granular, lists atomic.
    Deduced,
    /// Opaque: maps and lists are atomic.
    Untyped,
}

/// The form of a value: a scalar, a list or a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Map,
    List,
    Scalar(ScalarKind),
}

/// The types of scalars.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScalarKind {
    Numeric,
    String,
    Boolean,
    Any,
}

/// The identity of a list's elements.
#[derive(Debug, Clone, Copy)]
pub(super) enum Relation<'a> {
    Atomic,
    Set,
    Keys(&'a [Str]),
}

impl<'a> Type<'a> {
    /// The type of a whole object.
    pub(super) fn root(view: View<'a>, custom: bool) -> Self {
        Self::at(view, custom, false)
    }

    fn at(view: View<'a>, custom: bool, preserve_around: bool) -> Self {
        let node = view.node();
        if node.shape == Shape::Any && node.properties.is_empty() && node.items.is_none() {
            return match node.type_name.as_deref() {
                Some(RAW_EXTENSION) => Self::Untyped,
                _ => Self::Deduced,
            };
        }
        // A named type starts again.
        let preserve = node.preserve_unknown || (preserve_around && node.type_name.is_none());
        Self::Declared { view, custom, preserve }
    }

    /// What a value is treated as. A type with several forms takes that of the value; nothing and
    /// `null` count as a map then.
    pub(super) fn form(self, value: Option<&Value>) -> Form {
        let declared = match self {
            Self::Declared { view, custom, .. } => Self::declared_form(view.node(), custom),
            Self::Deduced | Self::Untyped => None,
        };
        declared.unwrap_or(match value {
            None | Some(Value::Null | Value::Object(_)) => Form::Map,
            Some(Value::Array(_)) => Form::List,
            Some(_) => Form::Scalar(ScalarKind::Any),
        })
    }

    fn declared_form(node: &Node, custom: bool) -> Option<Form> {
        Some(match node.shape {
            Shape::Object => Form::Map,
            Shape::Array => Form::List,
            Shape::Integer | Shape::Number => Form::Scalar(ScalarKind::Numeric),
            Shape::Boolean => Form::Scalar(ScalarKind::Boolean),
            // In a custom resource it has no type at all; validation sees to it.
            Shape::IntOrString if custom => return None,
            Shape::IntOrString => Form::Scalar(ScalarKind::Any),
            Shape::String => Form::Scalar(match (node.scalar, node.format.as_deref()) {
                (Scalar::Quantity | Scalar::Time | Scalar::MicroTime, _) => ScalarKind::Any,
                (_, None | Some("" | "byte")) => ScalarKind::String,
                _ => ScalarKind::Any,
            }),
            Shape::Any => return None,
        })
    }

    /// The type of a map's member and whether the member is a declared field; `None` when the map
    /// has no such member.
    pub(super) fn member(self, name: &str) -> Option<(Self, bool)> {
        let Self::Declared { view, custom, preserve } = self else { return Some((self, false)) };
        if let Some(property) = view.property(name) {
            return Some((Self::at(property, custom, preserve), true));
        }
        let node = view.node();
        if let Some(values) = node.additional {
            return Some((Self::at(view.at(values), custom, preserve), false));
        }
        let forbidden = node.validation.as_ref().is_some_and(|v| v.additional_forbidden);
        let free = node.additional_any || preserve || (node.properties.is_empty() && !forbidden);
        free.then_some((Self::Deduced, false))
    }

    /// The type of a map's member, also of one that the map has not.
    pub(super) fn member_type(self, name: &str) -> Self {
        self.member(name).map_or(Self::Deduced, |(ty, _)| ty)
    }

    /// Whether a map of this type is replaced whole.
    pub(super) fn atomic_map(self) -> bool {
        match self {
            Self::Declared { view, .. } => view.node().atomic_map,
            Self::Deduced => false,
            Self::Untyped => true,
        }
    }

    /// The type of a list's elements.
    pub(super) fn items(self) -> Self {
        match self {
            Self::Declared { view, custom, preserve } => {
                view.items().map_or(Self::Untyped, |items| Self::at(items, custom, preserve))
            }
            Self::Deduced | Self::Untyped => Self::Untyped,
        }
    }

    /// The identity of a list's elements.
    pub(super) fn relation(self) -> Relation<'a> {
        match self {
            Self::Declared { view, .. } => match &view.node().list_type {
                ListType::Atomic => Relation::Atomic,
                ListType::Set => Relation::Set,
                ListType::Map(keys) => Relation::Keys(keys),
            },
            Self::Deduced | Self::Untyped => Relation::Atomic,
        }
    }

    /// The one type whose optional key has its zero value as the default (`imagePullSecrets`).
    fn is_local_reference(self) -> bool {
        let Self::Declared { view, .. } = self else { return false };
        view.node().type_name.as_deref() == Some("io.k8s.api.core.v1.LocalObjectReference")
    }

    /// The value of a key field that an element of this type lacks.
    pub(super) fn key_default(self, name: &str) -> Option<Cow<'a, Value>> {
        let Self::Declared { view, .. } = self else { return None };
        let field = view.property(name)?.node();
        if let Some(default) = &field.default {
            return Some(Cow::Borrowed(default));
        }
        let is_required = view.node().required.iter().any(|required| required == name);
        // Types without a name are those of custom resources.
        let is_built_in = view.node().type_name.is_some();
        if !is_built_in || !is_required && !self.is_local_reference() {
            return None;
        }
        Some(Cow::Owned(match field.shape {
            Shape::Integer | Shape::Number => Value::from(0),
            Shape::Boolean => Value::from(false),
            _ => Value::from(""),
        }))
    }
}
