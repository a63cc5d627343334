//! Owner references: who is deleted with whom.

use std::any::TypeId;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::{ClusterResourceScope, NamespaceResourceScope, Resource};

/// An owner reference that would be wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OwnerError {
    /// The owner has no name or no uid: it has not been created yet.
    #[error("the owner, a {kind}, has no name or no uid: it must exist before it owns anything")]
    NotCreated {
        /// The owner's kind.
        kind: String,
    },
    /// The object has another controller, and can have only one.
    #[error("the object is controlled by {kind} {name}")]
    AlreadyOwned {
        /// The other controller's kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// A namespaced owner of a cluster-scoped object: the garbage collector would not find it.
    #[error("a cluster-scoped object cannot be owned by an object in namespace {namespace}")]
    Scope {
        /// The owner's namespace.
        namespace: String,
    },
    /// Owner and object are in different namespaces.
    #[error("an object in namespace {child} cannot be owned by one in namespace {owner}")]
    Namespaces {
        /// The owner's namespace.
        owner: String,
        /// The object's namespace.
        child: String,
    },
}

/// A reference to an owner that is known by its uid, with neither flag set.
///
/// # Errors
///
/// The owner has not been created yet.
pub fn owner_reference<O: Resource>(
    owner: &O,
    dynamic_type: &O::DynamicType,
) -> Result<OwnerReference, OwnerError> {
    owner
        .owner_ref(dynamic_type)
        .ok_or_else(|| OwnerError::NotCreated { kind: O::kind(dynamic_type).into_owned() })
}

/// Makes `owner` the controller of `child`: its deletion takes the child along, and foreground deletion waits for the child.
///
/// A reference to the same owner (group, kind and name) is replaced in place. Nothing is written to the server.
///
/// # Errors
///
/// The owner does not exist, the child has another controller, or their scopes do not allow it: then the child is unchanged.
pub fn set_controller_reference<O: Resource + 'static, C: Resource + 'static>(
    owner: &O,
    owner_type: &O::DynamicType,
    child: &mut C,
) -> Result<(), OwnerError> {
    check_scope(owner, child)?;
    let mut reference = owner_reference(owner, owner_type)?;
    reference.controller = Some(true);
    reference.block_owner_deletion = Some(true);
    let references = child.meta_mut().owner_references.get_or_insert_default();
    let other = references
        .iter()
        .find(|existing| existing.controller == Some(true) && !same(existing, &reference));
    if let Some(other) = other {
        return Err(OwnerError::AlreadyOwned {
            kind: other.kind.clone(),
            name: other.name.clone(),
        });
    }
    match references.iter_mut().find(|existing| same(existing, &reference)) {
        Some(existing) => *existing = reference,
        None => references.push(reference),
    }
    Ok(())
}

/// The owner that controls an object.
pub fn controller_of<C: Resource>(child: &C) -> Option<&OwnerReference> {
    child
        .meta()
        .owner_references
        .iter()
        .flatten()
        .find(|reference| reference.controller == Some(true))
}

/// Whether two references are to the same owner, in whatever version of its API and whichever incarnation.
fn same(one: &OwnerReference, other: &OwnerReference) -> bool {
    let group = |reference: &OwnerReference| {
        reference.api_version.split_once('/').map(|(group, _)| group.to_owned())
    };
    one.kind == other.kind && one.name == other.name && group(one) == group(other)
}

fn check_scope<O: Resource + 'static, C: Resource + 'static>(
    owner: &O,
    child: &C,
) -> Result<(), OwnerError> {
    let namespace_of =
        |namespace: &Option<String>| namespace.clone().filter(|namespace| !namespace.is_empty());
    let Some(owner_namespace) = namespace_of(&owner.meta().namespace) else { return Ok(()) };
    match namespace_of(&child.meta().namespace) {
        Some(child) if child == owner_namespace => Ok(()),
        Some(child) => Err(OwnerError::Namespaces { owner: owner_namespace, child }),
        // A namespaced child that names none yet goes where its creator puts it.
        None if TypeId::of::<C::Scope>() == TypeId::of::<NamespaceResourceScope>() => Ok(()),
        None if TypeId::of::<C::Scope>() == TypeId::of::<ClusterResourceScope>() => {
            Err(OwnerError::Scope { namespace: owner_namespace })
        }
        // The scope of a dynamic type is not known here.
        None => Ok(()),
    }
}
