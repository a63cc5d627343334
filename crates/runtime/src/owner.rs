//! Owner references: who is deleted with whom.

use std::{any::TypeId, borrow::Cow};

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
    /// The object does not have that owner.
    #[error("the object is not owned by {kind} {name}")]
    NotOwned {
        /// The owner's kind.
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

/// A reference to the owner that controls: its deletion takes the child along, and foreground
/// deletion waits for the child.
///
/// # Errors
///
/// The owner has not been created yet.
pub fn controller_reference<O: Resource>(
    owner: &O,
    dynamic_type: &O::DynamicType,
) -> Result<OwnerReference, OwnerError> {
    let mut reference = owner_reference(owner, dynamic_type)?;
    reference.controller = Some(true);
    reference.block_owner_deletion = Some(true);
    Ok(reference)
}

/// Makes `owner` the controller of `child`: its deletion takes the child along, and foreground
/// deletion waits for the child.
///
/// A reference to the same owner (group, kind and name) is replaced in place. Nothing is written to
/// the server.
///
/// # Errors
///
/// The owner does not exist, the child has another controller, or their scopes do not allow it:
/// then the child is unchanged.
pub fn set_controller_reference<O: Resource + 'static, C: Resource + 'static>(
    owner: &O,
    owner_type: &O::DynamicType,
    child: &mut C,
) -> Result<(), OwnerError> {
    check_scope(owner, child)?;
    let reference = controller_reference(owner, owner_type)?;
    let other = controller_of(child).filter(|existing| !same(existing, &reference));
    if let Some(other) = other {
        return Err(OwnerError::AlreadyOwned {
            kind: other.kind.clone(),
            name: other.name.clone(),
        });
    }
    put(child, reference);
    Ok(())
}

/// Makes `owner` an owner of `child`, beside its controller and other owners: the child goes when
/// all of them have gone.
///
/// A reference to the same owner (group, kind and name) is replaced in place, and is no
/// controller's then. Nothing is written to the server.
///
/// # Errors
///
/// The owner does not exist, or their scopes do not allow it: then the child is unchanged.
pub fn set_owner_reference<O: Resource + 'static, C: Resource + 'static>(
    owner: &O,
    owner_type: &O::DynamicType,
    child: &mut C,
) -> Result<(), OwnerError> {
    check_scope(owner, child)?;
    put(child, owner_reference(owner, owner_type)?);
    Ok(())
}

/// Takes `owner` out of a child's owners, controller or not. Nothing is written to the server.
///
/// It is known by group, kind and name, so that a reference to one that was made anew goes, too.
///
/// # Errors
///
/// The child does not have that owner.
pub fn remove_owner_reference<O: Resource, C: Resource>(
    owner: &O,
    owner_type: &O::DynamicType,
    child: &mut C,
) -> Result<(), OwnerError> {
    let owner = Known::of(owner, owner_type);
    let references = child.meta_mut().owner_references.get_or_insert_default();
    let n_before = references.len();
    references.retain(|reference| !owner.is(reference));
    let is_removed = references.len() < n_before;
    if references.is_empty() {
        child.meta_mut().owner_references = None;
    }
    if is_removed {
        Ok(())
    } else {
        Err(OwnerError::NotOwned { kind: owner.kind.into_owned(), name: owner.name.to_owned() })
    }
}

/// Whether `child` has that owner, controller or not, known by group, kind and name.
pub fn has_owner_reference<O: Resource, C: Resource>(
    owner: &O,
    owner_type: &O::DynamicType,
    child: &C,
) -> bool {
    let owner = Known::of(owner, owner_type);
    child.meta().owner_references.iter().flatten().any(|reference| owner.is(reference))
}

/// An owner by what references know it by (UTL-5).
struct Known<'a> {
    group: Cow<'a, str>,
    kind: Cow<'a, str>,
    name: &'a str,
}

impl<'a> Known<'a> {
    fn of<O: Resource>(owner: &'a O, owner_type: &'a O::DynamicType) -> Self {
        let name = owner.meta().name.as_deref().unwrap_or_default();
        Self { group: O::group(owner_type), kind: O::kind(owner_type), name }
    }

    fn is(&self, reference: &OwnerReference) -> bool {
        let group = reference.api_version.split_once('/').map_or("", |(group, _)| group);
        group == self.group && reference.kind == self.kind && reference.name == self.name
    }
}

/// Replaces the reference to the same owner, or adds it.
fn put<C: Resource>(child: &mut C, reference: OwnerReference) {
    let references = child.meta_mut().owner_references.get_or_insert_default();
    match references.iter_mut().find(|existing| same(existing, &reference)) {
        Some(existing) => *existing = reference,
        None => references.push(reference),
    }
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

/// Whether two references are to the same owner, in whatever version of its API and whichever
/// incarnation.
pub(crate) fn same(one: &OwnerReference, other: &OwnerReference) -> bool {
    let group = |reference: &OwnerReference| {
        reference.api_version.split_once('/').map(|(group, _)| group.to_owned())
    };
    one.kind == other.kind && one.name == other.name && group(one) == group(other)
}

pub(crate) fn check_scope<O: Resource + 'static, C: Resource + 'static>(
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
