//! Which object versions have been converted, and which are being converted now.
//!
//! | an object version is | `claim` answers     | then                                                        |
//! |----------------------|---------------------|-------------------------------------------------------------|
//! | unknown              | it is the caller's  | it is coming; [`Claim::land`] or dropping the claim ends that |
//! | coming               | the flight it is on | the caller waits for the flight and asks again              |
//! | here                 | its bytes           |                                                             |
use super::{RECENT_BYTES_MAX, RECENT_OBJECTS_MAX};
use crate::followed::Followed;
use bytes::Bytes;
use parking_lot::Mutex;
use setpoint_object::ApiError;
use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::sync::{Arc, OnceLock, Weak};

/// Converted objects that are kept elsewhere.
pub(crate) trait Lookup: Debug + Send + Sync {
    /// The object under a key as it became at a revision.
    fn find(&self, key: &[u8], revision: u64) -> Option<Bytes>;
}

/// A key, and the revision at which its object became so.
pub(super) type Name = (Bytes, u64);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Known {
    state: Mutex<State>,
    elsewhere: Mutex<Option<Weak<dyn Lookup>>>,
}
#[derive(Debug, Default)]
struct State {
    /// Nothing depends on its order.
    objects: HashMap<Name, Entry>,
    /// Those that are here, the oldest first.
    order: VecDeque<Name>,
    /// What those weigh, with their keys.
    n_bytes: usize,
}
#[derive(Debug)]
enum Entry {
    Coming(Arc<Flight>),
    Here(Bytes),
}
/// A batch on its way.
#[derive(Debug, Default)]
pub(super) struct Flight {
    has_ended: Followed<bool>,
    failure: OnceLock<ApiError>,
}
impl Flight {
    /// Waits until it has ended. Dropping it loses nothing.
    ///
    /// # Errors
    ///
    /// It failed. One that was abandoned did not: who waited asks again.
    pub(super) async fn wait(&self) -> Result<(), ApiError> {
        self.has_ended.wait_for(|ended| *ended).await;
        self.failure.get().map_or(Ok(()), |error| Err(error.clone()))
    }
}
/// What became of the objects that were claimed, one each.
#[derive(Debug)]
pub(super) enum Found {
    Here(Bytes),
    Mine,
    Coming(Arc<Flight>),
}
/// Objects that are the owner's to convert. Dropping it leaves them to the next who asks.
#[derive(Debug)]
pub(super) struct Claim<'k> {
    known: &'k Known,
    names: Vec<Name>,
    flight: Arc<Flight>,
}

impl Known {
    /// Where else converted objects are.
    pub(super) fn look_into(&self, elsewhere: Weak<dyn Lookup>) {
        *self.elsewhere.lock() = Some(elsewhere);
    }
    /// An object that has been converted.
    pub(super) fn get(&self, key: &Bytes, revision: u64) -> Option<Bytes> {
        // A statement each: no two locks are held at once.
        let elsewhere = self.elsewhere.lock().clone();
        let elsewhere = elsewhere.and_then(|elsewhere| elsewhere.upgrade());
        if let Some(found) = elsewhere.and_then(|elsewhere| elsewhere.find(key, revision)) {
            return Some(found);
        }
        match self.state.lock().objects.get(&(key.clone(), revision)) {
            Some(Entry::Here(bytes)) => Some(bytes.clone()),
            _ => None,
        }
    }
    /// Finds objects, and claims those of which nothing is known.
    pub(super) fn claim(&self, names: impl Iterator<Item = Name>) -> (Vec<Found>, Claim<'_>) {
        let mut claim = Claim { known: self, names: Vec::new(), flight: Arc::default() };
        let mut state = self.state.lock();
        let found = names.map(|name| match state.objects.get(&name) {
            Some(Entry::Here(bytes)) => Found::Here(bytes.clone()),
            // Twice in one batch: nobody waits for itself.
            Some(Entry::Coming(flight)) if Arc::ptr_eq(flight, &claim.flight) => Found::Mine,
            Some(Entry::Coming(flight)) => Found::Coming(flight.clone()),
            None => {
                state.objects.insert(name.clone(), Entry::Coming(claim.flight.clone()));
                claim.names.push(name);
                Found::Mine
            }
        });
        let found = found.collect();
        (found, claim)
    }
}
impl Claim<'_> {
    /// Ends it with its objects.
    pub(super) fn land(mut self, objects: impl Iterator<Item = (Name, Bytes)>) {
        self.names.clear();
        let mut state = self.known.state.lock();
        objects.for_each(|(name, object)| state.keep(name, object));
    }
    /// Ends it with a failure: those who wait are told, and it is not remembered.
    pub(super) fn fail(self, error: &ApiError) {
        // Nobody else sets it.
        _ = self.flight.failure.set(error.clone());
    }
}
impl Drop for Claim<'_> {
    fn drop(&mut self) {
        {
            let mut state = self.known.state.lock();
            for name in &self.names {
                state.objects.remove(name);
            }
        }
        self.flight.has_ended.change(|ended| *ended = true);
    }
}
impl State {
    fn keep(&mut self, name: Name, object: Bytes) {
        self.n_bytes += name.0.len() + object.len();
        self.objects.insert(name.clone(), Entry::Here(object));
        self.order.push_back(name);
        while self.order.len() > RECENT_OBJECTS_MAX || self.n_bytes > RECENT_BYTES_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            if let Some(Entry::Here(object)) = self.objects.remove(&oldest) {
                self.n_bytes -= oldest.0.len() + object.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(n: usize) -> Name {
        (format!("/registry/foos/{n}").into(), n as u64)
    }
    fn claim(known: &Known, n: usize) -> (Found, Claim<'_>) {
        let (mut found, claim) = known.claim(std::iter::once(name(n)));
        (found.remove(0), claim)
    }

    #[tokio::test]
    async fn who_asks_meanwhile_gets_the_outcome_and_an_abandoned_object_is_the_next_ones() {
        let known = Known::default();
        let (mine, first) = claim(&known, 1);
        assert!(matches!(mine, Found::Mine));
        let (Found::Coming(flight), _) = claim(&known, 1) else { panic!("it is coming") };
        drop(first);
        flight.wait().await.unwrap();
        let (mine, second) = claim(&known, 1);
        assert!(matches!(mine, Found::Mine));
        let (Found::Coming(flight), _) = claim(&known, 1) else { panic!("it is coming") };
        second.fail(&ApiError::unclassified("no"));
        assert_eq!(flight.wait().await.unwrap_err().to_string(), "no");
        // A failure is not remembered.
        let (mine, third) = claim(&known, 1);
        assert!(matches!(mine, Found::Mine));
        third.land(std::iter::once((name(1), Bytes::from_static(b"{}"))));
        assert!(matches!(claim(&known, 1).0, Found::Here(_)));
        assert_eq!(known.get(&name(1).0, 1).unwrap(), "{}");
        assert!(known.get(&name(1).0, 2).is_none());
    }

    #[test]
    fn what_is_remembered_is_bounded_by_count_and_by_bytes() {
        for (n_bytes, n_fit) in [(1, RECENT_OBJECTS_MAX), (64 << 10, RECENT_BYTES_MAX / (64 << 10))]
        {
            let known = Known::default();
            for n in 0..2 * RECENT_OBJECTS_MAX {
                let object = Bytes::from(vec![b'x'; n_bytes]);
                claim(&known, n).1.land(std::iter::once((name(n), object)));
            }
            let state = known.state.lock();
            assert_eq!(state.objects.len(), state.order.len());
            assert!((n_fit - 2..=n_fit).contains(&state.order.len()), "{}", state.order.len());
            assert!(state.n_bytes <= RECENT_BYTES_MAX);
        }
    }
}
