//! Waiting tasks, in the order in which they are notified.
//!
//! Guarded by the queue's one lock, so that parking and the check for work are one step: no
//! notification can be lost between them.

use std::{collections::VecDeque, task::Waker};

/// Index of a waiter in [`Waiters`].
pub(super) type WaiterIdx = u32;

#[derive(Debug)]
struct Waiter {
    state: WaiterState,
    waker: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaiterState {
    Free,
    /// It is checking for work.
    Checking,
    /// It waits to be notified.
    Parked,
    /// Notified, and has not checked since.
    Notified,
}

/// The waiters. They are notified in the order in which they parked.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    waiters: Vec<Waiter>,
    free: Vec<WaiterIdx>,
    parked: VecDeque<WaiterIdx>,
}

impl Waiters {
    pub(super) fn n_parked(&self) -> usize {
        self.parked.len()
    }

    /// Registers a waiter that is not parked.
    pub(super) fn register(&mut self) -> WaiterIdx {
        let waiter = Waiter { state: WaiterState::Checking, waker: None };
        match self.free.pop() {
            Some(idx) => {
                self.waiters[idx as usize] = waiter;
                idx
            }
            None => {
                self.waiters.push(waiter);
                (self.waiters.len() - 1) as WaiterIdx
            }
        }
    }

    /// The waiter checks for work, which consumes its notification.
    pub(super) fn check(&mut self, idx: WaiterIdx) {
        self.unqueue(idx);
        self.waiters[idx as usize].state = WaiterState::Checking;
    }

    /// The waiter found no work.
    pub(super) fn park(&mut self, idx: WaiterIdx) {
        self.waiters[idx as usize].state = WaiterState::Parked;
        self.parked.push_back(idx);
    }

    /// Whether the waiter was notified; if not, stores `waker`.
    pub(super) fn is_notified(&mut self, idx: WaiterIdx, waker: &Waker) -> bool {
        let waiter = &mut self.waiters[idx as usize];
        if waiter.state != WaiterState::Parked {
            return true;
        }
        if !waiter.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            waiter.waker = Some(waker.clone());
        }
        false
    }

    /// Notifies the waiter that has been parked for longest.
    #[inline]
    pub(super) fn notify_one(&mut self, wakers: &mut Wakers) {
        if let Some(idx) = self.parked.pop_front() {
            let waiter = &mut self.waiters[idx as usize];
            waiter.state = WaiterState::Notified;
            wakers.push(waiter.waker.take());
        }
    }

    /// Notifies this waiter.
    pub(super) fn notify(&mut self, idx: WaiterIdx, wakers: &mut Wakers) {
        if self.waiters[idx as usize].state == WaiterState::Parked {
            self.unqueue(idx);
            let waiter = &mut self.waiters[idx as usize];
            waiter.state = WaiterState::Notified;
            wakers.push(waiter.waker.take());
        }
    }

    pub(super) fn notify_all(&mut self, wakers: &mut Wakers) {
        while self.n_parked() > 0 {
            self.notify_one(wakers);
        }
    }

    /// Removes a waiter. Returns whether its notification was not consumed.
    pub(super) fn deregister(&mut self, idx: WaiterIdx) -> bool {
        self.unqueue(idx);
        let free = Waiter { state: WaiterState::Free, waker: None };
        let waiter = std::mem::replace(&mut self.waiters[idx as usize], free);
        self.free.push(idx);
        waiter.state == WaiterState::Notified
    }

    fn unqueue(&mut self, idx: WaiterIdx) {
        if self.waiters[idx as usize].state == WaiterState::Parked
            && let Some(place) = self.parked.iter().position(|parked| *parked == idx)
        {
            self.parked.remove(place);
        }
    }
}

/// Wakers to wake after the lock is released.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    first: Option<Waker>,
    rest: Vec<Waker>,
}

impl Wakers {
    fn push(&mut self, waker: Option<Waker>) {
        // A waiter without a waker checks again before it waits.
        let Some(waker) = waker else { return };
        match &self.first {
            None => self.first = Some(waker),
            Some(_) => self.rest.push(waker),
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn wake(self) {
        if let Some(first) = self.first {
            first.wake();
        }
        self.rest.into_iter().for_each(Waker::wake);
    }
}
