//! Declares an owner's children as a set: creates and updates what is declared, and deletes the
//! rest.
//!
//! # Theory
//!
//! A run compares two sets of objects of one type: the *declared* ones, by key, and the *existing*
//! ones that the owner controls. An owner controls an object if the object's controller reference
//! has the owner's uid. A reference with the owner's name and another uid is to a previous owner,
//! and the object is left alone.
//!
//! | declared | existing object controlled by | what is done                                       |
//! |----------|------------------------------|-----------------------------------------------------|
//! | yes      | no object, or no controller, or the owner | written, with the owner's reference    |
//! | yes      | another                      | an error; the object is not changed                 |
//! | no       | the owner                    | deleted, if it still has the uid that was seen      |
//! | no       | no controller, or another    | nothing                                             |
//!
//! All declared children are written first, in order. The others are deleted only if that
//! succeeded, so that a replacement exists before a child is deleted. Children that are already
//! being deleted are skipped. A run without changes writes nothing, except applied children: only
//! the server knows whether an apply changes anything.

use std::{collections::BTreeSet, fmt, sync::Arc};

use futures::{StreamExt, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube_core::{
    Resource,
    params::{DeleteParams, ListParams, Preconditions, PropagationPolicy},
};
use serde::Serialize;
use setpoint_informer::Cacheable;
use setpoint_object::label::Selector;

use crate::{
    client::{Api, Apply, ClientError},
    owner::{OwnerError, check_scope, check_scope_in, controller_of, controller_reference, same},
    request::Request,
    upsert::{UpsertError, Upserted, make_of, put},
};

/// How many children are written or deleted concurrently, at most: 16. Other passes run too.
pub const CHILDREN_CONCURRENCY_MAX: usize = 16;

/// A declared child.
#[must_use = "a child is made by `Children::run`"]
pub enum Child<K> {
    /// By server-side apply. The controller's reference is added.
    Apply(Apply<K>),
    /// As [`create_or_update`](crate::create_or_update): from the existing object, if any. The
    /// controller's reference is added. The type must be cached.
    Make(Request, Make<K>),
}

/// Makes the desired object from the existing one.
type Make<K> = Box<dyn FnOnce(Option<K>) -> K + Send>;

impl<K> Child<K> {
    /// A child made from the existing object, if any; see
    /// [`create_or_update`](crate::create_or_update).
    pub fn make(key: Request, make: impl FnOnce(Option<K>) -> K + Send + 'static) -> Self {
        Self::Make(key, Box::new(make))
    }

    fn key(&self) -> &Request
    where
        K: Resource,
    {
        match self {
            Self::Apply(apply) => apply.key(),
            Self::Make(key, _) => key,
        }
    }
}

impl<K> From<Apply<K>> for Child<K> {
    fn from(apply: Apply<K>) -> Self {
        Self::Apply(apply)
    }
}

impl<K: Resource> fmt::Debug for Child<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Child").field(self.key()).finish()
    }
}

/// The children of one type of one owner. [`run`](Self::run) makes them match the declared ones;
/// see the module's theory.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use k8s_openapi::api::apps::v1::Deployment;
/// # use setpoint_runtime::{Apply, BoxError, Children, Context, Request};
/// # async fn example(context: Context, owner: Deployment) -> Result<(), BoxError> {
/// let maps = context.client().api::<ConfigMap>();
/// let declared = ["a", "b"].map(|name| {
///     Apply::<ConfigMap>::new(&Request::new("default", name)).set("/data/k", name).force()
/// });
/// Children::of(&owner, &())?.run(&maps, declared).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is done before `run`"]
pub struct Children<O> {
    owner: O,
    reference: OwnerReference,
    selector: Selector,
    concurrency: usize,
    propagation: PropagationPolicy,
}

/// What a run did, by key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChildrenOutcome {
    /// Created children.
    pub created: Vec<Request>,
    /// Changed children.
    pub updated: Vec<Request>,
    /// Unchanged children.
    pub unchanged: Vec<Request>,
    /// Applied children.
    pub applied: Vec<Request>,
    /// Deleted children.
    pub deleted: Vec<Request>,
}

/// Why a run failed. Earlier writes of the run stay.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChildrenError {
    /// Two children are declared with one key.
    #[error("{0} is declared twice")]
    Twice(Request),
    /// The owner cannot own this child.
    #[error("set the owner of {key}")]
    Owner {
        /// The child.
        key: Request,
        /// The reason.
        #[source]
        source: OwnerError,
    },
    /// A child could not be written. Nothing was deleted.
    #[error("write {key}")]
    Make {
        /// The child.
        key: Request,
        /// The reason.
        #[source]
        source: UpsertError,
    },
    /// The existing children could not be read, or one could not be deleted.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl<O: Resource + Clone + 'static> Children<O> {
    /// The children of an owner.
    ///
    /// # Errors
    ///
    /// The owner has not been created yet.
    pub fn of(owner: &O, owner_type: &O::DynamicType) -> Result<Self, OwnerError> {
        Ok(Self {
            owner: owner.clone(),
            reference: controller_reference(owner, owner_type)?,
            selector: Selector::everything(),
            concurrency: 1,
            propagation: PropagationPolicy::Background,
        })
    }

    /// Considers only children with matching labels, if an owner has several sets of one type. The
    /// declared children should match.
    pub fn labels(mut self, selector: Selector) -> Self {
        self.selector = selector;
        self
    }

    /// How many children are written or deleted concurrently; at most [`CHILDREN_CONCURRENCY_MAX`].
    /// Default: one, in the order of the declaration.
    pub fn concurrency(mut self, n_children: usize) -> Self {
        self.concurrency = n_children.clamp(1, CHILDREN_CONCURRENCY_MAX);
        self
    }

    /// The propagation policy of deletions. Default: background.
    pub fn propagation(mut self, policy: PropagationPolicy) -> Self {
        self.propagation = policy;
        self
    }

    /// Makes the owner's children of this type match the declared ones.
    ///
    /// Existing children are read from the cache, including this client's own writes, or from the
    /// server if the type is not cached. If the future is dropped, pending writes may or may not be
    /// done; the next run continues from there.
    ///
    /// # Errors
    ///
    /// See [`ChildrenError`]. A conflict means that the cache was behind: retry.
    pub async fn run<K: Cacheable + Clone + Serialize, C: Into<Child<K>>>(
        &self,
        api: &Api<K>,
        declared: impl IntoIterator<Item = C>,
    ) -> Result<ChildrenOutcome, ChildrenError> {
        let declared: Vec<Child<K>> = declared.into_iter().map(Into::into).collect();
        let mut keys = BTreeSet::new();
        for child in &declared {
            if !keys.insert(child.key().clone()) {
                return Err(ChildrenError::Twice(child.key().clone()));
            }
        }
        let mut outcome = ChildrenOutcome::default();
        let writes = declared.into_iter().map(|child| self.write(api, child));
        let mut writes = stream::iter(writes).buffered(self.concurrency);
        while let Some(written) = writes.next().await {
            let (key, upserted) = written?;
            match upserted {
                Some(Upserted::Created) => outcome.created.push(key),
                Some(Upserted::Unchanged) => outcome.unchanged.push(key),
                Some(_) => outcome.updated.push(key),
                None => outcome.applied.push(key),
            }
        }
        drop(writes);
        let rest = self.existing(api).await?.into_iter().filter(|child| !keys.contains(&child.key));
        let deletions = rest.map(|child| self.delete(api, child));
        let mut deletions = stream::iter(deletions).buffered(self.concurrency);
        while let Some(deleted) = deletions.next().await {
            outcome.deleted.extend(deleted?);
        }
        Ok(outcome)
    }

    /// Writes one child; for an apply, the result is not classified.
    async fn write<K: Cacheable + Clone + Serialize>(
        &self,
        api: &Api<K>,
        child: Child<K>,
    ) -> Result<(Request, Option<Upserted>), ChildrenError> {
        let key = child.key().clone();
        let refused = |source| ChildrenError::Owner { key: key.clone(), source };
        match child {
            Child::Apply(apply) => {
                // The garbage collector would delete it, and the next run write it again.
                check_scope_in::<O, K>(&self.owner, key.namespace_opt()).map_err(refused)?;
                // The type may not be cached. Then the server refuses a second controller.
                let cached = api.lister_of(&key.namespace).ok();
                if let Some(existing) =
                    cached.and_then(|lister| lister.get_key(&key).ok().flatten())
                {
                    self.check(&*existing).map_err(refused)?;
                }
                let applied = api.apply(&apply.owner(&self.reference)).await;
                applied.map_err(|source| ChildrenError::Make {
                    key: key.clone(),
                    source: source.into(),
                })?;
                Ok((key, None))
            }
            Child::Make(_, make) => {
                let failed = |source: UpsertError| ChildrenError::Make { key: key.clone(), source };
                let existing = api.get_own(&key).await?;
                if let Some(existing) = existing.as_deref() {
                    self.check(existing).map_err(refused)?;
                }
                let mut made = make_of(&key, existing.as_deref(), make).map_err(failed)?;
                self.own(&mut made).map_err(refused)?;
                let written = put(api, &key, existing.as_deref(), made).await;
                let (_, upserted) = written.map_err(failed)?;
                Ok((key, Some(upserted)))
            }
        }
    }

    /// Whether the owner controls a child or may take it over.
    fn check<K: Resource>(&self, child: &K) -> Result<(), OwnerError> {
        match controller_of(child) {
            Some(other) if !same(other, &self.reference) || other.uid != self.reference.uid => {
                Err(OwnerError::AlreadyOwned { kind: other.kind.clone(), name: other.name.clone() })
            }
            _ => Ok(()),
        }
    }

    fn own<K: Resource + 'static>(&self, child: &mut K) -> Result<(), OwnerError> {
        check_scope(&self.owner, child)?;
        self.check(child)?;
        let references = child.meta_mut().owner_references.get_or_insert_default();
        match references.iter_mut().find(|existing| existing.uid == self.reference.uid) {
            Some(existing) => *existing = self.reference.clone(),
            None => references.push(self.reference.clone()),
        }
        Ok(())
    }

    /// The owner's children that are not being deleted.
    async fn existing<K: Cacheable>(&self, api: &Api<K>) -> Result<Vec<Existing>, ClientError> {
        let namespace = self.owner.meta().namespace.as_deref().filter(|n| !n.is_empty());
        match api.shown_own_in(namespace).await {
            Ok(()) => {
                let mut select = api.select().labels(self.selector.clone());
                if let Some(namespace) = namespace {
                    select = select.namespace(namespace);
                }
                let objects = select.objects()?;
                let own = objects.iter().filter(|object| {
                    let skim = object.skim();
                    skim.controller().is_some_and(|owner| owner.uid == self.reference.uid)
                        && skim.deletion_timestamp.is_empty()
                });
                Ok(own
                    .map(|object| Existing { key: object.key().clone(), uid: object.uid().into() })
                    .collect())
            }
            Err(ClientError::NotCached { .. } | ClientError::NamespaceNotCached(_)) => {
                let params = ListParams {
                    label_selector: Some(self.selector.to_string()).filter(|text| !text.is_empty()),
                    ..ListParams::default()
                };
                let objects = api.list_live(namespace, &params).await?;
                let own = objects.iter().filter(|object| {
                    controller_of(*object).is_some_and(|owner| owner.uid == self.reference.uid)
                        && object.meta().deletion_timestamp.is_none()
                });
                Ok(own
                    .map(|object| Existing {
                        key: Request::of(object),
                        uid: object.meta().uid.as_deref().unwrap_or_default().into(),
                    })
                    .collect())
            }
            Err(error) => Err(error),
        }
    }

    /// Deletes a child if its uid is unchanged; returns its key if it existed.
    async fn delete<K: Cacheable>(
        &self,
        api: &Api<K>,
        child: Existing,
    ) -> Result<Option<Request>, ClientError> {
        let uid = Some(child.uid.to_string());
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid, resource_version: None }),
            propagation_policy: Some(self.propagation.clone()),
            ..DeleteParams::default()
        };
        match api.delete(&child.key, &params).await {
            Ok(()) => Ok(Some(child.key)),
            // Another object has its name: the child is gone.
            Err(error) if error.is_conflict() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// An existing child.
struct Existing {
    key: Request,
    uid: Arc<str>,
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    #[test]
    fn child_with_another_owner_uid_is_not_controlled_even_if_the_name_is_equal() {
        let mut owner = ConfigMap::default();
        owner.metadata.name = Some("owner".into());
        owner.metadata.namespace = Some("default".into());
        assert!(matches!(Children::of(&owner, &()), Err(OwnerError::NotCreated { .. })));
        owner.metadata.uid = Some("1".into());
        let children = Children::of(&owner, &()).unwrap();
        let mut child = ConfigMap::default();
        children.check(&child).unwrap();
        children.own(&mut child).unwrap();
        children.own(&mut child).unwrap();
        assert_eq!(child.metadata.owner_references.as_ref().unwrap().len(), 1);
        children.check(&child).unwrap();
        // The child of a previous owner of the same name.
        child.metadata.owner_references.as_mut().unwrap()[0].uid = "0".into();
        assert!(matches!(children.own(&mut child), Err(OwnerError::AlreadyOwned { .. })));
        // An owner without the controller flag does not conflict.
        child.metadata.owner_references.as_mut().unwrap()[0].controller = None;
        children.own(&mut child).unwrap();
        assert_eq!(child.metadata.owner_references.unwrap().len(), 2);
    }
}
