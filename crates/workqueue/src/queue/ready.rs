//! Ready keys in the order of service: first come, first served, or [`Lanes`].

use std::collections::VecDeque;

use super::{keys::SlotIdx, lanes::Lanes, moment::Moment, options::Group, tag::Tag};

/// After a peak, the queue shrinks if its capacity is more than this many times its length.
const ROOM_FACTOR: usize = 8;

/// Queues up to this capacity do not shrink.
const ROOM_MIN: usize = 4096;

/// The options of an add that the order of service and the tags need.
#[derive(Debug, Clone, Copy)]
pub(super) struct Want {
    pub(super) priority: i32,
    pub(super) group: Group,
    pub(super) tag: Tag,
}

#[derive(Debug)]
pub(super) enum Ready {
    /// Without priorities and groups.
    Fifo(VecDeque<SlotIdx>),
    Lanes(Box<Lanes>),
}

impl Ready {
    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Fifo(queue) => queue.len(),
            Self::Lanes(lanes) => lanes.len(),
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub(super) fn lanes(&mut self) -> Option<&mut Lanes> {
        match self {
            Self::Fifo(_) => None,
            Self::Lanes(lanes) => Some(lanes),
        }
    }

    #[inline]
    pub(super) fn priority(&self, idx: SlotIdx) -> i32 {
        match self {
            Self::Fifo(_) => 0,
            Self::Lanes(lanes) => lanes.priority(idx),
        }
    }

    /// A key becomes ready.
    #[inline]
    pub(super) fn push(&mut self, idx: SlotIdx) {
        match self {
            Self::Fifo(queue) => queue.push_back(idx),
            Self::Lanes(lanes) => lanes.push(idx),
        }
    }

    /// A dirty key becomes ready: at the tail, or with lanes at the place of its add.
    #[inline]
    pub(super) fn push_dirty(&mut self, idx: SlotIdx) {
        match self {
            Self::Fifo(queue) => queue.push_back(idx),
            Self::Lanes(lanes) => lanes.push_dirty(idx),
        }
    }

    #[inline]
    pub(super) fn pop(&mut self, since: impl Fn(SlotIdx) -> Moment) -> Option<SlotIdx> {
        match self {
            Self::Fifo(queue) => {
                let idx = queue.pop_front()?;
                if queue.capacity() > ROOM_MIN && queue.capacity() / ROOM_FACTOR > queue.len() {
                    queue.shrink_to(queue.len() * 2);
                }
                Some(idx)
            }
            Self::Lanes(lanes) => lanes.pop(since),
        }
    }

    /// The next keys, if they are known without a search.
    pub(super) fn next(&self) -> impl Iterator<Item = SlotIdx> {
        let fifo = match self {
            Self::Fifo(queue) => Some(queue),
            Self::Lanes(_) => None,
        };
        fifo.into_iter().flatten().copied()
    }

    /// The key that has been ready for longest.
    pub(super) fn oldest(&self) -> Option<SlotIdx> {
        match self {
            Self::Fifo(queue) => queue.front().copied(),
            Self::Lanes(lanes) => lanes.oldest(),
        }
    }

    /// Empties it and returns the keys that were ready.
    pub(super) fn clear(&mut self) -> Vec<SlotIdx> {
        match self {
            Self::Fifo(queue) => std::mem::take(queue).into(),
            Self::Lanes(lanes) => lanes.clear(),
        }
    }
}
