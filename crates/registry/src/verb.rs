//! Verbs: what a request does.
use std::fmt;
use std::sync::Arc;

/// The verb of a request, as authorization, audit and metrics name it.
///
/// On a resource these are the verbs of discovery. On any other path it is the HTTP method in lower
/// case; `Get`, `Patch` and `Delete` are used for both.
///
/// ```
/// use setpoint_registry::Verb;
///
/// assert_eq!(Verb::from("deletecollection"), Verb::DeleteCollection);
/// assert_eq!(Verb::from("impersonate").as_str(), "impersonate");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Verb {
    /// Reads one object. GET of a path.
    Get,
    /// Reads a collection.
    List,
    /// Watches the changes of a collection.
    Watch,
    /// Creates an object. POST to a connect-like subresource (`binding`, `exec`).
    Create,
    /// Replaces an object.
    Update,
    /// Changes an object. PATCH of a path.
    Patch,
    /// Deletes an object. DELETE of a path.
    Delete,
    /// Deletes the objects of a collection.
    DeleteCollection,
    /// Grants more rights than the user has (secondary check of roles).
    Escalate,
    /// Refers to a role with more rights than the user has (secondary check of role bindings).
    Bind,
    /// Any other: `post`, `put`, `head` and `options` of a path, or a word that only an authorizer
    /// knows.
    Other(Arc<str>),
}

impl Verb {
    /// The verb in the API.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Escalate => "escalate",
            Self::Bind => "bind",
            Self::Other(word) => word,
        }
    }
    /// Whether it is a read: `get`, `list`, `watch`, and `head` and `options` of a path.
    pub fn is_read_only(&self) -> bool {
        match self {
            Self::Get | Self::List | Self::Watch => true,
            Self::Other(word) => matches!(&**word, "head" | "options"),
            _ => false,
        }
    }
}
impl From<&str> for Verb {
    fn from(word: &str) -> Self {
        match word {
            "get" => Self::Get,
            "list" => Self::List,
            "watch" => Self::Watch,
            "create" => Self::Create,
            "update" => Self::Update,
            "patch" => Self::Patch,
            "delete" => Self::Delete,
            "deletecollection" => Self::DeleteCollection,
            "escalate" => Self::Escalate,
            "bind" => Self::Bind,
            other => Self::Other(other.into()),
        }
    }
}
impl AsRef<str> for Verb {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}
impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
