//! What writes of a kind require besides the right to write the object: a column of its row.
//!
//! Rows say what is required, and `write` asks the authorizers and reads the other objects.
use super::Context;
use serde_json::Value;
use setpoint_object::field::Path;

/// What writes of a kind require besides the right to write the object.
#[derive(Debug, Clone, Copy)]
pub struct Needs {
    /// The rights that its objects give: who writes one must hold them.
    pub grants: Option<Grants>,
    /// The objects that its objects refer to: who writes one must be able to read them.
    pub reads: Option<Reads>,
    /// See [`NeedsLabel`].
    pub namespace_label: NeedsLabel,
    /// See [`NeedsRights`].
    pub status_rights: NeedsRights,
}
impl Needs {
    /// Nothing.
    pub const NONE: Self = Self {
        grants: None,
        reads: None,
        namespace_label: |_, _| None,
        status_rights: |_, _, _, _| Vec::new(),
    };
}

/// The rights that an object gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grants {
    /// Those of its rules (Role, ClusterRole).
    Rules,
    /// Those of the role in its `roleRef` (RoleBinding, ClusterRoleBinding).
    Role,
}

/// The objects that an object refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// All objects of its `paramKind` (admission policies).
    ParamKind,
    /// The params in its `paramRef`, of the kind that its policy names (bindings of policies).
    Params {
        /// The resource of the policies.
        policies: &'static str,
    },
}

/// Says which label the namespace must have; `None`: none. Asked for new objects (stored object:
/// `None`) and for writes through `/status`: (object, stored object).
pub type NeedsLabel = fn(&Value, Option<&Value>) -> Option<NeededLabel>;
/// Says which rights a write through `/status` requires: (context, verb of the request, object,
/// stored object).
pub type NeedsRights = fn(&Context<'_>, &str, &Value, &Value) -> Vec<NeededRight>;

/// A label, with the value `true`, that a namespace must have.
#[derive(Debug, Clone)]
pub struct NeededLabel {
    /// Its name.
    pub label: &'static str,
    /// The field that requires it.
    pub field: Path,
    /// What the field gives, as `admin access to devices`.
    pub gives: &'static str,
    /// The same in the error for a namespace that is not there, as `admin access`.
    pub verifies: &'static str,
}

/// A right that a change requires, of what only authorizers know.
#[derive(Debug, Clone)]
pub struct NeededRight {
    /// The field that the error is reported at.
    pub field: Path,
    /// What requires which right: the error without the reason.
    pub detail: String,
    /// What the right is about.
    pub on: RequiredOn,
    /// The verbs, of which one is enough. The error has the reason of the first one.
    pub verbs: Vec<String>,
}

/// What a right is about.
#[derive(Debug, Clone)]
pub enum RequiredOn {
    /// A subresource of the resource.
    Subresource {
        /// The subresource.
        subresource: &'static str,
        /// The name; in the namespace of the object. `None`: any name in all namespaces.
        name: Option<String>,
    },
    /// A signer of certificates: its name, or all names of its domain. It is asked about if nothing
    /// else is wrong, and the error has no reason.
    Signer(String),
}
