//! Tags, from an add to its hand-out.

use super::keys::SlotIdx;

/// A small value from an add to its hand-out. Its meaning is up to the user.
///
/// Of several adds before a hand-out, the tag of the *deciding* add stays: the one that made the
/// key queued or dirty, or that set its due time. If that add had no tag, the first tag after it
/// stays. A hand-out starts over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Tag(pub u64, pub u32);

impl Tag {
    /// No tag.
    pub const NONE: Self = Self(0, 0);

    /// Whether this is [`NONE`](Self::NONE).
    #[inline]
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

/// Per slot the tag of the key for its next hand-out, and of its last one. Empty until the first
/// add with a tag.
#[derive(Debug, Default)]
pub(super) struct Tags(Vec<[Tag; 2]>);

impl Tags {
    #[inline]
    fn of(&self, idx: SlotIdx) -> [Tag; 2] {
        self.0.get(idx as usize).copied().unwrap_or_default()
    }

    /// The tag for the key's next hand-out.
    #[inline]
    pub(super) fn get(&self, idx: SlotIdx) -> Tag {
        self.of(idx)[0]
    }

    /// The tag of the key's last hand-out.
    #[inline]
    pub(super) fn held(&self, idx: SlotIdx) -> Tag {
        self.of(idx)[1]
    }

    /// Sets the tag of a deciding add.
    #[inline]
    pub(super) fn set(&mut self, idx: SlotIdx, tag: Tag) {
        match self.0.get_mut(idx as usize) {
            Some([next, _]) => *next = tag,
            None if tag.is_none() => {}
            None => self.grow(idx, tag),
        }
    }

    /// Sets the tag of a later add, if there is none yet.
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
