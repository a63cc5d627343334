//! Which objects of a type are cached, and how: what is said of a type goes before what is said of
//! all.

use std::{any::TypeId, collections::BTreeMap, fmt, time::Duration};

use kube_core::ClusterResourceScope;
use setpoint_informer::{
    CachePolicy, Cacheable, ResourceType, factory::Selection, transform::Transform,
};
use setpoint_object::{GroupVersionResource, Prune};

/// How many namespaces one level of options names at most.
pub const NAMESPACES_MAX: usize = 1024;

/// The key of [`Namespaces`] that stands for all namespaces, or for all others where there are
/// named ones.
pub const ALL_NAMESPACES: &str = "";

/// What one level says about caches; `None` leaves it to the level below (CCH-1).
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct CacheOptions {
    /// A label selector in the query form; empty is everything, whatever a level below says.
    pub labels: Option<String>,
    /// A field selector in the query form; empty is everything, whatever a level below says.
    pub fields: Option<String>,
    /// Changes every object before it enters.
    pub transform: Option<Transform>,
    /// What is cut out of objects before they enter.
    pub prune: Option<Prune>,
    /// What caches hold.
    pub policy: Option<CachePolicy>,
    /// The resync period; zero is never.
    pub resync: Option<Duration>,
}

/// The namespaces whose objects are cached, each with what is special about it.
pub type Namespaces = BTreeMap<String, CacheOptions>;

/// What is said of one type.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ByType {
    /// Of all its objects.
    pub options: CacheOptions,
    /// `None` is what is said of all types; an empty map is all namespaces (CCH-2).
    pub namespaces: Option<Namespaces>,
}

/// What is said of all types and of single ones.
#[derive(Debug, Clone, Default)]
pub struct CacheRules {
    options: CacheOptions,
    namespaces: Namespaces,
    by_type: BTreeMap<GroupVersionResource, ByType>,
}

/// Rules that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CacheRulesError {
    /// Objects of this type have no namespace (CCH-2).
    #[error("{resource} has no namespaces: none can be chosen")]
    ClusterScoped {
        /// The resource.
        resource: String,
    },
    /// More namespaces than [`NAMESPACES_MAX`].
    #[error("{n_namespaces} namespaces are more than {NAMESPACES_MAX}")]
    TooMany {
        /// So many.
        n_namespaces: usize,
    },
}

/// What holds for the objects of one type in one namespace, or in all.
#[derive(Debug, Clone, Default)]
pub(crate) struct Resolved {
    pub(crate) selection: Selection,
    /// It is of one namespace that was named.
    pub(crate) is_named: bool,
    /// Namespaces were chosen: all of them, too.
    pub(crate) chose_namespaces: bool,
    pub(crate) options: CacheOptions,
}

impl CacheRules {
    /// With nothing said: all objects, held as [`CachePolicy::Compact`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Says something of all types.
    #[must_use]
    pub fn options(mut self, options: CacheOptions) -> Self {
        self.options = options;
        self
    }

    /// Says in which namespaces the objects of types are cached of which nothing is said. Empty is
    /// all.
    ///
    /// Each named namespace is a list and a watch of its own. Types that have no namespaces are
    /// cached whole. Of a type that is known at run time alone this cannot be seen: say it by
    /// [`Watch::cluster_scoped`](crate::Watch::cluster_scoped), or by an empty map [of its
    /// own](ByType::namespaces).
    ///
    /// # Errors
    ///
    /// There are too many.
    pub fn namespaces(mut self, namespaces: Namespaces) -> Result<Self, CacheRulesError> {
        check_number(&namespaces)?;
        self.namespaces = namespaces;
        Ok(self)
    }

    /// Says something of one type; the last one counts.
    ///
    /// # Errors
    ///
    /// It has no namespaces, and some were chosen; or there are too many.
    pub fn of<K: Cacheable>(
        mut self,
        dynamic_type: &K::DynamicType,
        by_type: ByType,
    ) -> Result<Self, CacheRulesError> {
        let resource = ResourceType::of::<K>(dynamic_type).resource;
        if let Some(namespaces) = &by_type.namespaces {
            if !namespaces.is_empty() && has_no_namespaces::<K>() {
                let resource = resource.resource.to_string();
                return Err(CacheRulesError::ClusterScoped { resource });
            }
            check_number(namespaces)?;
        }
        self.by_type.insert(resource, by_type);
        Ok(self)
    }

    /// What holds for the objects of a type, per namespace (CCH-1 to 3, CCH-12).
    pub(crate) fn resolve<K: Cacheable>(
        &self,
        resource: &ResourceType,
        is_cluster_scoped: bool,
    ) -> Vec<Resolved> {
        self.resolve_of(&resource.resource, is_cluster_scoped || has_no_namespaces::<K>())
    }

    fn resolve_of(
        &self,
        resource: &GroupVersionResource,
        is_cluster_scoped: bool,
    ) -> Vec<Resolved> {
        let by_type = self.by_type.get(resource);
        let own = by_type.map(|by_type| &by_type.options);
        let own_namespaces =
            by_type.and_then(|by_type| by_type.namespaces.as_ref()).filter(|_| !is_cluster_scoped);
        let none = Namespaces::new();
        let chosen = match own_namespaces {
            _ if is_cluster_scoped => &none,
            Some(namespaces) => namespaces,
            None => &self.namespaces,
        };
        let names: Vec<&str> = if chosen.is_empty() {
            vec![ALL_NAMESPACES]
        } else {
            chosen.keys().map(String::as_str).collect()
        };
        let chose_namespaces =
            is_cluster_scoped || own_namespaces.is_some() || !self.namespaces.is_empty();
        let resolve = |name: &&str| {
            let levels = [
                own_namespaces.and_then(|namespaces| namespaces.get(*name)),
                own,
                self.namespaces.get(*name).filter(|_| !is_cluster_scoped),
                Some(&self.options),
            ];
            let mut options = CacheOptions::default();
            for level in levels.into_iter().flatten() {
                options.inherit(level);
            }
            let mut fields: Vec<String> = options.fields.iter().cloned().collect();
            fields.retain(|fields| !fields.is_empty());
            if *name == ALL_NAMESPACES {
                // Beside named ones it is all others.
                let others = names.iter().filter(|name| **name != ALL_NAMESPACES);
                fields.extend(others.map(|name| format!("metadata.namespace!={name}")));
            }
            let fields = fields.join(",");
            let mut selection = Selection::default();
            selection.namespace = match *name {
                ALL_NAMESPACES => the_namespace(&fields),
                name => Some(name.to_owned()),
            };
            selection.labels = options.labels.clone().unwrap_or_default();
            selection.fields = fields;
            let is_named = *name != ALL_NAMESPACES;
            Resolved { selection, is_named, chose_namespaces, options }
        };
        names.iter().map(resolve).collect()
    }
}

impl CacheOptions {
    /// Takes from a level below what this does not say.
    fn inherit(&mut self, below: &Self) {
        fn take<T: Clone>(own: &mut Option<T>, below: &Option<T>) {
            if own.is_none() {
                own.clone_from(below);
            }
        }
        take(&mut self.labels, &below.labels);
        take(&mut self.fields, &below.fields);
        take(&mut self.transform, &below.transform);
        take(&mut self.prune, &below.prune);
        take(&mut self.policy, &below.policy);
        take(&mut self.resync, &below.resync);
    }
}

fn check_number(namespaces: &Namespaces) -> Result<(), CacheRulesError> {
    let n_namespaces = namespaces.len();
    if n_namespaces > NAMESPACES_MAX {
        return Err(CacheRulesError::TooMany { n_namespaces });
    }
    Ok(())
}

fn has_no_namespaces<K: Cacheable>() -> bool {
    TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>()
}

/// The one namespace that a field selector demands: then its path is asked, which a permission for
/// that namespace allows (CCH-12).
fn the_namespace(fields: &str) -> Option<String> {
    let demanded = fields.split(',').find_map(|requirement| {
        let (field, value) = requirement.split_once('=')?;
        let value = value.strip_prefix('=').unwrap_or(value);
        (field.trim() == "metadata.namespace").then(|| value.trim().to_owned())
    });
    demanded.filter(|namespace| !namespace.is_empty())
}

impl fmt::Debug for CacheOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CacheOptions")
            .field("labels", &self.labels)
            .field("fields", &self.fields)
            .field("transforms", &self.transform.is_some())
            .field("prune", &self.prune)
            .field("policy", &self.policy)
            .field("resync", &self.resync)
            .finish()
    }
}

#[cfg(test)]
mod tests;
