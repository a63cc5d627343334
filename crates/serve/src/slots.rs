//! Connection slots: how many connections there may be, authenticated or not.
//!
//! # Theory
//!
//! | a connection is | from | at most | when there are more |
//! |---|---|---|---|
//! | unauthenticated | its start | [`Limits::unauthenticated_max`] | the oldest of them is closed |
//! | authenticated | its first authenticated request | the rest of [`Limits::connections_max`] | it stays unauthenticated |
//!
//! So a new peer always gets a slot, and peers that cannot authenticate evict only each other.
//! Without `unauthenticated_max` all connections are alike, and a new one waits until another ends.

use crate::limits::Limits;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// The slots of one server. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Slots {
    /// Limits accepted connections of both kinds together.
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
    /// In order of arrival, each with the token that closes it.
    unauthenticated: BTreeMap<u64, CancellationToken>,
}

impl Slots {
    pub(crate) fn new(limits: &Limits) -> Self {
        let kinds = limits.unauthenticated_max.map(|max| {
            let unauthenticated_max = max.min(limits.connections_max).max(1);
            Arc::new(Kinds {
                unauthenticated_max,
                authenticated_max: limits.connections_max - unauthenticated_max,
                state: Mutex::default(),
            })
        });
        // With limits per kind, one more for the connection that evicts another one.
        let n_sockets = limits.connections_max + usize::from(kinds.is_some());
        Self { sockets: Arc::new(Semaphore::new(n_sockets)), kinds }
    }

    /// Waits until another connection may be accepted. Cancel safe: dropping the future takes no
    /// slot.
    pub(crate) async fn wait(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        self.sockets.clone().acquire_owned().await.ok()
    }

    /// Assigns a slot to an accepted connection. Closes the oldest unauthenticated connection if
    /// there are too many.
    pub(crate) fn enter(&self, socket: Option<OwnedSemaphorePermit>) -> Slot {
        let (evicted, mut connection) = (CancellationToken::new(), None);
        if let Some(kinds) = &self.kinds {
            let mut state = kinds.state.lock();
            if state.unauthenticated.len() >= kinds.unauthenticated_max
                && let Some((_, oldest)) = state.unauthenticated.pop_first()
            {
                oldest.cancel();
            }
            let number = state.n_entered;
            state.n_entered += 1;
            state.unauthenticated.insert(number, evicted.clone());
            drop(state);
            connection = Some(ConnectionSlot(Arc::new(Connection {
                kinds: kinds.clone(),
                number,
                is_authenticated: AtomicBool::new(false),
            })));
        }
        Slot { _socket: socket, connection, evicted }
    }
}

/// A connection's slot, until dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    _socket: Option<OwnedSemaphorePermit>,
    connection: Option<ConnectionSlot>,
    evicted: CancellationToken,
}

impl Slot {
    /// The slot as requests see it; `None` if all connections are alike.
    pub(crate) fn connection(&self) -> Option<&ConnectionSlot> {
        self.connection.as_ref()
    }

    /// Completes when the connection is evicted. Cancel safe: it changes nothing.
    pub(crate) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let Some(ConnectionSlot(connection)) = &self.connection else { return };
        let mut state = connection.kinds.state.lock();
        if state.unauthenticated.remove(&connection.number).is_none()
            && connection.is_authenticated.load(Ordering::Relaxed)
        {
            state.n_authenticated -= 1;
        }
    }
}

/// The slot of a request's connection. It is in the request's extensions until the connection is
/// authenticated, if [`Limits::unauthenticated_max`] is set. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ConnectionSlot(Arc<Connection>);

#[derive(Debug)]
struct Connection {
    kinds: Arc<Kinds>,
    number: u64,
    /// Written under the lock of the state.
    is_authenticated: AtomicBool,
}

impl ConnectionSlot {
    /// Marks the connection as authenticated, after a request over it was. If all slots for
    /// authenticated connections are in use, nothing changes, and the next request may try again.
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

    fn slots() -> Slots {
        Slots::new(&Limits {
            connections_max: 5,
            unauthenticated_max: Some(2),
            ..Limits::default()
        })
    }
    fn is_evicted(slot: &Slot) -> bool {
        slot.evicted.is_cancelled()
    }

    #[test]
    fn oldest_unauthenticated_is_evicted_and_authenticated_stay() {
        let slots = slots();
        let [first, second] = [(); 2].map(|()| slots.enter(None));
        first.connection().unwrap().authenticated();
        let third = slots.enter(None);
        assert!(!is_evicted(&second));
        let fourth = slots.enter(None);
        assert!(is_evicted(&second) && !is_evicted(&first) && !is_evicted(&third));
        // Too late: it was evicted.
        second.connection().unwrap().authenticated();
        assert!(!second.connection().unwrap().is_authenticated());
        drop((second, fourth));
        let _fifth = slots.enter(None);
        assert!(!is_evicted(&third));
    }

    #[test]
    fn slots_of_authenticated_connections_are_bounded_and_freed() {
        let slots = slots();
        let mut held: Vec<_> = (0..3).map(|_| slots.enter(None)).collect();
        held.iter().for_each(|slot| slot.connection().unwrap().authenticated());
        // Of three connections, the first was evicted before it could authenticate.
        assert!(!held[0].connection().unwrap().is_authenticated());
        for _ in 0..2 {
            held.push(slots.enter(None));
            held.last().unwrap().connection().unwrap().authenticated();
        }
        let is_authenticated = |slot: &Slot| slot.connection().unwrap().is_authenticated();
        assert_eq!(held.iter().filter(|slot| is_authenticated(slot)).count(), 3);
        let late = held.pop().unwrap();
        assert!(!is_authenticated(&late));
        held.remove(1);
        late.connection().unwrap().authenticated();
        assert!(is_authenticated(&late));
    }
}
