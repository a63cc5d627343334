//! Who waits for the lock's state to change, and in which order they are called.
//!
//! Guarded by the queue's one lock, so that whether somebody sleeps and whether there is something
//! to do are seen together: no call can fall between a look and the sleep after it.

use std::{collections::VecDeque, task::Waker};

/// Where in [`Parking`] one who waits sits.
pub(super) type SeatIdx = u32;

#[derive(Debug)]
struct Seat {
    stage: Stage,
    waker: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Free,
    /// Its holder looks around.
    Awake,
    /// To be called.
    Asleep,
    /// Called, and has not looked since.
    Called,
}

/// Seats of those who wait; they are called in the order in which they fell asleep.
#[derive(Debug, Default)]
pub(super) struct Parking {
    seats: Vec<Seat>,
    free: Vec<SeatIdx>,
    asleep: VecDeque<SeatIdx>,
}

impl Parking {
    pub(super) fn n_asleep(&self) -> usize {
        self.asleep.len()
    }

    /// A seat for one who is awake.
    pub(super) fn enter(&mut self) -> SeatIdx {
        let seat = Seat { stage: Stage::Awake, waker: None };
        match self.free.pop() {
            Some(idx) => {
                self.seats[idx as usize] = seat;
                idx
            }
            None => {
                self.seats.push(seat);
                (self.seats.len() - 1) as SeatIdx
            }
        }
    }

    /// The holder looks around: a call to it has been heard.
    pub(super) fn wake_up(&mut self, idx: SeatIdx) {
        self.unqueue(idx);
        self.seats[idx as usize].stage = Stage::Awake;
    }

    /// The holder found nothing.
    pub(super) fn fall_asleep(&mut self, idx: SeatIdx) {
        self.seats[idx as usize].stage = Stage::Asleep;
        self.asleep.push_back(idx);
    }

    /// Whether the holder has been called; if not, `waker` will be told.
    pub(super) fn is_called(&mut self, idx: SeatIdx, waker: &Waker) -> bool {
        let seat = &mut self.seats[idx as usize];
        if seat.stage != Stage::Asleep {
            return true;
        }
        if !seat.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            seat.waker = Some(waker.clone());
        }
        false
    }

    /// Calls the one who has slept for longest.
    #[inline]
    pub(super) fn call_one(&mut self, wakes: &mut Wakes) {
        if let Some(idx) = self.asleep.pop_front() {
            let seat = &mut self.seats[idx as usize];
            seat.stage = Stage::Called;
            wakes.push(seat.waker.take());
        }
    }

    /// Calls this one.
    pub(super) fn call(&mut self, idx: SeatIdx, wakes: &mut Wakes) {
        if self.seats[idx as usize].stage == Stage::Asleep {
            self.unqueue(idx);
            let seat = &mut self.seats[idx as usize];
            seat.stage = Stage::Called;
            wakes.push(seat.waker.take());
        }
    }

    pub(super) fn call_all(&mut self, wakes: &mut Wakes) {
        while self.n_asleep() > 0 {
            self.call_one(wakes);
        }
    }

    /// Frees a seat; says whether a call to it was never heard.
    pub(super) fn leave(&mut self, idx: SeatIdx) -> bool {
        self.unqueue(idx);
        let left = Seat { stage: Stage::Free, waker: None };
        let seat = std::mem::replace(&mut self.seats[idx as usize], left);
        self.free.push(idx);
        seat.stage == Stage::Called
    }

    fn unqueue(&mut self, idx: SeatIdx) {
        if self.seats[idx as usize].stage == Stage::Asleep
            && let Some(place) = self.asleep.iter().position(|asleep| *asleep == idx)
        {
            self.asleep.remove(place);
        }
    }
}

/// Those to be woken once the lock is released.
#[derive(Debug, Default)]
pub(super) struct Wakes {
    first: Option<Waker>,
    rest: Vec<Waker>,
}

impl Wakes {
    fn push(&mut self, waker: Option<Waker>) {
        // Who has no waker yet looks before it sleeps.
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
