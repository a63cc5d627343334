//! What a plugin runs: what manifests say, then what the objects of the API say.
use super::manifests::{Loaded, Manifests};
use parking_lot::Mutex;
use std::sync::Arc;

/// Hooks of manifests, compiled once per load, before those of objects.
#[derive(Debug)]
pub(super) struct Composed<T> {
    manifests: Option<Manifests>,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    /// What `own` was compiled of.
    loaded: Option<Arc<Loaded>>,
    own: Arc<[T]>,
    joined: Option<Joined<T>>,
}

#[derive(Debug)]
struct Joined<T> {
    /// Of objects.
    stored: Arc<[T]>,
    /// With those of manifests.
    all: Arc<[T]>,
}

impl<T: Clone> Composed<T> {
    pub(super) fn new(manifests: Option<Manifests>) -> Self {
        let state = State { loaded: None, own: Arc::default(), joined: None };
        Self { manifests, state: Mutex::new(state) }
    }

    /// What manifests say. `compile` is called after they were loaded.
    pub(super) fn own(&self, compile: impl FnOnce(&Loaded) -> Vec<T>) -> Arc<[T]> {
        let Some(manifests) = &self.manifests else { return Arc::default() };
        let loaded = manifests.loaded();
        {
            let state = self.state.lock();
            if state.loaded.as_ref().is_some_and(|known| Arc::ptr_eq(known, &loaded)) {
                return state.own.clone();
            }
        }
        let own: Arc<[T]> = compile(&loaded).into();
        *self.state.lock() = State { loaded: Some(loaded), own: own.clone(), joined: None };
        own
    }

    /// All, in the order in which they run. The same list is returned until one changes.
    pub(super) fn all(
        &self,
        stored: Arc<[T]>,
        compile: impl FnOnce(&Loaded) -> Vec<T>,
    ) -> Arc<[T]> {
        let own = self.own(compile);
        if own.is_empty() {
            return stored;
        }
        let mut state = self.state.lock();
        if let Some(joined) = &state.joined
            && Arc::ptr_eq(&joined.stored, &stored)
            && Arc::ptr_eq(&state.own, &own)
        {
            return joined.all.clone();
        }
        let all: Arc<[T]> = own.iter().chain(stored.iter()).cloned().collect();
        // Another request may have compiled newer ones.
        if Arc::ptr_eq(&state.own, &own) {
            state.joined = Some(Joined { stored, all: all.clone() });
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::manifests::ManifestFile;
    use setpoint_object::meta::ObjectExt;

    fn load(manifests: &Manifests, names: &[&str]) {
        let text = names.iter().map(|name| {
            format!("---\napiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\nmetadata: {{name: {name}.static.k8s.io}}\n")
        });
        let text = text.collect::<String>().into();
        manifests.load(&[ManifestFile { path: "f".to_owned(), text }]).unwrap();
    }

    fn names(loaded: &Loaded) -> Vec<String> {
        loaded.hooks.iter().map(|hook| hook.name().to_owned()).collect()
    }

    #[test]
    fn hooks_of_manifests_come_first_and_lists_are_made_once_per_change() {
        let manifests = Manifests::of("MutatingAdmissionWebhook").unwrap();
        let composed = Composed::new(Some(manifests.clone()));
        let stored: Arc<[String]> = Arc::new(["z".to_owned()]);
        let all = |stored: &Arc<[String]>| composed.all(stored.clone(), names);
        assert!(Arc::ptr_eq(&all(&stored), &stored), "without manifests");
        load(&manifests, &["b", "a"]);
        let first = all(&stored);
        assert_eq!(*first, ["a.static.k8s.io", "b.static.k8s.io", "z"]);
        assert!(Arc::ptr_eq(&all(&stored), &first));
        assert_eq!(*composed.own(names), first[..2]);
        let others: Arc<[String]> = Arc::new([]);
        assert_eq!(*all(&others), first[..2]);
        load(&manifests, &["c"]);
        assert_eq!(*all(&stored), ["c.static.k8s.io", "z"]);
        load(&manifests, &[]);
        assert!(Arc::ptr_eq(&all(&stored), &stored));
        assert!(Composed::new(None).own(names).is_empty());
    }
}
