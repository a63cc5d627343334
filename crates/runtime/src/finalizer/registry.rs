//! Several finalizers of one controller.

use std::{fmt, future::Future, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use setpoint_informer::Cacheable;
use setpoint_object::name::qualified_name;

use super::{FinalizerError, addition, removal};
use crate::{
    client::Api,
    context::Context,
    error::{BoxError, chain},
    reconciler::Action,
    request::Request,
};

/// Several finalizers, each with its cleanup (UTL-6).
///
/// | the object       | what is done                                                                                        |
/// |------------------|-------------------------------------------------------------------------------------------------------|
/// | exists           | missing finalizers are added in one write; once the server has them, the pass runs                     |
/// | is being deleted | the cleanup of each finalizer on it runs, in order; those that succeeded are removed in one write      |
///
/// A failed cleanup keeps its own finalizer only. Other programs' finalizers are not touched.
///
/// ```no_run
/// # use k8s_openapi::api::core::v1::ConfigMap;
/// # use setpoint_runtime::{Action, BoxError, Context, finalizer::Finalizers, Request};
/// # async fn example(request: Request, context: Context) -> Result<Action, BoxError> {
/// let finalizers = Finalizers::<ConfigMap>::new()
///     .with("example.com/dns", |_map, _context| async { Ok(()) })?
///     .with("example.com/volume", |_map, _context| async { Ok(()) })?;
/// let maps = context.client().api::<ConfigMap>();
/// let Some(map) = maps.get(&request)? else { return Ok(Action::await_change()) };
/// let pass = |_map| async { Ok::<_, BoxError>(Action::await_change()) };
/// Ok(finalizers.run(&maps, map, &context, pass).await?)
/// # }
/// ```
pub struct Finalizers<K> {
    each: Vec<(String, CleanUp<K>)>,
}

type CleanUp<K> =
    Box<dyn Fn(Arc<K>, Context) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// Why a finalizer was not registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FinalizerNameError {
    /// Servers accept only qualified names, such as `example.com/what-it-guards`.
    #[error("{0:?} is not a qualified name with a domain")]
    Malformed(String),
    /// The name is registered already.
    #[error("the finalizer {0} is registered twice")]
    Twice(String),
}

/// Why a pass with several finalizers failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FinalizersError {
    /// The pass failed, or the finalizers could not be added.
    #[error(transparent)]
    One(#[from] FinalizerError),
    /// Some cleanups failed, and their finalizers stay. The others were removed.
    #[error("clean up for {}", .0.iter().map(|(name, error)| format!("{name}: {}", chain(&**error))).collect::<Vec<_>>().join("; "))]
    Cleanup(Vec<(String, BoxError)>),
}

impl<K> Default for Finalizers<K> {
    fn default() -> Self {
        Self { each: Vec::new() }
    }
}

impl<K> fmt::Debug for Finalizers<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.each.iter().map(|(name, _)| name)).finish()
    }
}

impl<K: Cacheable> Finalizers<K> {
    /// Without finalizers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a finalizer with its cleanup. The cleanup may be called again after it succeeded, so it
    /// must be idempotent.
    ///
    /// # Errors
    ///
    /// The name is invalid or registered already.
    pub fn with<Fut>(
        mut self,
        name: impl Into<String>,
        clean_up: impl Fn(Arc<K>, Context) -> Fut + Send + Sync + 'static,
    ) -> Result<Self, FinalizerNameError>
    where
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        let name = name.into();
        if !name.contains('/') || !qualified_name(&name).is_empty() {
            return Err(FinalizerNameError::Malformed(name));
        }
        if self.each.iter().any(|(registered, _)| *registered == name) {
            return Err(FinalizerNameError::Twice(name));
        }
        self.each.push((name, Box::new(move |object, context| clean_up(object, context).boxed())));
        Ok(self)
    }

    /// Runs one pass over `object` with all finalizers.
    ///
    /// # Errors
    ///
    /// `pass`, a cleanup or a patch failed.
    pub async fn run<E, Fut>(
        &self,
        api: &Api<K>,
        object: Arc<K>,
        context: &Context,
        pass: impl FnOnce(Arc<K>) -> Fut,
    ) -> Result<Action, FinalizersError>
    where
        E: Into<BoxError>,
        Fut: Future<Output = Result<Action, E>>,
    {
        let meta = object.meta();
        let Some(name) = meta.name.clone() else { return Err(FinalizerError::NoName.into()) };
        let key = Request::new(meta.namespace.clone().unwrap_or_default(), name);
        let present = meta.finalizers.clone().unwrap_or_default();
        let failed = |what, names: &[&str], source| {
            FinalizersError::One(FinalizerError::Patch { what, name: names.join(", "), source })
        };
        if meta.deletion_timestamp.is_none() {
            let missing: Vec<&str> = self
                .each
                .iter()
                .map(|(name, _)| &**name)
                .filter(|name| !present.iter().any(|finalizer| finalizer == name))
                .collect();
            let object = if missing.is_empty() {
                object
            } else {
                let patched = api.json_patch(&key, &addition(meta, &missing)).await;
                Arc::new(patched.map_err(|source| failed("add", &missing, source))?)
            };
            let passed = pass(object).await;
            return passed.map_err(|error| FinalizerError::Apply(error.into()).into());
        }
        let mut cleaned: Vec<&str> = Vec::new();
        let mut failures = Vec::new();
        for (name, clean_up) in &self.each {
            if !present.contains(name) {
                continue;
            }
            match clean_up(object.clone(), context.clone()).await {
                Ok(()) => cleaned.push(name),
                Err(error) => failures.push((name.clone(), error)),
            }
        }
        if !cleaned.is_empty() {
            let positions: Vec<usize> = (0..present.len())
                .filter(|position| cleaned.contains(&&*present[*position]))
                .collect();
            match api.json_patch(&key, &removal(object.meta(), &positions)).await {
                Err(error) if !error.is_not_found() => {
                    return Err(failed("remove", &cleaned, error));
                }
                _ => {}
            }
        }
        if failures.is_empty() {
            Ok(Action::await_change())
        } else {
            Err(FinalizersError::Cleanup(failures))
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};

    use super::*;
    use crate::finalizer::{add_finalizer, has_finalizer, remove_finalizer};

    #[test]
    fn finalizer_is_added_once_and_all_its_copies_are_removed() {
        let mut map = ConfigMap::default();
        assert!(add_finalizer(&mut map, "a.b/c"));
        assert!(!add_finalizer(&mut map, "a.b/c"));
        map.metadata.finalizers.as_mut().unwrap().extend(["d.e/f".to_owned(), "a.b/c".to_owned()]);
        assert!(has_finalizer(&map, "a.b/c"));
        assert!(remove_finalizer(&mut map, "a.b/c"));
        assert!(!remove_finalizer(&mut map, "a.b/c"));
        assert_eq!(map.metadata.finalizers.as_deref(), Some(&["d.e/f".to_owned()][..]));
        assert!(remove_finalizer(&mut map, "d.e/f"));
        assert_eq!(map, ConfigMap::default());
    }

    #[test]
    fn invalid_and_duplicate_names_are_refused() {
        let clean_up = |_, _| async { Ok(()) };
        let none = Finalizers::<ConfigMap>::new;
        for name in ["", "guard", "a b/c", "a.b/c/d"] {
            let refused = none().with(name, clean_up).unwrap_err();
            assert_eq!(refused, FinalizerNameError::Malformed(name.into()));
        }
        let twice = none().with("a.b/c", clean_up).unwrap().with("a.b/c", clean_up).unwrap_err();
        assert_eq!(twice, FinalizerNameError::Twice("a.b/c".into()));
    }

    #[test]
    fn several_finalizers_are_removed_from_the_back() {
        let finalizers = Some(["a", "b", "a", "c"].map(str::to_owned).to_vec());
        let meta = ObjectMeta { finalizers, uid: Some("1".into()), ..ObjectMeta::default() };
        assert_eq!(
            removal(&meta, &[0, 2, 3]).to_string(),
            r#"[{"op":"test","path":"/metadata/uid","value":"1"},{"op":"test","path":"/metadata/finalizers/3","value":"c"},{"op":"remove","path":"/metadata/finalizers/3"},{"op":"test","path":"/metadata/finalizers/2","value":"a"},{"op":"remove","path":"/metadata/finalizers/2"},{"op":"test","path":"/metadata/finalizers/0","value":"a"},{"op":"remove","path":"/metadata/finalizers/0"}]"#
        );
    }
}
