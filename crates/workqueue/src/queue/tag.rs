//! What a queue carries from an add to a hand-out.

use super::keys::SlotIdx;

/// A small value that goes with an add and comes out with the hand-out it leads to; what it means
/// is its user's.
///
/// Of several adds before a hand-out, the tag of the one that *decides* when it is stays: the add
/// that made the key queued or dirty, or that set the due time it waits for. If that one had none,
/// the first tag stays that came after it. A hand-out starts over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Tag(pub u64, pub u32);

impl Tag {
    /// The tag of an add that says none.
    pub const NONE: Self = Self(0, 0);

    /// Whether this is [`NONE`](Self::NONE).
    #[inline]
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

/// Per slot the tag of its key, as it will be handed out and as it was; empty until the first add
/// that has one.
#[derive(Debug, Default)]
pub(super) struct Tags(Vec<[Tag; 2]>);

impl Tags {
    #[inline]
    fn of(&self, idx: SlotIdx) -> [Tag; 2] {
        self.0.get(idx as usize).copied().unwrap_or_default()
    }

    /// The tag of what the key is wanted for.
    #[inline]
    pub(super) fn get(&self, idx: SlotIdx) -> Tag {
        self.of(idx)[0]
    }

    /// The tag the key was handed out with.
    #[inline]
    pub(super) fn held(&self, idx: SlotIdx) -> Tag {
        self.of(idx)[1]
    }

    /// The add with this tag decides.
    #[inline]
    pub(super) fn set(&mut self, idx: SlotIdx, tag: Tag) {
        match self.0.get_mut(idx as usize) {
            Some([next, _]) => *next = tag,
            None if tag.is_none() => {}
            None => self.grow(idx, tag),
        }
    }

    /// The add with this tag comes after the one that decides.
    #[inline]
    pub(super) fn fill(&mut self, idx: SlotIdx, tag: Tag) {
        if !tag.is_none() && self.get(idx).is_none() {
            self.set(idx, tag);
        }
    }

    /// The key is handed out.
    #[inline]
    pub(super) fn hand_out(&mut self, idx: SlotIdx) {
        if let Some([next, held]) = self.0.get_mut(idx as usize) {
            *held = *next;
        }
    }

    #[cold]
    fn grow(&mut self, idx: SlotIdx, tag: Tag) {
        self.0.resize(idx as usize + 1, <[Tag; 2]>::default());
        self.0[idx as usize][0] = tag;
    }
}
