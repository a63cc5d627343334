//! Single flight: the object versions that are converted, and those that are being converted now.
//!
//! | an object version is | `claim` returns     | then                                                          |
//! |----------------------|---------------------|---------------------------------------------------------------|
//! | unknown              | `Claimed`           | it is in flight until [`Claim::complete`], or the claim is dropped |
//! | in flight            | its `Flight`        | the caller waits for the flight and claims again              |
//! | converted            | its bytes           |                                                               |
use super::{RECENT_BYTES_MAX, RECENT_OBJECTS_MAX};
use crate::fifo_watch::FifoWatch;
use bytes::Bytes;
use parking_lot::Mutex;
use setpoint_object::ApiError;
use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::sync::{Arc, OnceLock, Weak};

/// Another cache of converted objects.
pub(crate) trait Lookup: Debug + Send + Sync {
    /// The object under a key at a revision.
    fn find(&self, key: &[u8], revision: u64) -> Option<Bytes>;
}

/// A key and the revision of its object.
pub(super) type Name = (Bytes, u64);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct SingleFlight {
    state: Mutex<State>,
    elsewhere: Mutex<Option<Weak<dyn Lookup>>>,
}
#[derive(Debug, Default)]
struct State {
    /// No behavior depends on its order.
    objects: HashMap<Name, Entry>,
    /// The converted ones, oldest first.
    order: VecDeque<Name>,
    /// Their size with keys, in bytes.
    n_bytes: usize,
}
#[derive(Debug)]
enum Entry {
    InFlight(Arc<Flight>),
    Converted(Bytes),
}
/// A batch that is being converted.
#[derive(Debug, Default)]
pub(super) struct Flight {
    has_ended: FifoWatch<bool>,
    failure: OnceLock<ApiError>,
}
impl Flight {
    /// Waits until it has ended. Dropping the future has no effect.
    ///
    /// # Errors
    ///
    /// It failed. An abandoned flight returns `Ok`: the caller claims again.
    pub(super) async fn wait(&self) -> Result<(), ApiError> {
        self.has_ended.wait_for(|ended| *ended).await;
        self.failure.get().map_or(Ok(()), |error| Err(error.clone()))
    }
}
/// The state of each object of a claim.
#[derive(Debug)]
pub(super) enum Found {
    Converted(Bytes),
    Claimed,
    InFlight(Arc<Flight>),
}
/// Objects that the holder must convert. Dropping it leaves them to the next caller.
#[derive(Debug)]
pub(super) struct Claim<'k> {
    single_flight: &'k SingleFlight,
    names: Vec<Name>,
    flight: Arc<Flight>,
}

impl SingleFlight {
    /// Sets another cache of converted objects.
    pub(super) fn look_into(&self, elsewhere: Weak<dyn Lookup>) {
        *self.elsewhere.lock() = Some(elsewhere);
    }
    /// A converted object.
    pub(super) fn get(&self, key: &Bytes, revision: u64) -> Option<Bytes> {
        // One statement each, so that two locks are never held at once.
        let elsewhere = self.elsewhere.lock().clone();
        let elsewhere = elsewhere.and_then(|elsewhere| elsewhere.upgrade());
        if let Some(found) = elsewhere.and_then(|elsewhere| elsewhere.find(key, revision)) {
            return Some(found);
        }
        match self.state.lock().objects.get(&(key.clone(), revision)) {
            Some(Entry::Converted(bytes)) => Some(bytes.clone()),
            _ => None,
        }
    }
    /// Looks up objects, and claims the unknown ones.
    pub(super) fn claim(&self, names: impl Iterator<Item = Name>) -> (Vec<Found>, Claim<'_>) {
        let mut claim = Claim { single_flight: self, names: Vec::new(), flight: Arc::default() };
        let mut state = self.state.lock();
        let found = names.map(|name| match state.objects.get(&name) {
            Some(Entry::Converted(bytes)) => Found::Converted(bytes.clone()),
            // Twice in one batch: a claim must not wait for itself.
            Some(Entry::InFlight(flight)) if Arc::ptr_eq(flight, &claim.flight) => Found::Claimed,
            Some(Entry::InFlight(flight)) => Found::InFlight(flight.clone()),
            None => {
                state.objects.insert(name.clone(), Entry::InFlight(claim.flight.clone()));
                claim.names.push(name);
                Found::Claimed
            }
        });
        let found = found.collect();
        (found, claim)
    }
}
impl Claim<'_> {
    /// Completes the claim with its objects.
    pub(super) fn complete(mut self, objects: impl Iterator<Item = (Name, Bytes)>) {
        self.names.clear();
        let mut state = self.single_flight.state.lock();
        objects.for_each(|(name, object)| state.keep(name, object));
    }
    /// Ends the claim with an error, which the waiting callers get. The error is not cached.
    pub(super) fn fail(self, error: &ApiError) {
        // Only the holder of the claim sets it.
        _ = self.flight.failure.set(error.clone());
    }
}
impl Drop for Claim<'_> {
    fn drop(&mut self) {
        {
            let mut state = self.single_flight.state.lock();
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
        self.objects.insert(name.clone(), Entry::Converted(object));
        self.order.push_back(name);
        while self.order.len() > RECENT_OBJECTS_MAX || self.n_bytes > RECENT_BYTES_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            if let Some(Entry::Converted(object)) = self.objects.remove(&oldest) {
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
    fn claim(single_flight: &SingleFlight, n: usize) -> (Found, Claim<'_>) {
        let (mut found, claim) = single_flight.claim(std::iter::once(name(n)));
        (found.remove(0), claim)
    }

    #[tokio::test]
    async fn waiting_callers_get_the_outcome_and_an_abandoned_object_can_be_claimed_again() {
        let single_flight = SingleFlight::default();
        let (mine, first) = claim(&single_flight, 1);
        assert!(matches!(mine, Found::Claimed));
        let (Found::InFlight(flight), _) = claim(&single_flight, 1) else {
            panic!("it is in flight")
        };
        drop(first);
        flight.wait().await.unwrap();
        let (mine, second) = claim(&single_flight, 1);
        assert!(matches!(mine, Found::Claimed));
        let (Found::InFlight(flight), _) = claim(&single_flight, 1) else {
            panic!("it is in flight")
        };
        second.fail(&ApiError::unclassified("no"));
        assert_eq!(flight.wait().await.unwrap_err().to_string(), "no");
        // Errors are not cached.
        let (mine, third) = claim(&single_flight, 1);
        assert!(matches!(mine, Found::Claimed));
        third.complete(std::iter::once((name(1), Bytes::from_static(b"{}"))));
        assert!(matches!(claim(&single_flight, 1).0, Found::Converted(_)));
        assert_eq!(single_flight.get(&name(1).0, 1).unwrap(), "{}");
        assert!(single_flight.get(&name(1).0, 2).is_none());
    }

    #[test]
    fn the_cache_is_bounded_by_count_and_by_bytes() {
        for (n_bytes, n_fit) in [(1, RECENT_OBJECTS_MAX), (64 << 10, RECENT_BYTES_MAX / (64 << 10))]
        {
            let single_flight = SingleFlight::default();
            for n in 0..2 * RECENT_OBJECTS_MAX {
                let object = Bytes::from(vec![b'x'; n_bytes]);
                claim(&single_flight, n).1.complete(std::iter::once((name(n), object)));
            }
            let state = single_flight.state.lock();
            assert_eq!(state.objects.len(), state.order.len());
            assert!((n_fit - 2..=n_fit).contains(&state.order.len()), "{}", state.order.len());
            assert!(state.n_bytes <= RECENT_BYTES_MAX);
        }
    }
}
