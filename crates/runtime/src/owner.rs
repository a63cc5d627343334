//! Owner references: which objects are deleted with which.

use std::{any::TypeId, borrow::Cow};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::{ClusterResourceScope, NamespaceResourceScope, Resource};

/// Why an owner reference was not set or removed.
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
    /// The object does not have this owner.
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

/// A reference to an owner, which must have a uid; neither flag is set.
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

/// A reference to the controlling owner: the child is deleted with it, and foreground deletion
/// waits for the child.
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

/// Makes `owner` the controller of `child`: the child is deleted with it, and foreground deletion
/// waits for the child.
///
/// Replaces a reference to the same owner (group, kind and name) in place. Changes the object in
/// memory only.
///
/// # Errors
///
/// The owner has not been created, the child has another controller, or their scopes do not match.
/// The child is unchanged then.
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

/// Makes `owner` an owner of `child`, besides its controller and other owners. The child is deleted
/// when all its owners are.
///
/// Replaces a reference to the same owner (group, kind and name) in place, without the controller
/// flag. Changes the object in memory only.
///
/// # Errors
///
/// The owner has not been created, or their scopes do not match. The child is unchanged then.
pub fn set_owner_reference<O: Resource + 'static, C: Resource + 'static>(
    owner: &O,
    owner_type: &O::DynamicType,
    child: &mut C,
) -> Result<(), OwnerError> {
    check_scope(owner, child)?;
    put(child, owner_reference(owner, owner_type)?);
    Ok(())
}

/// Removes `owner` from a child's owners, controller or not. Changes the object in memory only.
///
/// Matches by group, kind and name, so a reference to an earlier object of that name is removed
/// too.
///
/// # Errors
///
/// The child does not have this owner.
pub fn remove_owner_reference<O: Resource, C: Resource>(
    owner: &O,
    owner_type: &O::DynamicType,
    child: &mut C,
) -> Result<(), OwnerError> {
    let owner = OwnerIdentity::of(owner, owner_type);
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

/// Whether `child` has this owner, controller or not. Matches by group, kind and name.
pub fn has_owner_reference<O: Resource, C: Resource>(
    owner: &O,
    owner_type: &O::DynamicType,
    child: &C,
) -> bool {
    let owner = OwnerIdentity::of(owner, owner_type);
    child.meta().owner_references.iter().flatten().any(|reference| owner.is(reference))
}

/// An owner, as references identify it (UTL-5).
struct OwnerIdentity<'a> {
    group: Cow<'a, str>,
    kind: Cow<'a, str>,
    name: &'a str,
}

impl<'a> OwnerIdentity<'a> {
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

/// The controlling owner of an object, if any.
pub fn controller_of<C: Resource>(child: &C) -> Option<&OwnerReference> {
    child
        .meta()
        .owner_references
        .iter()
        .flatten()
        .find(|reference| reference.controller == Some(true))
}

/// Whether two references are to the same owner, ignoring API version and uid.
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
    check_scope_in::<O, C>(owner, child.meta().namespace.as_deref())
}

/// [`check_scope`] for a child in this namespace, if it is known.
pub(crate) fn check_scope_in<O: Resource + 'static, C: Resource + 'static>(
    owner: &O,
    namespace: Option<&str>,
) -> Result<(), OwnerError> {
    fn named(namespace: Option<&str>) -> Option<String> {
        namespace.filter(|namespace| !namespace.is_empty()).map(ToOwned::to_owned)
    }
    let Some(owner) = named(owner.meta().namespace.as_deref()) else { return Ok(()) };
    match named(namespace) {
        Some(child) if child == owner => Ok(()),
        Some(child) => Err(OwnerError::Namespaces { owner, child }),
        // A namespaced child without a namespace gets one when it is created.
        None if TypeId::of::<C::Scope>() == TypeId::of::<NamespaceResourceScope>() => Ok(()),
        None if TypeId::of::<C::Scope>() == TypeId::of::<ClusterResourceScope>() => {
            Err(OwnerError::Scope { namespace: owner })
        }
        // The scope of a dynamic type is unknown.
        None => Ok(()),
    }
}
