//! Finds the fields of a definition by name.
//!
//! Each member of each object that is read, validated or written is looked up in its definition. A
//! binary search compares five names for a definition of forty fields. A table of positions by a
//! hash of the name compares one, rarely two. The tables are made at compile time.

use crate::{Definition, Field};

/// The most fields of a definition; `PodSpec` has some forty.
pub const FIELDS_MAX: usize = 64;
/// Twice as many as there are fields, so that a search soon meets an empty slot.
const SLOTS: usize = 2 * FIELDS_MAX;
/// Marks an empty slot.
const EMPTY: u8 = u8::MAX;

/// Positions of fields, by a hash of the name.
#[derive(Debug)]
pub struct Lookup([u8; SLOTS]);

impl Lookup {
    /// Without fields.
    pub const NONE: Self = Self([EMPTY; SLOTS]);

    const fn of(fields: &[Field]) -> Self {
        assert!(fields.len() <= FIELDS_MAX, "a definition has too many fields");
        let mut slots = [EMPTY; SLOTS];
        let mut at = 0;
        while at < fields.len() {
            let mut slot = slot(fields[at].name.as_bytes());
            while slots[slot] != EMPTY {
                slot = (slot + 1) % SLOTS;
            }
            #[expect(clippy::cast_possible_truncation, reason = "at most FIELDS_MAX")]
            let position = at as u8;
            slots[slot] = position;
            at += 1;
        }
        Self(slots)
    }

    /// The position of the field with this name.
    pub(crate) fn position(&self, fields: &[Field], name: &str) -> Option<usize> {
        let mut slot = slot(name.as_bytes());
        loop {
            let at = usize::from(*self.0.get(slot)?);
            // `None` in an empty slot.
            if fields.get(at)?.name == name {
                return Some(at);
            }
            slot = (slot + 1) % SLOTS;
        }
    }
}

impl Definition {
    /// With the table of its fields.
    pub(crate) const fn indexed(self) -> Self {
        Self { lookup: Lookup::of(self.fields), ..self }
    }
}

/// The first slot to look at: of the name's length and its first, middle and last character.
const fn slot(name: &[u8]) -> usize {
    let n = name.len();
    if n == 0 {
        return 0;
    }
    let mixed = n * 0x1_0003 + name[0] as usize * 0x101 + name[n / 2] as usize * 0x2_0b07;
    let mixed = mixed + name[n - 1] as usize * 0x3d;
    // The highest seven of 32 bits, which depend on all others.
    (mixed.wrapping_mul(0x9e37_79b1) & 0xffff_ffff) >> 25
}
