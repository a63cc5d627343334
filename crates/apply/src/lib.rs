//! Typed partial objects for server-side apply.
//!
//! # Theory
//!
//! A server-side apply sends some fields of an object. The server makes the sender their manager,
//! and removes fields that the manager applied earlier and leaves out now. So a field that is sent
//! by accident is claimed, and a field that is misspelt is not applied. An object type cannot be
//! sent: its required fields are always serialized, set or not.
//!
//! A [`Partial`] has one setter per field, and consists of the fields that were set. It is a thin
//! type over [`Members`], a JSON object: no struct with hundreds of optional fields, and nothing to
//! serialize. [`HasPartial`] names the partial of a type.
//!
//! | type | its partial |
//! |---|---|
//! | built-in types of `k8s-openapi` | the module named after the group version, such as `apps::v1` (feature `built-in`) |
//! | custom types | `#[derive(Partial)]` of `setpoint-macros` |
//!
//! `cargo xtask apply` generates the built-in partials from the tables of `setpoint-facts`, so that
//! setters have the names, types and list keys of the published schemas.
//!
//! # Setters
//!
//! A setter has its field's name in snake case; a name that is a Rust keyword ends with `_`.
//!
//! | field | setter |
//! |---|---|
//! | string, number, boolean, time, quantity | `replicas(3)`: sets it |
//! | list of those | `args(["a", "b"])`: sets all of it |
//! | map from strings to those | `match_labels([("app", "web")])`: adds entries |
//! | object | `selector(\|selector\| …)`: changes what was set so far, at first nothing |
//! | list of objects | `rule(\|rule\| …)`: adds an item; in the singular |
//! | list of objects with keys | `container("web", \|container\| …)`: changes the item with that key, at first with nothing else |
//! | the same with several keys | `port(80, "TCP", \|port\| …)`: all keys, in the order of the schema |
//! | map from strings to objects | `property("size", \|property\| …)`: as a list with keys |
//! | free-form JSON | `raw(json!({}))`: sets it |
//!
//! A closure that sets nothing still sends the empty object: `empty_dir(|empty| empty)`.
//! `if_some(option, Setter::name)` sets a field if there is a value.
//!
//! ```
//! # #[cfg(feature = "built-in")] {
//! use setpoint_apply::{Partial, apps::v1::DeploymentSpec};
//!
//! let spec = DeploymentSpec::default()
//!     .replicas(3)
//!     .selector(|selector| selector.match_labels([("app", "web")]))
//!     .template(|template| {
//!         template
//!             .metadata(|metadata| metadata.labels([("app", "web")]))
//!             .spec(|pod| pod.container("web", |container| container.image("nginx")))
//!     });
//! assert_eq!(
//!     serde_json::Value::Object(spec.into_members().into_json().0),
//!     serde_json::json!({
//!         "replicas": 3,
//!         "selector": {"matchLabels": {"app": "web"}},
//!         "template": {
//!             "metadata": {"labels": {"app": "web"}},
//!             "spec": {"containers": [{"name": "web", "image": "nginx"}]},
//!         },
//!     }),
//! );
//! # }
//! ```
//!
//! A misspelt field does not compile:
//!
//! ```compile_fail,E0599
//! setpoint_apply::apps::v1::DeploymentSpec::default().replica(3);
//! ```
//!
//! Nor does a value of another type:
//!
//! ```compile_fail,E0277
//! setpoint_apply::apps::v1::DeploymentSpec::default().replicas("3");
//! ```
//!
//! Nor an item without its key:
//!
//! ```compile_fail,E0061
//! setpoint_apply::core::v1::PodSpec::default().container(|container| container.image("nginx"));
//! ```

#[cfg(feature = "built-in")]
#[rustfmt::skip]
mod built_in;
mod members;
#[cfg(feature = "built-in")]
mod setters;
pub mod value;

#[cfg(feature = "built-in")]
pub use built_in::*;
pub use members::{MemberError, Members, without_nulls};

/// Some fields of an object, for server-side apply.
pub trait Partial: Sized {
    /// With these members.
    fn from_members(members: Members) -> Self;

    /// The members that were set.
    fn into_members(self) -> Members;
}

/// A key as a value: generated code has no other path to `serde_json`.
#[doc(hidden)]
pub fn json_text(text: impl Into<String>) -> serde_json::Value {
    text.into().into()
}

/// A type with a partial.
///
/// A type of one's own for a built-in resource can use the built-in partial:
///
/// ```
/// # #[cfg(feature = "built-in")] {
/// struct ThreeFields;
///
/// impl setpoint_apply::HasPartial for ThreeFields {
///     type Partial = setpoint_apply::core::v1::Pod;
/// }
/// # }
/// ```
pub trait HasPartial {
    /// Its partial.
    type Partial: Partial;
}
