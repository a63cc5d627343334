//! Places for connections: how many there may be, and whose.
//!
//! # Theory
//!
//! | a connection is | from | at most | when there are more |
//! |---|---|---|---|
//! | unauthenticated | its begin | [`Limits::unauthenticated_max`] | the oldest of them ends |
//! | authenticated | the first request that somebody vouched for | the rest of [`Limits::connections_max`] | it stays unauthenticated |
//!
//! So a new peer always finds a place, and peers that cannot authenticate push out each other only.
//! Without `unauthenticated_max` all connections are alike, and a new one waits until another ends.

use crate::limits::Limits;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// The places of one server. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// Bounds what is accepted, in both kinds together.
    sockets: Arc<Semaphore>,
    kinds: Option<Arc<Kinds>>,
}

#[derive(Debug)]
struct Kinds {
    unauthenticated_max: usize,
    authenticated_max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    n_entered: u64,
    n_authenticated: usize,
    /// In the order in which they came, with what ends them.
    unauthenticated: BTreeMap<u64, CancellationToken>,
}

impl Places {
    pub(crate) fn new(limits: &Limits) -> Self {
        let kinds = limits.unauthenticated_max.map(|max| {
            let unauthenticated_max = max.min(limits.connections_max).max(1);
            Arc::new(Kinds {
                unauthenticated_max,
                authenticated_max: limits.connections_max - unauthenticated_max,
                state: Mutex::default(),
            })
        });
        // One more, where the kinds have their own bounds: for the connection that pushes another
        // one out.
        let n_sockets = limits.connections_max + usize::from(kinds.is_some());
        Self { sockets: Arc::new(Semaphore::new(n_sockets)), kinds }
    }

    /// Waits until another connection may be accepted. Cancel safe: what is dropped has taken
    /// nothing.
    pub(crate) async fn wait(&self) -> Option<OwnedSemaphorePermit> {
        // It is never closed.
        self.sockets.clone().acquire_owned().await.ok()
    }

    /// The place of a connection that was accepted; ends the oldest unauthenticated one if there
    /// are too many.
    pub(crate) fn enter(&self, socket: Option<OwnedSemaphorePermit>) -> Place {
        let (pushed_out, mut connection) = (CancellationToken::new(), None);
        if let Some(kinds) = &self.kinds {
            let mut state = kinds.state.lock();
            if state.unauthenticated.len() >= kinds.unauthenticated_max
                && let Some((_, oldest)) = state.unauthenticated.pop_first()
            {
                oldest.cancel();
            }
            let number = state.n_entered;
            state.n_entered += 1;
            state.unauthenticated.insert(number, pushed_out.clone());
            drop(state);
            connection = Some(ConnectionPlace(Arc::new(Connection {
                kinds: kinds.clone(),
                number,
                is_authenticated: AtomicBool::new(false),
            })));
        }
        Place { _socket: socket, connection, pushed_out }
    }
}

/// A connection's place until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _socket: Option<OwnedSemaphorePermit>,
    connection: Option<ConnectionPlace>,
    pushed_out: CancellationToken,
}

impl Place {
    /// The place as requests see it; `None` where all connections are alike.
    pub(crate) fn connection(&self) -> Option<&ConnectionPlace> {
        self.connection.as_ref()
    }

    /// Ends when the place is another connection's. Cancel safe: it only looks.
    pub(crate) async fn pushed_out(&self) {
        self.pushed_out.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(ConnectionPlace(connection)) = &self.connection else { return };
        let mut state = connection.kinds.state.lock();
        if state.unauthenticated.remove(&connection.number).is_none()
            && connection.is_authenticated.load(Ordering::Relaxed)
        {
            state.n_authenticated -= 1;
        }
    }
}

/// The place of the connection that a request came over: in the request's extensions until the
/// connection is authenticated, where [`Limits::unauthenticated_max`] is set. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ConnectionPlace(Arc<Connection>);

#[derive(Debug)]
struct Connection {
    kinds: Arc<Kinds>,
    number: u64,
    /// Written under the lock of the state.
    is_authenticated: AtomicBool,
}

impl ConnectionPlace {
    /// Moves the connection to the places of the authenticated: a request over it was
    /// authenticated. Without a free one among those it stays where it is, and the next request may
    /// try again.
    pub fn authenticated(&self) {
        let Connection { kinds, number, is_authenticated } = &*self.0;
        let mut state = kinds.state.lock();
        if state.n_authenticated < kinds.authenticated_max
            && state.unauthenticated.remove(number).is_some()
        {
            state.n_authenticated += 1;
            is_authenticated.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_authenticated(&self) -> bool {
        self.0.is_authenticated.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Places {
        Places::new(&Limits {
            connections_max: 5,
            unauthenticated_max: Some(2),
            ..Limits::default()
        })
    }
    fn is_pushed_out(place: &Place) -> bool {
        place.pushed_out.is_cancelled()
    }

    #[test]
    fn oldest_unauthenticated_makes_room_and_the_authenticated_stay() {
        let places = places();
        let [first, second] = [(); 2].map(|()| places.enter(None));
        first.connection().unwrap().authenticated();
        let third = places.enter(None);
        assert!(!is_pushed_out(&second));
        let fourth = places.enter(None);
        assert!(is_pushed_out(&second) && !is_pushed_out(&first) && !is_pushed_out(&third));
        // Too late: its place is another one's.
        second.connection().unwrap().authenticated();
        assert!(!second.connection().unwrap().is_authenticated());
        drop((second, fourth));
        let _fifth = places.enter(None);
        assert!(!is_pushed_out(&third));
    }

    #[test]
    fn places_of_the_authenticated_are_bounded_and_come_back() {
        let places = places();
        let mut held: Vec<_> = (0..3).map(|_| places.enter(None)).collect();
        held.iter().for_each(|place| place.connection().unwrap().authenticated());
        // Of three that entered, the first was pushed out before it could authenticate.
        assert!(!held[0].connection().unwrap().is_authenticated());
        for _ in 0..2 {
            held.push(places.enter(None));
            held.last().unwrap().connection().unwrap().authenticated();
        }
        let is_authenticated = |place: &Place| place.connection().unwrap().is_authenticated();
        assert_eq!(held.iter().filter(|place| is_authenticated(place)).count(), 3);
        let late = held.pop().unwrap();
        assert!(!is_authenticated(&late));
        held.remove(1);
        late.connection().unwrap().authenticated();
        assert!(is_authenticated(&late));
    }
}
